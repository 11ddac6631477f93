#include "kernels/attention/attention.h"

#include <algorithm>
#include <vector>

#include "core/host_access.h"
#include "kernels/attention/attention_few.h"
#include "kernels/attention/cpu/isa/attention.h"
#include "kernels/attention/forgetting.h"

namespace weft::kernels {
namespace {

void check_ranges(const Attention& in) {
  const int64_t documents = documents_of(in), keys = in.k.rows();
  if (!in.key_documents.empty()) {
    WEFT_CHECK(in.key_documents.size() == in.documents.size(),
               "attention: {} offsets of keys, {} of queries", in.key_documents.size(),
               in.documents.size());
    WEFT_CHECK(in.key_documents.front() == 0 && in.key_documents.back() == keys,
               "attention: key offsets must go from 0 to {} keys", keys);
  }
  WEFT_CHECK(in.query_start.empty() || static_cast<int64_t>(in.query_start.size()) == documents,
             "attention: {} first queries of {} documents", in.query_start.size(), documents);
  for (int64_t d = 0; d < documents; ++d) {
    const AttentionRange range = range_of(in, d);
    WEFT_CHECK(range.start >= 0 && range.start + range.queries.count <= range.keys.count,
               "attention: document {} has {} queries from position {} on, but {} keys", d,
               range.queries.count, range.start, range.keys.count);
  }
}

void check_attention(const Attention& in, const ConstView& out, const ConstView& log_sum_exp) {
  const int64_t tokens = in.q.rows(), keys = in.key_documents.empty() ? tokens : in.k.rows();
  tile::check_heads(
      "attention", {in.q, in.k, in.v, in.documents, in.heads, in.kv_heads, in.key, in.value, keys});
  check_ranges(in);
  WEFT_CHECK(in.window >= 0, "attention: a window of {} keys", in.window);
  tile::check_matrix("attention", "out", out, tokens, in.heads * in.value, in.v.dtype);
  tile::check_matrix("attention", "log_sum_exp", log_sum_exp, tokens, in.heads, DType::kF32);
  if (in.log_forget.data != nullptr) {
    tile::check_matrix("attention", "log_forget", in.log_forget, keys, in.heads, DType::kF32);
  }
  if (!in.pruning.on) return;
  WEFT_CHECK(in.log_forget.data != nullptr, "attention: pruning without log_forget has no measure");
  WEFT_CHECK(in.pruning.log_epsilon < 0, "attention: pruning with log epsilon {}, not below 0",
             in.pruning.log_epsilon);
  WEFT_CHECK(in.pruning.bound.data == nullptr || in.pruning.bound.shape.elements() == in.heads,
             "attention: {} bounds of scores for {} heads", in.pruning.bound.shape.elements(),
             in.heads);
}

void check_gradients(const Attention& in, const ConstView& d_out,
                     const AttentionGradients& gradients) {
  const auto check = [](const char* name, const ConstView& x, int64_t rows, int64_t width,
                        DType type) {
    tile::check_matrix("attention", name, x, rows, width, type);
  };
  const int64_t tokens = in.q.rows(), keys = in.k.rows();
  check("d_out", d_out, tokens, in.heads * in.value, in.v.dtype);
  check("dq", gradients.dq, tokens, in.heads * in.key, in.q.dtype);
  check("dk", gradients.dk, keys, in.kv_heads * in.key, in.k.dtype);
  check("dv", gradients.dv, keys, in.kv_heads * in.value, in.v.dtype);
  const bool forgets = in.log_forget.data != nullptr;
  WEFT_CHECK(forgets == (gradients.d_log_forget.data != nullptr),
             "attention: log_forget and d_log_forget are given together");
  if (forgets) check("d_log_forget", gradients.d_log_forget, keys, in.heads, DType::kF32);
}

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
  check_attention(in, out, log_sum_exp);
  WEFT_CHECK(report.empty() || static_cast<int64_t>(report.size()) == in.heads,
             "attention: a report of {} entries for {} heads", report.size(), in.heads);
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
  check_attention(in, out, log_sum_exp);
  check_gradients(in, d_out, gradients);

  // Every head (or part of one) sums its own dk and dv (and gradients of the running sums of the
  // gates) in f32; those of a group are then added up in order.
  const AttentionTable& table = table_of<AttentionTable>(isa_for(exec.isa, in.q.dtype));
  const Forgetting forgetting(exec, in, {table.query_block, table.key_block});
  const bool forgets = in.log_forget.data != nullptr;
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

}  // namespace weft::kernels
