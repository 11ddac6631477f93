#pragma once

#include <string>
#include <vector>

#include "tests/support/rank_training.h"

namespace weft::test {

// Trainings over real processes. Starting mpirun costs more than a tiny training, so many of them
// share one: the program training_ranks (tests/launcher/training_ranks_main.cc) reads them from a
// folder and takes them in turn, several at a time where they fit side by side.
struct RankJob {
  int ranks = 1;
  Config config;
};

// What each of them gave over rule_batch, in the same order, under `launcher/run -n processes`.
std::vector<History> train_over_processes(int processes, const std::vector<RankJob>& jobs);

// The other side: as one process of mpirun.
void run_rank_jobs(const std::string& folder);

}  // namespace weft::test
