#pragma once

#include <string>
#include <vector>

#include "tests/support/rank_training.h"

namespace weft::test {

// Trainings over real processes. Starting mpirun costs more than a tiny training, so many of them
// share one: the program training_ranks (tests/launcher/training_ranks_main.cc) reads them from a
// folder and runs them in order, several at a time if there are enough ranks.
struct RankJob {
  int ranks = 1;
  Config config;
};

// Results of each job over rule_batch, in order, under `launcher/run -n processes`.
std::vector<History> train_over_processes(int processes, const std::vector<RankJob>& jobs);

// The counterpart, in each process of mpirun.
void run_rank_jobs(const std::string& folder);

}  // namespace weft::test
