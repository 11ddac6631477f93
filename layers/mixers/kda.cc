// Kimi delta attention: the delta rule on a state whose key channels decay each by itself.
//   M_t = (I - b_t k_t^T k_t) diag(e^{g_t}) M_{t-1} + b_t k_t^T v_t,   o_t = dk^{-1/2} q_t M_t
// with short convolutions on q, k, v, keys and queries of length one, b_t = sigmoid of a projection
// and g_t = -e^{A_log} softplus(f_b_proj f_a_proj x + dt_bias), A_log per head, the rest per
// channel.
//   y = o_proj( RMSNorm_head(o) * sigmoid(g_b_proj g_a_proj x) )
// A = e^{A_log} starts uniform in [1, 16] and dt_bias at the inverse softplus of steps spread
// logarithmically from 1e-3 to 1e-1, and no bias stands behind g_b_proj: as the kimi_linear model
// of transformers has it. (flash-linear-attention's layer starts dt_bias at zero, steps of 0.7 that
// forget nearly everything at once, and gives g_proj's second matrix a bias.) All else starts as in
// every mixer: normal, short convolutions uniform.
#include <cmath>

#include "kernels/gates/activation.h"
#include "kernels/gates/head_decay.h"
#include "kernels/rows/elementwise.h"
#include "kernels/rows/l2_norm.h"
#include "kernels/rows/norm.h"
#include "layers/basic/cast.h"
#include "layers/basic/linear.h"
#include "layers/mixers/shell_convs.h"
#include "layers/recurrence/rank_one.h"

