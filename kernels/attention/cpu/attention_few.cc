#include "kernels/attention/cpu/attention_few.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/host_access.h"
#include "kernels/attention/cpu/isa/attention_few.h"

namespace weft::kernels::cpu {
namespace {

constexpr int64_t kChunk = 512;  // keys of a task: some 100 us beside the cost of handing it out

// A document, in which the chunks [first, first + count) of keys can be seen.
struct Few {
  int64_t document;
  AttentionRange range;
  int64_t first, count;
  int64_t task;      // number of its first task; a task is a chunk and kv head
  int64_t partials;  // floats before those of its first task
};

class FewQueries {
 public:
  FewQueries(const Attention& in, const Forgetting& forgetting, int64_t key_block)
      : in_(in), group_(in.heads / in.kv_heads) {
    for (int64_t d = 0; d < documents_of(in); ++d) {
      const AttentionRange range = range_of(in, d);
      if (range.queries.count == 0 || !has_few_queries(range)) continue;
      int64_t oldest = range.seen().count;
      for (int64_t h = 0; h < in.heads; ++h) {
        const int32_t* pruned = forgetting.first_blocks(d, h);
        heads_.push_back({forgetting.sums(d, h), pruned == nullptr ? 0 : *pruned * key_block});
        oldest = std::min(oldest, heads_.back().first);
      }
      if (in.window > 0) oldest = std::max(oldest, range.start - in.window + 1);
      const int64_t first = oldest / kChunk;
      const Few few{d,      range,  first, (range.seen().count + kChunk - 1) / kChunk - first,
                    tasks_, floats_};
      floats_ += few.count * in.kv_heads * partial_of(few);
      tasks_ += few.count * in.kv_heads;
      most_queries_ = std::max(most_queries_, range.queries.count);
      documents_.push_back(few);
    }
  }

  int64_t tasks() const { return tasks_; }
  int64_t floats() const { return floats_; }  // of all partials
  int64_t most_queries() const { return most_queries_; }
  int64_t documents() const { return static_cast<int64_t>(documents_.size()); }

  void run(const FewQueriesTable& table, int64_t number, float* partials, float* scratch) const {
    const auto after = [](int64_t n, const Few& few) { return n < few.task; };
    const auto at = std::upper_bound(documents_.begin(), documents_.end(), number, after) - 1;
    const Few& few = *at;
    const int64_t index = number - few.task, kv_head = index / few.count;
    FewQueriesTask task;
    task.q = tile::head_of(in_.q, few.range.queries, kv_head, group_ * in_.key);
    task.k = tile::head_of(in_.k, few.range.seen(), kv_head, in_.key);
    task.v = tile::head_of(in_.v, few.range.seen(), kv_head, in_.value);
    task.scale = in_.scale;
    task.window = in_.window;
    task.start = few.range.start;
    task.first = (few.first + index % few.count) * kChunk;
    task.end = std::min(task.first + kChunk, few.range.seen().count);
    task.heads = heads_.data() + (at - documents_.begin()) * in_.heads + kv_head * group_;
    task.group = group_;
    table.forward(task, partials + few.partials + index * partial_of(few), scratch);
  }

  // Chunks in order, all heads of a document.
  void merge(int64_t number, const float* partials, View out, View log_sum_exp) const {
    const Few& few = documents_[number];
    for (int64_t i = 0; i < few.range.queries.count; ++i) {
      for (int64_t h = 0; h < in_.heads; ++h) {
        const float* first = partials + few.partials + h / group_ * few.count * partial_of(few) +
                             (i * group_ + h % group_) * (in_.value + 2);
        const int64_t row = few.range.queries.begin + i;
        const View to = out.row_range(row, 1).columns(h * in_.value, in_.value);
        host<float>(log_sum_exp)[row * log_sum_exp.row_stride + h] = merge_row(few, first, to);
      }
    }
  }

 private:
  int64_t partial_of(const Few& few) const {
    return few.range.queries.count * group_ * (in_.value + 2);
  }

  float merge_row(const Few& few, const float* first, const View& to) const {
    const int64_t step = partial_of(few), value = in_.value;
    float largest = first[value], total = 0;
    for (int64_t c = 1; c < few.count; ++c) largest = std::max(largest, first[c * step + value]);
    std::vector<float> sum(static_cast<size_t>(value));
    for (int64_t c = 0; c < few.count; ++c) {
      const float* partial = first + c * step;
      const float weight = std::exp(partial[value] - largest);
      total += weight * partial[value + 1];
      for (int64_t j = 0; j < value; ++j) sum[j] += weight * partial[j];
    }
    for (int64_t j = 0; j < value; ++j) {
      if (to.dtype == DType::kF32) {
        host<float>(to)[j] = sum[j] / total;
      } else {
        host<bf16>(to)[j] = to_bf16(sum[j] / total);
      }
    }
    return largest + std::log(total);
  }

  const Attention& in_;
  int64_t group_;
  std::vector<Few> documents_;
  std::vector<FewQueriesHead> heads_;  // of every document of documents_
  int64_t tasks_ = 0, floats_ = 0, most_queries_ = 0;
};

}  // namespace

void few_queries_forward(Exec& exec, const Attention& in, const Forgetting& forgetting,
                         int64_t key_block, View out, View log_sum_exp) {
  const FewQueries few(in, forgetting, key_block);
  if (few.tasks() == 0) return;
  const FewQueriesTable& table = table_of<FewQueriesTable>(exec.isa);
  const Tensor partials = exec.scratch({few.floats()});
  const int64_t floats = table.scratch(few.most_queries(), in.heads / in.kv_heads, in.key);
  const Tensor scratch = exec.scratch({exec.threads.size(), floats});
  exec.threads.run_on(few.tasks(), [&](int64_t task, int thread) {
    few.run(table, task, host<float>(partials), host<float>(scratch) + thread * floats);
  });
  exec.threads.run(few.documents(), [&](int64_t document) {
    few.merge(document, host<float>(partials), out, log_sum_exp);
  });
}

}  // namespace weft::kernels::cpu
