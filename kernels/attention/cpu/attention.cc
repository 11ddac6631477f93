#include "kernels/attention/cpu/attention.h"

#include <algorithm>
#include <vector>

#include "core/host_access.h"
#include "kernels/attention/cpu/attention_few.h"
#include "kernels/attention/cpu/forgetting.h"
#include "kernels/attention/cpu/isa/attention.h"
#include "kernels/checks.h"

namespace weft::kernels::cpu {
namespace {

AttentionTask task_of(const Attention& in, const AttentionRange& range, int64_t head) {
  const int64_t kv_head = head / (in.heads / in.kv_heads);
  AttentionTask task;
  task.q = tile::head_of(in.q, range.queries, head, in.key);
  task.k = tile::head_of(in.k, range.seen(), kv_head, in.key);
  task.v = tile::head_of(in.v, range.seen(), kv_head, in.value);
  task.scale = in.scale;
  task.window = in.window;
  task.count = range.queries.count;
  task.start = range.start;
  return task;
}

// Blocks of queries of all documents that have enough for one, the last (and longest) rows of a
// document first, so that the threads end together.
struct Block {
  int64_t document;  // its number
  AttentionRange range;
  int64_t begin, count;  // among the document's queries
};
std::vector<Block> query_blocks(const Attention& in, int64_t length) {
  std::vector<Block> blocks;
  for (int64_t d = 0; d < documents_of(in); ++d) {
    const AttentionRange range = range_of(in, d);
    const int64_t queries = range.queries.count;
    if (has_few_queries(range)) continue;
    for (int64_t begin = (queries - 1) / length * length; begin >= 0; begin -= length) {
      blocks.push_back({d, range, begin, std::min(length, queries - begin)});
    }
  }
  return blocks;
}

Tensor thread_scratch(Exec& exec, int64_t floats) {
  return exec.scratch({exec.threads.size(), (floats + 15) / 16 * 16});
}

// Backward takes a head of a document in several parts, which deal out its blocks of queries, where
// there is little else to do at the same time. By shapes alone, so results do not depend on the
// threads.
int64_t parts_of(const Attention& in) {
  constexpr int64_t kEnoughItems = 4, kLong = 2048, kParts = 4;
  return documents_of(in) * in.heads < kEnoughItems && in.q.rows() >= kLong ? kParts : 1;
}

void clear(const tile::Out& sums) {
  for (int64_t t = 0; t < sums.rows; ++t) {
    std::fill_n(static_cast<float*>(sums.data) + t * sums.stride, sums.columns, 0.0f);
  }
}

}  // namespace

void attention_forward(Exec& exec, const Attention& in, View out, View log_sum_exp,
                       std::span<BlockCount> report) {
  const AttentionTable& table = table_of<AttentionTable>(isa_for(exec.isa, in.q.dtype));
  const Forgetting forgetting(exec, in, {table.query_block, table.key_block});
  if (!report.empty()) forgetting.count_blocks(report);
  const std::vector<Block> blocks = query_blocks(in, table.query_block);
  const Tensor scratch = thread_scratch(exec, table.forward_scratch(in.key, in.value));
  const auto count = static_cast<int64_t>(blocks.size());
  exec.threads.run_on(count * in.heads, [&](int64_t index, int thread) {
    const Block& block = blocks[index % count];
    const int64_t head = index / count;
    AttentionTask task = task_of(in, block.range, head);
    task.begin = block.begin, task.count = block.count;
    task.forgotten = forgetting.sums(block.document, head);
    task.first_blocks = forgetting.first_blocks(block.document, head);
    const AttentionOutputs outputs{tile::head_of(out, block.range.queries, head, in.value),
                                   tile::column_of(log_sum_exp, block.range.queries, head)};
    table.forward(task, outputs, host<float>(scratch) + thread * scratch.shape().back());
  });
  few_queries_forward(exec, in, forgetting, table.key_block, out, log_sum_exp);
}

void attention_backward(Exec& exec, const Attention& in, ConstView out, ConstView log_sum_exp,
                        ConstView d_out, const AttentionGradients& gradients) {
  // Every head (or part of one) sums its own dk and dv (and gradients of the running sums of the
  // gates) in f32; those of a group are then added up in order.
  const AttentionTable& table = table_of<AttentionTable>(isa_for(exec.isa, in.q.dtype));
  const Forgetting forgetting(exec, in, {table.query_block, table.key_block});
  const bool forgets = given(in.log_forget);
  const int64_t parts = parts_of(in), group = parts * (in.heads / in.kv_heads);
  const int64_t keys = in.k.rows();
  const Tensor dk = exec.scratch({keys, in.heads * parts * in.key});
  const Tensor dv = exec.scratch({keys, in.heads * parts * in.value});
  const Tensor d_sums = forgets ? exec.scratch({in.heads * parts, keys}) : Tensor();
  const Tensor scratch = thread_scratch(exec, table.backward_scratch(in.key, in.value));
  exec.threads.run_on(documents_of(in) * in.heads * parts, [&](int64_t index, int thread) {
    const int64_t column = index % (in.heads * parts), head = column / parts;
    const int64_t document = index / (in.heads * parts);
    const AttentionRange range = range_of(in, document);
    AttentionGradientTask g{tile::head_of(out, range.queries, head, in.value),
                            tile::head_of(d_out, range.queries, head, in.value),
                            tile::column_of(log_sum_exp, range.queries, head),
                            tile::head_of(gradients.dq, range.queries, head, in.key),
                            tile::head_of(dk.view(), range.keys, column, in.key),
                            tile::head_of(dv.view(), range.keys, column, in.value),
                            nullptr};
    clear(g.dk);
    clear(g.dv);
    if (range.queries.count == 0) return;
    AttentionTask task = task_of(in, range, head);
    task.forgotten = forgetting.sums(document, head);
    task.first_blocks = forgetting.first_blocks(document, head);
    if (forgets) {
      g.d_forgotten = host<float>(d_sums) + column * keys + range.keys.begin;
      std::fill_n(g.d_forgotten, range.seen().count, 0.0f);
    }
    const int64_t all = range.queries.count, block = parts == 1 ? all : table.query_block;
    for (task.begin = column % parts * block; task.begin < all; task.begin += parts * block) {
      task.count = std::min(block, all - task.begin);
      table.backward(task, g, host<float>(scratch) + thread * scratch.shape().back());
    }
  });
  tile::sum_groups(exec, dk, gradients.dk, group, in.key);
  tile::sum_groups(exec, dv, gradients.dv, group, in.value);
  if (forgets) forgetting_backward(exec, in, d_sums, parts, gradients.d_log_forget);
}

}  // namespace weft::kernels::cpu
