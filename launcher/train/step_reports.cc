#include "launcher/train/step_reports.h"

#include <algorithm>
#include <bit>

namespace weft {
namespace {

// A report as numbers that travel: losses, entropy, margin, dropped, first bad token, counts.
void append(const MoeReport& report, std::vector<int64_t>& out) {
  for (const double x : {report.aux, report.z, report.router_entropy, report.margin}) {
    out.push_back(std::bit_cast<int64_t>(x));
  }
  out.push_back(report.dropped);
  out.push_back(report.bad_token);
  out.insert(out.end(), report.counts.begin(), report.counts.end());
}

const int64_t* add(const int64_t* from, MoeReport& total) {
  for (double* sum : {&total.aux, &total.z, &total.router_entropy}) {
    *sum += std::bit_cast<double>(*from++);
  }
  total.margin = std::min(total.margin, std::bit_cast<double>(*from++));
  total.dropped += *from++;
  const int64_t bad_token = *from++;
  if (total.bad_token < 0) total.bad_token = bad_token;  // ranks stand in the order of tokens
  for (int64_t& count : total.counts) count += *from++;
  return from;
}

MoeReport empty_like(const MoeReport& report) {
  return {.layer = report.layer,
          .memories = report.memories,
          .aux_weight = report.aux_weight,
          .counts = std::vector<int64_t>(report.counts.size())};
}

// Calls read(from) for every entry of every rank's list, in rank order; it returns where the next
// one starts.
template <class Read>
void gather_lists(HostGroup& ranks, std::vector<int64_t> mine, Read&& read) {
  const int64_t length = std::ssize(mine);
  const std::vector<int64_t> lengths = ranks.gather(std::span<const int64_t>(&length, 1));
  const int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  if (longest == 0) return;
  mine.resize(static_cast<size_t>(longest));
  const std::vector<int64_t> all = ranks.gather(mine);
  for (int64_t r = 0; r < std::ssize(lengths); ++r) {
    const int64_t* from = all.data() + r * longest;
    const int64_t* end = from + lengths[static_cast<size_t>(r)];
    while (from < end) from = read(from);
  }
}

// A layer's reports come from one rank, in their order.
template <class Report>
void sort_by_layer(std::vector<Report>& step) {
  std::stable_sort(step.begin(), step.end(),
                   [](const Report& a, const Report& b) { return a.layer < b.layer; });
}

}  // namespace

void add_reports(const std::vector<MoeReport>& reports, double share, int64_t begin,
                 std::vector<MoeReport>& step) {
  if (step.empty()) {
    for (const MoeReport& report : reports) step.push_back(empty_like(report));
  }
  for (size_t i = 0; i < reports.size(); ++i) {
    const MoeReport& report = reports[i];
    MoeReport& total = step[i];
    total.aux += share * report.aux;
    total.z += share * report.z;
    total.router_entropy += share * report.router_entropy;
    total.margin = std::min(total.margin, report.margin);
    total.dropped += report.dropped;
    for (size_t e = 0; e < report.counts.size(); ++e) total.counts[e] += report.counts[e];
    if (total.bad_token < 0 && report.bad_token >= 0) total.bad_token = begin + report.bad_token;
  }
}

void sum_reports(HostGroup& ranks, std::vector<MoeReport>& step) {
  if (ranks.size() == 1 || step.empty()) return;
  std::vector<int64_t> mine;
  for (const MoeReport& report : step) append(report, mine);
  const std::vector<int64_t> all = ranks.gather(mine);
  for (MoeReport& report : step) report = empty_like(report);
  const int64_t* from = all.data();
  for (int r = 0; r < ranks.size(); ++r) {
    for (MoeReport& total : step) from = add(from, total);
  }
}

void gather_reports(HostGroup& stages, std::vector<MoeReport>& step) {
  if (stages.size() == 1) return;
  std::vector<int64_t> mine;
  for (const MoeReport& report : step) {
    mine.insert(mine.end(), {report.layer, report.memories ? 1 : 0,
                             std::bit_cast<int64_t>(report.aux_weight), std::ssize(report.counts)});
    append(report, mine);
  }
  step.clear();
  gather_lists(stages, mine, [&](const int64_t* from) {
    MoeReport report{.layer = from[0],
                     .memories = from[1] != 0,
                     .aux_weight = std::bit_cast<double>(from[2]),
                     .counts = std::vector<int64_t>(static_cast<size_t>(from[3]))};
    from = add(from + 4, report);
    step.push_back(std::move(report));
    return from;
  });
  sort_by_layer(step);
}

void gather_pruning(HostGroup& stages, std::vector<PruningReport>& step) {
  if (stages.size() == 1) return;
  std::vector<int64_t> mine;
  for (const PruningReport& report : step) {
    mine.insert(mine.end(), {report.layer, std::ssize(report.heads)});
    for (const auto& head : report.heads) mine.insert(mine.end(), {head.kept, head.causal});
  }
  step.clear();
  gather_lists(stages, mine, [&](const int64_t* from) {
    PruningReport report{.layer = *from++};
    report.heads.resize(static_cast<size_t>(*from++));
    for (auto& head : report.heads) head.kept = *from++, head.causal = *from++;
    step.push_back(std::move(report));
    return from;
  });
  sort_by_layer(step);
}

void add_pruning(const std::vector<PruningReport>& reports, std::vector<PruningReport>& step) {
  if (step.empty()) {
    step = reports;
    return;
  }
  for (size_t i = 0; i < reports.size(); ++i) {
    for (size_t h = 0; h < reports[i].heads.size(); ++h) {
      step[i].heads[h].kept += reports[i].heads[h].kept;
      step[i].heads[h].causal += reports[i].heads[h].causal;
    }
  }
}

void sum_pruning(HostGroup& ranks, std::vector<PruningReport>& step) {
  if (ranks.size() == 1 || step.empty()) return;
  std::vector<int64_t> mine;
  for (const PruningReport& report : step) {
    for (const auto& head : report.heads) mine.insert(mine.end(), {head.kept, head.causal});
  }
  const std::vector<int64_t> all = ranks.gather(mine);
  size_t at = 0;
  for (PruningReport& report : step) {
    for (auto& head : report.heads) {
      head = {};
      for (int r = 0; r < ranks.size(); ++r) {
        const size_t from = static_cast<size_t>(r) * mine.size() + at;
        head.kept += all[from];
        head.causal += all[from + 1];
      }
      at += 2;
    }
  }
}

}  // namespace weft
