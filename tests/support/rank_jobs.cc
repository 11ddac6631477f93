#include "tests/support/rank_jobs.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "parallel/comm/mpi_comm.h"
#include "tests/support/paths.h"
#include "tests/support/program.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

using nlohmann::json;

std::string jobs_file(const std::string& folder) { return folder + "/jobs.json"; }
std::string result_file(const std::string& folder, size_t job) {
  return fmt::format("{}/{}.cbor", folder, job);
}

// CBOR keeps every bit of a number.
json packed(const History& history) {
  json steps = json::array();
  for (const StepResult& s : history.steps) {
    json moe = json::array();
    for (const MoeReport& report : s.moe) {
      moe.push_back({report.layer, report.memories, report.counts, report.dropped, report.margin});
    }
    steps.push_back({{"loss", s.loss},
                     {"aux_loss", s.aux_loss},
                     {"z_loss", s.z_loss},
                     {"grad_norm", s.grad_norm},
                     {"tokens", s.tokens},
                     {"moe", moe}});
  }
  return {{"steps", steps}, {"valid", history.valid}, {"weights", history.weights}};
}

History unpacked(const json& from) {
  History history;
  for (const json& s : from["steps"]) {
    StepResult step;
    step.loss = s["loss"], step.aux_loss = s["aux_loss"], step.z_loss = s["z_loss"];
    step.grad_norm = s["grad_norm"], step.tokens = s["tokens"];
    for (const json& report : s["moe"]) {
      MoeReport& moe = step.moe.emplace_back();
      report[0].get_to(moe.layer);
      report[1].get_to(moe.memories);
      report[2].get_to(moe.counts);
      report[3].get_to(moe.dropped);
      report[4].get_to(moe.margin);
    }
    history.steps.push_back(std::move(step));
  }
  history.valid = from["valid"];
  from["weights"].get_to(history.weights);
  return history;
}

History train_as(const std::string& config_text, MpiComm& ranks) {
  const Config config = config_from_text(config_text, "job");
  const Splitter split = [&](int color, int key, const std::string& axis) {
    return ranks.split(color, key, axis);
  };
  return train_as_rank(config, ranks, split,
                       config.run.check_collectives ? Signatures::kCompare : Signatures::kTrust,
                       rule_batch);
}

}  // namespace

std::vector<History> train_over_processes(int processes, const std::vector<RankJob>& jobs) {
  setenv("ASAN_OPTIONS", "detect_leaks=0", 0);  // leaks of MPI itself
  const ScratchFolder scratch;
  const std::string folder = scratch.path().string();
  json list = json::array();
  for (const RankJob& job : jobs) {
    list.push_back({{"ranks", job.ranks}, {"config", resolved(job.config)}});
  }
  std::ofstream(jobs_file(folder)) << list;
  const Outcome o = Program(in_project("launcher/run"),
                            {"-n", std::to_string(processes), training_ranks_program(), folder})
                        .wait();
  if (o.code != 0) throw Error("training_ranks ended with {}: {}{}", o.code, o.out, o.err);
  std::vector<History> results;
  for (size_t j = 0; j < jobs.size(); ++j) {
    std::ifstream file(result_file(folder, j), std::ios::binary);
    results.push_back(unpacked(json::from_cbor(file)));
  }
  return results;
}

void run_rank_jobs(const std::string& folder) {
  std::ifstream file(jobs_file(folder));
  const json jobs = json::parse(file);
  const auto world = MpiComm::world();
  // All groups are made at the start, so that a process that has finished a job need not wait for
  // the others before its next one.
  std::vector<std::pair<size_t, std::unique_ptr<MpiComm>>> mine;
  for (size_t j = 0; j < jobs.size();) {
    int taken = 0, own = -1;  // concurrent jobs, until too few processes are left for the next
    for (; j < jobs.size(); ++j) {
      const int ranks = jobs[j]["ranks"];
      WEFT_CHECK(ranks <= world->size(), "{} ranks, of {} processes", ranks, world->size());
      if (taken + ranks > world->size()) break;
      if (world->rank() >= taken && world->rank() < taken + ranks) own = static_cast<int>(j);
      taken += ranks;
    }
    auto ranks = world->split(own, world->rank(), "job");
    if (ranks != nullptr) mine.emplace_back(static_cast<size_t>(own), std::move(ranks));
  }
  for (const auto& [job, ranks] : mine) {
    const auto text = jobs[job]["config"].get<std::string>();
    const std::vector<uint8_t> result = json::to_cbor(packed(train_as(text, *ranks)));
    if (ranks->rank() > 0) continue;
    std::ofstream(result_file(folder, job), std::ios::binary)
        .write(reinterpret_cast<const char*>(result.data()),
               static_cast<std::streamsize>(result.size()));
  }
}

}  // namespace weft::test
