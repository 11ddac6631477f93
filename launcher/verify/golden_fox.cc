// Golden cases of forgetting attention: outputs, gradients of the gates, and where pruning begins.
#include <cmath>

#include "core/host_access.h"
#include "kernels/attention/attention.h"
#include "kernels/attention/forgetting.h"
#include "launcher/verify/golden.h"

namespace weft {
namespace {

// Threshold and boundaries of the file's own block sizes, from its inputs in f32 (bf16 would move
// the threshold).
void check_pruning(Exec& exec, const GoldenCase& golden, kernels::Attention in,
                   Comparison& compare) {
  const kernels::BlockShape block{golden.config.at("rows").get<int64_t>(),
                                  golden.config.at("cols").get<int64_t>()};
  const int64_t tokens = in.q.rows();
  const auto in_f32 = [&](const char* key) {
    const Tensor t = golden.read(exec, key, DType::kF32);
    return t.reshaped({tokens, t.elements() / tokens});
  };
  const Tensor q = in_f32("in.q"), k = in_f32("in.k"), v = in_f32("in.v");
  in.q = q, in.k = k, in.v = v;
  const Tensor bounds = exec.empty({1, in.heads}), threshold = exec.empty({in.heads});
  kernels::score_bounds(exec, in, bounds);
  const int64_t down = (tokens + block.queries - 1) / block.queries;
  const int64_t across = (tokens + block.keys - 1) / block.keys;
  const Tensor start = exec.empty({in.heads, down}, DType::kI32);
  const Tensor end = exec.zeros({in.heads, across}, DType::kI32);
  for (int64_t h = 0; h < in.heads; ++h) {
    const double delta = kernels::pruning_threshold(host<float>(bounds)[h], tokens,
                                                    golden.config.at("log_eps").get<double>());
    host<float>(threshold)[h] = static_cast<float>(delta);
    std::vector<double> sums;
    double sum = 0;
    for (int64_t t = 0; t < tokens; ++t) {
      sums.push_back(sum += host<float>(in.log_forget)[t * in.heads + h]);
    }
    int32_t* first = host<int32_t>(start) + h * down;
    kernels::find_first_blocks(sums, delta, block, {first, static_cast<size_t>(down)});
    // End of the range of query blocks that use a block of keys.
    for (int64_t i = 0; i < down; ++i) {
      for (int64_t j = first[i]; j < across; ++j) {
        host<int32_t>(end)[h * across + j] = static_cast<int32_t>(i + 1);
      }
    }
  }
  compare.check(exec, "out.threshold", threshold);
  compare.check(exec, "out.start_block", start);
  compare.check(exec, "out.end_block", end);
}

}  // namespace

void run_fox_core(Exec& exec, const GoldenCase& golden, Comparison& compare) {
  const Shape &q = golden.shape("in.q"), &v = golden.shape("in.v"), &k = golden.shape("in.k");
  const Tensor tq = golden.rows(exec, "in.q"), tk = golden.rows(exec, "in.k"),
               tv = golden.rows(exec, "in.v"), dy = golden.rows(exec, "cot.y");
  const Sequence sequence = golden.sequence(exec, "in.q");
  const Tensor gates =
      golden.read(exec, "in.log_f", DType::kF32).reshaped({sequence.tokens(), q[2]});
  const bool pruned = golden.config.contains("log_eps");
  kernels::Attention in{.q = tq,
                        .k = tk,
                        .v = tv,
                        .documents = sequence.documents,
                        .heads = q[2],
                        .kv_heads = k[2],
                        .key = q[3],
                        .value = v[3],
                        .scale = 1.0f / std::sqrt(static_cast<float>(q[3])),
                        .window = golden.config.value("window", int64_t{0}),
                        .log_forget = gates,
                        .pruning = {.on = pruned}};
  in.pruning.log_epsilon = golden.config.value("log_eps", in.pruning.log_epsilon);
  if (pruned) check_pruning(exec, golden, in, compare);
  const Tensor out = exec.empty({sequence.tokens(), q[2] * v[3]}, golden.precision);
  const Tensor lse = exec.empty({sequence.tokens(), q[2]});
  kernels::attention_forward(exec, in, out, lse);
  compare.check(exec, "out.y", out);
  const Tensor dq = exec.empty(tq.shape()), dk = exec.empty(tk.shape()),
               dv = exec.empty(tv.shape()), d_gates = exec.empty(gates.shape());
  kernels::attention_backward(exec, in, out, lse, dy, {dq, dk, dv, d_gates});
  compare.check(exec, "grad.in.q", dq);
  compare.check(exec, "grad.in.k", dk);
  compare.check(exec, "grad.in.v", dv);
  compare.check(exec, "grad.in.log_f", d_gates);
}

}  // namespace weft
