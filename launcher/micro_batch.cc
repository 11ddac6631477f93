#include "launcher/micro_batch.h"

#include <algorithm>

namespace weft {
namespace {

Tensor picked(Exec& exec, const Tensor& from, const std::vector<MicroBatch::Run>& runs) {
  int64_t count = 0;
  for (const auto& run : runs) count += run.count;
  const Tensor out = exec.empty({count}, DType::kI32);
  int32_t* to = out.data<int32_t>();
  for (const auto& run : runs) {
    to = std::copy_n(from.data<int32_t>() + run.begin, run.count, to);
  }
  return out;
}

}  // namespace

MicroBatch micro_batch_of(Exec& exec, const Batch& batch, const BatchRows& rows,
                          Communicator& sequence_ranks) {
  const int64_t begin = rows.first * rows.length, count = rows.count * rows.length;
  const std::vector<int32_t> documents = documents_between(batch.documents, begin, begin + count);
  if (sequence_ranks.size() == 1) {
    return {batch.tokens.slice(begin, count),
            batch.targets.slice(begin, count),
            make_sequence(exec, documents),
            {{begin, count}}};
  }
  MicroBatch out;
  out.sequence = make_sequence(exec, documents, rows.count, sequence_ranks);
  const Sequence::Span span = out.sequence.spans[static_cast<size_t>(sequence_ranks.rank())];
  for (int64_t row = 0; row < rows.count; ++row) {
    out.runs.push_back({begin + row * rows.length + span.begin, span.end - span.begin});
  }
  out.tokens = picked(exec, batch.tokens, out.runs);
  out.targets = picked(exec, batch.targets, out.runs);
  return out;
}

}  // namespace weft