namespace weft {
namespace {

struct KdaOptions {
  int64_t heads = 0, dk = 0, dv = 0;
  int64_t gate_rank = 0;
  bool negative_eigenvalues = false;
  double norm_eps = 1e-5;
};

void fields(FieldVisitor& f, KdaOptions& c) {
  head_fields(f, c.heads, c.dk, c.dv);
  f("gate_rank", c.gate_rank, "rank of the projections of decays and output gate; 0: as dk",
    between(0, kLargestExtent));
  f("negative_eigenvalues", c.negative_eigenvalues,
    "beta = 2 sigmoid: a write may turn a value around");
  f("norm_eps", c.norm_eps, "epsilon of the output's norm", above(0));
}

Parameter& decay_vector(const Build& build, const char* name, int64_t size, int64_t unit,
                        Init init) {
  return build.declare({.name = build.scope + name,
                        .global = {size},
                        .splits = {Split{.dim = 0, .axis = Axis::kTensor, .unit = unit}},
                        .init = init,
                        .weight_decay = false,
                        .f32 = true});
}

class Kda final : public Mixer {
 public:
  Kda(const MixerBuild& build, const KdaOptions& o)
      : o_(o),
        compute_(build.compute),
        hidden_(build.hidden),
        project_(build,
                 {{"q_proj", keys(), o.dk}, {"k_proj", keys(), o.dk}, {"v_proj", values(), o.dv}},
                 build.hidden, {.cut = Linear::Cut::kRows, .queries = {0, keys()}}),
        strength_(build, {{"b_proj", o.heads}}, build.hidden, {.cut = Linear::Cut::kRows}),
        decay_down_(build, {{"f_a_proj", o.gate_rank}}, build.hidden,
                    {.partial_over = {Axis::kTensor}}),
        decay_up_(build, {{"f_b_proj", keys(), o.dk}}, o.gate_rank, {.cut = Linear::Cut::kRows}),
        gate_down_(build, {{"g_a_proj", o.gate_rank}}, build.hidden,
                   {.partial_over = {Axis::kTensor}}),
        gate_up_(build, {{"g_b_proj", values(), o.dv}}, o.gate_rank, {.cut = Linear::Cut::kRows}),
        convs_(build, {{{keys(), o.dk}, {keys(), o.dk}, {values(), o.dv}}}, asked(true)),
        a_log_(decay_vector(build, "A_log", o.heads, 1, Init::log_of_uniform(1.0, 16.0))),
        dt_bias_(decay_vector(build, "dt_bias", keys(), o.dk, Init::time_step(1e-3, 1e-1))),
        recurrence_({o.heads, o.dk, o.dv, 1.0f / std::sqrt(static_cast<float>(o.dk))}),
        norm_(build.declare({.name = build.scope + "o_norm.weight",
                             .global = {o.dv},
                             .partial_over = {Axis::kTensor},
                             .init = Init::constant(1.0),
                             .weight_decay = false,
                             .f32 = true})),
        out_(build, {{"o_proj", build.hidden}}, values(),
             {.init = output_init(build), .cut = Linear::Cut::kColumns}) {}

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    const int64_t tokens = context.sequence.tokens();
    Saved f;
    f.projected = project_.begin_forward(exec, x, compute_, saved);
    ShellConvs::Pass convs(convs_, exec, f.projected, context);
    f.qkv = convs.rows();
    f.strength = strength_.forward(exec, x, DType::kF32, saved);
    f.decay =
        decay_up_.forward(exec, decay_down_.forward(exec, x, compute_, saved), DType::kF32, saved);
    f.beta = exec.empty(f.strength.shape());
    kernels::activation_forward(exec, kernels::Activation::kSigmoid, f.strength, f.beta);
    if (o_.negative_eigenvalues) kernels::scale(exec, f.beta, 2.0f, f.beta);
    f.log_decay = exec.empty(f.decay.shape());
    kernels::head_decay_forward(exec, decay_gate(f), f.log_decay);
    convs.finish_keys_and_values(exec, saved);
    f.k_inv_norm = to_unit(exec, part(f.qkv, kK));
    f.out = recurrence_.forward(exec, inputs(f), context.sequence, context.part(kRecurrence), saved,
                                [&] {
                                  project_.finish_queries(exec, x, f.projected);
                                  convs.start_queries(exec);
                                  convs.finish_queries(exec, saved);
                                  f.q_inv_norm = to_unit(exec, part(f.qkv, kQ));
                                  const Tensor low = gate_down_.forward(exec, x, compute_, saved);
                                  f.gate = gate_up_.forward(exec, low, compute_, saved);
                                });
    f.inv_rms = exec.empty({tokens, o_.heads});
    const Tensor y = exec.empty(f.out.shape(), compute_);
    kernels::head_norm_forward(exec, head_norm(), f.out, f.gate, norm_.value, y, f.inv_rms);
    saved.push(std::move(f));
    return out_.forward(exec, y, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Tensor d_y = out_.backward(exec, in_type(exec, dy, compute_), DType::kF32, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor d_out = exec.empty(f.out.shape()), d_gate = exec.empty(f.gate.shape(), compute_);
    kernels::head_norm_backward(exec, head_norm(), d_y, f.out, f.gate, norm_.value, f.inv_rms,
                                d_out, d_gate, norm_.grad);
    const Tensor d_qkv = exec.empty(f.qkv.shape(), compute_), d_beta = exec.empty(f.beta.shape()),
                 d_log_decay = exec.empty(f.log_decay.shape());
    const auto back = [&](const Linear& layer, const Tensor& gradient, DType type) {
      return layer.backward(exec, gradient, type, saved);
    };
    Tensor dx;
    recurrence_.backward(
        exec, inputs(f), context.sequence, d_out, context.part(kRecurrence),
        {part(d_qkv, kQ), part(d_qkv, kK), part(d_qkv, kV), d_log_decay, {}, d_beta}, saved,
        [&] { dx = back(gate_down_, back(gate_up_, d_gate, compute_), DType::kF32); });
    from_unit(exec, part(f.qkv, kQ), f.q_inv_norm, part(d_qkv, kQ));
    from_unit(exec, part(f.qkv, kK), f.k_inv_norm, part(d_qkv, kK));
    const Tensor d = exec.empty(f.projected.shape(), compute_);
    auto convs = convs_.backward(exec, f.projected, d_qkv, d, context, saved);

    const Tensor d_decay = exec.empty(f.decay.shape(), compute_);
    kernels::head_decay_backward(exec, decay_gate(f), d_log_decay, d_decay, a_log_.grad,
                                 dt_bias_.grad);
    if (o_.negative_eigenvalues) kernels::scale(exec, d_beta, 2.0f, d_beta);
    const Tensor d_strength = exec.empty(f.strength.shape(), compute_);
    kernels::activation_backward(exec, kernels::Activation::kSigmoid, f.strength, d_beta,
                                 d_strength);

    const Tensor d_low = back(decay_up_, d_decay, compute_);
    kernels::add(exec, dx, back(decay_down_, d_low, DType::kF32), dx);
    kernels::add(exec, dx, back(strength_, d_strength, DType::kF32), dx);
    convs->finish(exec);
    kernels::add(exec, dx, back(project_, d, DType::kF32), dx);
    return dx;
  }

  double flops_per_token(int64_t) const override {
    const int64_t widths = 2 * keys() + 2 * values() + o_.heads + 2 * o_.gate_rank;
    const int64_t weights = hidden_ * widths + o_.gate_rank * (keys() + values());
    return 2.0 * static_cast<double>(weights) + convs_.flops_per_token() +
           recurrence_.flops_per_token();
  }

 private:
  struct Saved {
    Tensor projected;               // [tokens, q | k | v]
    Tensor qkv;                     // the same as the recurrence reads them
    Tensor q_inv_norm, k_inv_norm;  // [tokens, heads]
    Tensor strength, decay;         // projections, f32: [tokens, heads], [tokens, heads * dk]
    Tensor beta, log_decay;         // what they become
    Tensor gate;                    // [tokens, heads * dv], before the sigmoid
    Tensor out;                     // [tokens, heads * dv]
    Tensor inv_rms;                 // [tokens, heads]
  };
  enum Part { kQ, kK, kV };

  int64_t keys() const { return o_.heads * o_.dk; }
  int64_t values() const { return o_.heads * o_.dv; }
  View part(const Tensor& rows, Part which) const {
    return rows.view().columns(which * keys(), which == kV ? values() : keys());
  }
  RankOneInputs inputs(const Saved& f) const {
    return {part(f.qkv, kQ), part(f.qkv, kK), part(f.qkv, kV), f.log_decay, {}, f.beta};
  }
  kernels::HeadDecay decay_gate(const Saved& f) const {
    return {f.decay, a_log_.value, dt_bias_.value};
  }
  kernels::L2Norm l2_norm() const { return {.heads = o_.heads}; }
  kernels::HeadNorm head_norm() const {
    return {.heads = o_.heads,
            .epsilon = static_cast<float>(o_.norm_eps),
            .gate = kernels::GateActivation::kSigmoid};
  }

  // Every head to unit length, in place; its inverse length before.
  Tensor to_unit(Exec& exec, View x) const {
    const Tensor inv_norm = exec.empty({x.rows(), o_.heads});
    kernels::l2_norm_forward(exec, l2_norm(), x, x, inv_norm);
    return inv_norm;
  }
  void from_unit(Exec& exec, ConstView x, const Tensor& inv_norm, View dx) const {
    kernels::l2_norm_backward(exec, l2_norm(), dx, x, inv_norm, dx);
  }

  KdaOptions o_;
  DType compute_;
  int64_t hidden_;
  Linear project_, strength_, decay_down_, decay_up_, gate_down_, gate_up_;
  ShellConvs convs_;
  Parameter& a_log_;    // [heads]
  Parameter& dt_bias_;  // [heads * dk]
  RankOneRecurrence recurrence_;
  Parameter& norm_;  // [dv]
  Linear out_;
};

}  // namespace

std::unique_ptr<Mixer> make_kda(const MixerBuild& build) {
  auto o = read_options<KdaOptions>(build.options, "kda");
  const HeadOptions heads = resolve(build, {.heads = o.heads, .dk = o.dk, .dv = o.dv});
  o.heads = heads.heads, o.dk = heads.dk, o.dv = heads.dv;
  if (o.gate_rank == 0) o.gate_rank = o.dk;
  return std::make_unique<Kda>(build, o);
}

std::vector<FieldInfo> options_of_kda() { return describe<KdaOptions>(); }

}  // namespace weft
