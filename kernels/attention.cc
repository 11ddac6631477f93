#include "kernels/attention.h"

#include <algorithm>
#include <vector>

#include "kernels/cpu/attention.h"
#include "kernels/forgetting.h"
#include "kernels/tile/heads.h"

namespace weft::kernels {
namespace {

const AttentionTable& table_of(const Exec& exec) {
  return by_isa(exec.isa, [](auto isa) -> const AttentionTable& { return attention_table(isa); });
}

void check_attention(const Attention& in, const ConstView& out, const ConstView& log_sum_exp) {
  tile::check_heads("attention",
                    {in.q, in.k, in.v, in.documents, in.heads, in.kv_heads, in.key, in.value});
  WEFT_CHECK(in.key_documents.empty() && in.query_start.empty(),
             "attention: no key ranges of their own yet");
  WEFT_CHECK(in.window >= 0, "attention: a window of {} keys", in.window);
  tile::check_matrix("attention", "out", out, in.q.rows(), in.heads * in.value, in.v.dtype);
  tile::check_matrix("attention", "log_sum_exp", log_sum_exp, in.q.rows(), in.heads, DType::kF32);
  if (in.log_forget.data != nullptr) {
    tile::check_matrix("attention", "log_forget", in.log_forget, in.q.rows(), in.heads,
                       DType::kF32);
  }
  if (!in.pruning.on) return;
  WEFT_CHECK(in.log_forget.data != nullptr, "attention: pruning without log_forget has no measure");
  WEFT_CHECK(in.pruning.log_epsilon < 0, "attention: pruning with log epsilon {}, not below 0",
             in.pruning.log_epsilon);
  WEFT_CHECK(in.pruning.bound.data == nullptr || in.pruning.bound.shape.elements() == in.heads,
             "attention: {} bounds of scores for {} heads", in.pruning.bound.shape.elements(),
             in.heads);
}

AttentionTask task_of(const Attention& in, const tile::Tokens& document, int64_t head) {
  const int64_t kv_head = head / (in.heads / in.kv_heads);
  AttentionTask task;
  task.q = tile::head_of(in.q, document, head, in.key);
  task.k = tile::head_of(in.k, document, kv_head, in.key);
  task.v = tile::head_of(in.v, document, kv_head, in.value);
  task.scale = in.scale;
  task.window = in.window;
  task.count = document.count;
  return task;
}

// Blocks of queries of all documents, the last (and longest) rows of a document first, so that the
// threads end together.
struct Block {
  int64_t number;  // of the document
  tile::Tokens document;
  int64_t begin, count;  // in the document
};
std::vector<Block> query_blocks(std::span<const int32_t> documents, int64_t length) {
  std::vector<Block> blocks;
  for (size_t d = 0; d + 1 < documents.size(); ++d) {
    const tile::Tokens document{documents[d], documents[d + 1] - documents[d]};
    for (int64_t begin = (document.count - 1) / length * length; begin >= 0; begin -= length) {
      if (document.count == 0) break;
      blocks.push_back(
          {static_cast<int64_t>(d), document, begin, std::min(length, document.count - begin)});
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
  const auto documents = static_cast<int64_t>(in.documents.size()) - 1;
  return documents * in.heads < kEnoughItems && in.q.rows() >= kLong ? kParts : 1;
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
  const AttentionTable& table = table_of(exec);
  const Forgetting forgetting(exec, in, {table.query_block, table.key_block});
  if (!report.empty()) forgetting.count_blocks(report);
  const std::vector<Block> blocks = query_blocks(in.documents, table.query_block);
  const Tensor scratch = thread_scratch(exec, table.forward_scratch(in.key, in.value));
  const auto count = static_cast<int64_t>(blocks.size());
  exec.threads.run_on(count * in.heads, [&](int64_t index, int thread) {
    const Block& block = blocks[index % count];
    const int64_t head = index / count;
    AttentionTask task = task_of(in, block.document, head);
    task.begin = block.begin, task.count = block.count;
    task.forgotten = forgetting.sums(block.number, head);
    task.first_blocks = forgetting.first_blocks(block.number, head);
    const AttentionOutputs outputs{tile::head_of(out, block.document, head, in.value),
                                   tile::column_of(log_sum_exp, block.document, head)};
    table.forward(task, outputs, scratch.data<float>() + thread * scratch.shape().back());
  });
}

void attention_backward(Exec& exec, const Attention& in, ConstView out, ConstView log_sum_exp,
                        ConstView d_out, const AttentionGradients& gradients) {
  const int64_t tokens = in.q.rows();
  check_attention(in, out, log_sum_exp);
  tile::check_matrix("attention", "d_out", d_out, tokens, in.heads * in.value, in.v.dtype);
  tile::check_matrix("attention", "dq", gradients.dq, tokens, in.heads * in.key, in.q.dtype);
  tile::check_matrix("attention", "dk", gradients.dk, tokens, in.kv_heads * in.key, in.k.dtype);
  tile::check_matrix("attention", "dv", gradients.dv, tokens, in.kv_heads * in.value, in.v.dtype);

  const bool forgets = in.log_forget.data != nullptr;
  WEFT_CHECK(forgets == (gradients.d_log_forget.data != nullptr),
             "attention: log_forget and d_log_forget are given together");

  // Every head (or part of one) sums its own dk and dv (and gradients of the running sums of the
  // gates) in f32; those of a group are then added up in order.
  const AttentionTable& table = table_of(exec);
  const Forgetting forgetting(exec, in, {table.query_block, table.key_block});
  const auto documents = static_cast<int64_t>(in.documents.size()) - 1;
  const int64_t parts = parts_of(in), group = parts * (in.heads / in.kv_heads);
  const Tensor dk = exec.scratch({tokens, in.heads * parts * in.key});
  const Tensor dv = exec.scratch({tokens, in.heads * parts * in.value});
  const Tensor d_sums = forgets ? exec.scratch({in.heads * parts, tokens}) : Tensor();
  const Tensor scratch = thread_scratch(exec, table.backward_scratch(in.key, in.value));
  exec.threads.run_on(documents * in.heads * parts, [&](int64_t index, int thread) {
    const int64_t column = index % (in.heads * parts), head = column / parts;
    const int64_t document = index / (in.heads * parts), begin = in.documents[document];
    const tile::Tokens all{begin, in.documents[document + 1] - begin};
    if (all.count == 0) return;
    AttentionGradientTask g{tile::head_of(out, all, head, in.value),
                            tile::head_of(d_out, all, head, in.value),
                            tile::column_of(log_sum_exp, all, head),
                            tile::head_of(gradients.dq, all, head, in.key),
                            tile::head_of(dk.view(), all, column, in.key),
                            tile::head_of(dv.view(), all, column, in.value),
                            nullptr};
    clear(g.dk);
    clear(g.dv);
    AttentionTask task = task_of(in, all, head);
    task.forgotten = forgetting.sums(document, head);
    task.first_blocks = forgetting.first_blocks(document, head);
    if (forgets) {
      g.d_forgotten = d_sums.data<float>() + column * tokens + begin;
      std::fill_n(g.d_forgotten, all.count, 0.0f);
    }
    const int64_t block = parts == 1 ? all.count : table.query_block;
    for (task.begin = column % parts * block; task.begin < all.count; task.begin += parts * block) {
      task.count = std::min(block, all.count - task.begin);
      table.backward(task, g, scratch.data<float>() + thread * scratch.shape().back());
    }
  });
  tile::sum_groups(exec, dk, gradients.dk, group, in.key);
  tile::sum_groups(exec, dv, gradients.dv, group, in.value);
  if (forgets) forgetting_backward(exec, in, d_sums, parts, gradients.d_log_forget);
}

}  // namespace weft::kernels
