// Rebased: linear attention whose weight of key j for query i is (q_i . k_j)^2 / dk, normalized.
//   q^, k^ = LayerNorm(q), LayerNorm(k), one gamma and beta for both and all heads
//   phi(q^) . phi(k^) = (q^ . k^)^2 / dk
//   M_t = M_{t-1} + phi(k_t)^T v_t,   z_t = z_{t-1} + phi(k_t)
//   o_t = phi(q_t) M_t / (phi(q_t) . z_t + 1e-5),   y = o_proj(o)
#include "kernels/rows/rebased.h"
#include "layers/basic/cast.h"
#include "layers/basic/linear.h"
#include "layers/recurrence/scalar.h"

namespace weft {
namespace {

constexpr float kEpsilon = 1e-5f;  // of the LayerNorm, and beside the sum of weights

struct RebasedOptions {
  HeadOptions heads{.dk = 16};
};

void fields(FieldVisitor& f, RebasedOptions& c) { fields(f, c.heads); }

class Rebased final : public Mixer {
 public:
  Rebased(const MixerBuild& build, const HeadOptions& h)
      : h_(h),
        compute_(build.compute),
        hidden_(build.hidden),
        project_(build,
                 {{"q_proj", h.heads * h.dk, h.dk},
                  kv_part(h, "k_proj", h.dk),
                  kv_part(h, "v_proj", h.dv)},
                 build.hidden, {.cut = Linear::Cut::kRows, .queries = {0, h.heads * h.dk}}),
        gamma_(vector(build, "gamma", Init::constant(1.0))),
        beta_(vector(build, "beta", Init::zeros())),
        recurrence_({.heads = {h.heads, h.kv_heads, kernels::rebased_width(h.dk), h.dv},
                     .normalize = true,
                     .epsilon = kEpsilon}),
        out_(build, {{"o_proj", build.hidden}}, h.heads * h.dv,
             {.init = output_init(build), .cut = Linear::Cut::kColumns}) {}

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    Saved f;
    f.projected = project_.begin_forward(exec, x, compute_, saved);
    f.q = place_of_features(exec, x.shape()[0], h_.heads);
    f.k = place_of_features(exec, x.shape()[0], h_.kv_heads);
    features(exec, part(f.projected, kK), f.k, h_.kv_heads);
    f.v = exec.empty({x.shape()[0], h_.kv_heads * h_.dv});
    kernels::copy(exec, part(f.projected, kV), f.v);
    const auto queries = [&] {
      project_.finish_queries(exec, x, f.projected);
      features(exec, part(f.projected, kQ), f.q, h_.heads);
    };
    const Tensor o = recurrence_.forward(exec, {f.q, f.k, f.v, {}}, context.sequence,
                                         context.part(kRecurrence), saved, queries);
    saved.push(std::move(f));
    return out_.forward(exec, in_type(exec, o, compute_), DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Tensor d_out = out_.backward(exec, in_type(exec, dy, compute_), DType::kF32, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor dq = exec.empty(f.q.shape()), dk = exec.empty(f.k.shape());
    const Tensor d = exec.empty(f.projected.shape(), compute_), dv = exec.empty(f.v.shape());
    recurrence_.backward(exec, {f.q, f.k, f.v, {}}, context.sequence, d_out,
                         context.part(kRecurrence), {dq, dk, dv, {}}, saved);
    kernels::copy(exec, dv, part(d, kV));
    features_backward(exec, part(f.projected, kQ), dq, part(d, kQ), h_.heads);
    features_backward(exec, part(f.projected, kK), dk, part(d, kK), h_.kv_heads);
    return project_.backward(exec, d, DType::kF32, saved);
  }

  double flops_per_token(int64_t) const override {
    return 2.0 * static_cast<double>(hidden_) *
               static_cast<double>(project_.out() + h_.heads * h_.dv) +
           recurrence_.flops_per_token();
  }

 private:
  struct Saved {
    Tensor projected;  // [tokens, q | k | v]
    Tensor q, k, v;    // features and values, f32: kernels/rows/rebased.h says why
  };
  enum Part { kQ, kK, kV };

  Parameter& vector(const Build& build, const char* name, const Init& init) const {
    return build.declare({.name = build.scope + name,
                          .global = {h_.dk},
                          .partial_over = {Axis::kTensor},
                          .init = init,
                          .weight_decay = false,
                          .f32 = true});
  }
  View part(const Tensor& rows, Part which) const {
    const int64_t q = h_.heads * h_.dk, k = h_.kv_heads * h_.dk, v = h_.kv_heads * h_.dv;
    if (which == kQ) return rows.view().columns(0, q);
    return which == kK ? rows.view().columns(q, k) : rows.view().columns(q + k, v);
  }
  static kernels::RebasedFeatures map(int64_t heads) { return {heads, kEpsilon}; }
  Tensor place_of_features(Exec& exec, int64_t tokens, int64_t heads) const {
    return exec.empty({tokens, heads * kernels::rebased_width(h_.dk)});
  }
  void features(Exec& exec, ConstView x, const Tensor& phi, int64_t heads) const {
    kernels::rebased_features_forward(exec, map(heads), x, gamma_.value, beta_.value, phi);
  }
  void features_backward(Exec& exec, ConstView x, const Tensor& d_phi, View dx,
                         int64_t heads) const {
    kernels::rebased_features_backward(
        exec, map(heads), {x, gamma_.value, beta_.value, d_phi, dx, gamma_.grad, beta_.grad});
  }

  HeadOptions h_;
  DType compute_;
  int64_t hidden_;
  Linear project_;
  Parameter &gamma_, &beta_;  // [dk]
  ScalarRecurrence recurrence_;
  Linear out_;
};

}  // namespace

std::unique_ptr<Mixer> make_rebased(const MixerBuild& build) {
  const HeadOptions h =
      resolve(build, read_options<RebasedOptions>(build.options, "rebased").heads);
  if (h.dk > kernels::kWidestRebased) {
    throw ConfigError(
        "{} = {}: the state has dk (dk + 1) / 2 rows per head; use at most {} (published: 16)",
        place_of(build.options, "dk"), h.dk, kernels::kWidestRebased);
  }
  return std::make_unique<Rebased>(build, h);
}

std::vector<FieldInfo> options_of_rebased() { return describe<RebasedOptions>(); }

}  // namespace weft
