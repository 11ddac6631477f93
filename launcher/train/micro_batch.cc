#include "launcher/train/micro_batch.h"

#include <algorithm>

#include "core/host_access.h"
#include "parallel/layout/layout.h"

namespace weft {
namespace {

Tensor picked(Exec& exec, const Tensor& from, const std::vector<MicroBatch::Run>& runs) {
  int64_t count = 0;
  for (const auto& run : runs) count += run.count;
  const Tensor out = exec.empty({count}, DType::kI32);
  int32_t* to = host<int32_t>(out);
  for (const auto& run : runs) {
    to = std::copy_n(host<int32_t>(from) + run.begin, run.count, to);
  }
  return out;
}

// Of tokens in `runs`, those from `begin` to `end`.
std::vector<MicroBatch::Run> part_of(const std::vector<MicroBatch::Run>& runs, IndexRange part) {
  std::vector<MicroBatch::Run> out;
  int64_t at = 0;
  for (const auto& run : runs) {
    const int64_t from = std::max(part.begin, at), to = std::min(part.end, at + run.count);
    if (from < to) out.push_back({run.begin + from - at, to - from});
    at += run.count;
  }
  return out;
}

}  // namespace

MicroBatch micro_batch_of(Exec& exec, const Batch& batch, const BatchRows& rows,
                          const TokenRanks& ranks) {
  const int64_t begin = rows.first * rows.length, count = rows.count * rows.length;
  std::vector<int32_t> documents = documents_between(batch.documents, begin, begin + count);
  MicroBatch out;
  if (ranks.sequence.size() == 1) {
    out.sequence = make_sequence(std::move(documents));
    out.runs = {{begin, count}};
    out.tokens = batch.tokens.slice(begin, count);
    out.targets = batch.targets.slice(begin, count);
  } else {
    out.sequence = make_sequence(std::move(documents), rows.count, ranks.sequence, ranks.travel);
    const Sequence::Span span = out.sequence.spans[static_cast<size_t>(ranks.sequence.rank())];
    for (int64_t row = 0; row < rows.count; ++row) {
      out.runs.push_back({begin + row * rows.length + span.begin, span.end - span.begin});
    }
    out.tokens = picked(exec, batch.tokens, out.runs);
    out.targets = picked(exec, batch.targets, out.runs);
  }
  const IndexRange mine =
      even_part(out.tokens.elements(), ranks.tensor.rank(), ranks.tensor.size());
  out.runs = part_of(out.runs, mine);
  out.first_token = mine.begin;
  return out;
}

int64_t count_targets(const Batch& batch, int64_t tokens) {
  const int32_t* targets = host<int32_t>(batch.targets);
  return std::count_if(targets, targets + tokens, [](int32_t target) { return target >= 0; });
}

}  // namespace weft
