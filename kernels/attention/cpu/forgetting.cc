#include "kernels/attention/cpu/forgetting.h"

#include <algorithm>
#include <cmath>

#include "core/host_access.h"
#include "kernels/attention/cpu/isa/attention.h"
#include "kernels/checks.h"

namespace weft::kernels::cpu {
namespace {

int64_t blocks_in(int64_t tokens, int64_t block) { return (tokens + block - 1) / block; }

}  // namespace

void score_bounds(Exec& exec, const Attention& in, View bounds) {
  const AttentionTable& table = table_of<AttentionTable>(exec.isa);
  const int64_t documents = documents_of(in), group = in.heads / in.kv_heads;
  const Tensor of_keys = exec.scratch({documents, in.kv_heads});
  exec.threads.run(documents * in.kv_heads, [&](int64_t index) {
    const tile::Tokens seen = range_of(in, index / in.kv_heads).seen();
    host<float>(of_keys)[index] =
        table.largest_norm(tile::head_of(in.k, seen, index % in.kv_heads, in.key));
  });
  exec.threads.run(documents * in.heads, [&](int64_t index) {
    const int64_t document = index / in.heads, head = index % in.heads;
    const float of_queries =
        table.largest_norm(tile::head_of(in.q, range_of(in, document).queries, head, in.key));
    host<float>(bounds)[document * bounds.row_stride + head] =
        std::abs(in.scale) * of_queries *
        host<float>(of_keys)[document * in.kv_heads + head / group];
  });
}

Forgetting::Forgetting(Exec& exec, const Attention& in, const BlockShape& block)
    : in_(in), block_(block) {
  const int64_t documents = documents_of(in);
  offsets_.push_back(0);
  for (int64_t d = 0; d < documents; ++d) {
    offsets_.push_back(offsets_.back() + blocks_in(range_of(in, d).queries.count, block.queries));
  }
  if (nothing_in(in.log_forget)) return;
  sums_ = exec.scratch({in.heads, in.k.rows()}, DType::kI64);
  Tensor bounds;
  if (in.pruning.on) {
    first_blocks_ = exec.scratch({in.heads, offsets_.back()}, DType::kI32);
    if (nothing_in(in.pruning.bound)) {
      bounds = exec.scratch({documents, in.heads});
      cpu::score_bounds(exec, in, bounds);
    }
  }
  exec.threads.run(documents * in.heads, [&](int64_t index) {
    const int64_t d = index / in.heads, head = index % in.heads;
    sum(d, head);
    if (!in.pruning.on) return;
    const float bound =
        bounds.defined() ? host<float>(bounds)[index] : host<float>(in.pruning.bound)[head];
    const AttentionRange range = range_of(in, d);
    const int64_t seen = range.seen().count;
    find_first_blocks(
        {sums_of(d, head), static_cast<size_t>(seen)},
        pruning_threshold(bound, seen, in.pruning.log_epsilon), block,
        {first_blocks_of(d, head), static_cast<size_t>(offsets_[d + 1] - offsets_[d])},
        range.start);
  });
}

double* Forgetting::sums_of(int64_t document, int64_t head) const {
  return static_cast<double*>(host_bytes(sums_)) + head * in_.k.rows() +
         range_of(in_, document).keys.begin;
}
int32_t* Forgetting::first_blocks_of(int64_t document, int64_t head) const {
  return host<int32_t>(first_blocks_) + head * offsets_.back() + offsets_[document];
}
const double* Forgetting::sums(int64_t document, int64_t head) const {
  return sums_.defined() ? sums_of(document, head) : nullptr;
}
const int32_t* Forgetting::first_blocks(int64_t document, int64_t head) const {
  return first_blocks_.defined() ? first_blocks_of(document, head) : nullptr;
}

// In double: after thousands of tokens the sums are large and their differences small.
void Forgetting::sum(int64_t document, int64_t head) const {
  const tile::Tokens seen = range_of(in_, document).seen();
  const tile::InVector gates = tile::column_of(in_.log_forget, seen, head);
  double* sums = sums_of(document, head);
  double total = 0;
  for (int64_t t = 0; t < seen.count; ++t) sums[t] = total += gates.data[t * gates.stride];
}

void Forgetting::count_blocks(std::span<BlockCount> report) const {
  for (int64_t head = 0; head < in_.heads; ++head) {
    BlockCount& count = report[head] = {};
    for (int64_t d = 0; d < documents_of(in_); ++d) {
      const int32_t* pruned = first_blocks(d, head);
      const AttentionRange range = range_of(in_, d);
      for (int64_t begin = 0; begin < range.queries.count; begin += block_.queries) {
        const int64_t position = range.start + begin;
        const int64_t end =
            blocks_in(std::min(range.seen().count, position + block_.queries), block_.keys);
        const int64_t oldest =
            in_.window == 0 ? 0 : std::max<int64_t>(0, position - in_.window + 1);
        const int64_t first = oldest / block_.keys;
        count.causal += end - first;
        count.kept +=
            end -
            (pruned == nullptr ? first : std::max<int64_t>(first, pruned[begin / block_.queries]));
      }
    }
  }
}

void forgetting_backward(Exec& exec, const Attention& in, ConstView d_sums, int64_t parts,
                         View d_log_forget) {
  exec.threads.run(documents_of(in) * in.heads, [&](int64_t index) {
    const int64_t head = index % in.heads;
    const AttentionRange range = range_of(in, index / in.heads);
    const tile::OutVector to = tile::column_of(d_log_forget, range.keys, head);
    const int64_t seen = range.seen().count;
    for (int64_t t = seen; t < range.keys.count; ++t) to.data[t * to.stride] = 0.0f;
    double total = 0;
    for (int64_t t = seen - 1; t >= 0; --t) {
      for (int64_t part = 0; part < parts; ++part) {
        total +=
            host<float>(d_sums)[(head * parts + part) * d_sums.row_stride + range.keys.begin + t];
      }
      to.data[t * to.stride] = t == 0 ? 0.0f : static_cast<float>(total);
    }
  });
}

}  // namespace weft::kernels::cpu
