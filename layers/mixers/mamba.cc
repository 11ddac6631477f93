// Mamba. (x, z) = in_proj(input),  x <- silu(short convolution(x)),  (r, B, C) = x_proj(x), a step
// dt = softplus(dt_proj(r) + bias), and per channel c with `state` numbers:
//   M_t[n, c] = e^{-dt_c e^{A_log_cn}} M_{t-1}[n, c] + dt_c B_n x_c
//   y_c = sum_n C_n M_t[n, c] + D_c x_c,    out_proj(y * silu(z))
// With `select_norm` r, B and C each pass an RMSNorm before they are used.
#include <cmath>

#include "kernels/gates/output_gate.h"
#include "kernels/gates/ssm.h"
#include "kernels/rows/norm.h"
#include "layers/basic/cast.h"
#include "layers/basic/channel_shards.h"
#include "layers/basic/linear.h"
#include "layers/basic/short_conv.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/selective.h"

namespace weft {
namespace {

struct MambaOptions {
  int64_t state = 16, inner = 0, dt_rank = 0;
  bool select_norm = false;
  double norm_eps = 1e-6;
};

void fields(FieldVisitor& f, MambaOptions& c) {
  f("state", c.state, "numbers per channel", between(1, kLargestExtent));
  f("inner", c.inner, "channels; 0: twice the hidden width", between(0, kLargestExtent));
  f("dt_rank", c.dt_rank,
    "rank of the projection that gives the steps; 0: a sixteenth of the hidden width",
    between(0, kLargestExtent));
  f("select_norm", c.select_norm,
    "RMSNorm of what x_proj gives: steps, inputs and reads, each alone");
  f("norm_eps", c.norm_eps, "epsilon of these norms", above(0));
}

class Mamba final : public Mixer {
 public:
  Mamba(const MixerBuild& build, const MambaOptions& o)
      : o_(o),
        compute_(build.compute),
        hidden_(build.hidden),
        tensor_ranks_(build.tensor_ranks),
        project_(build, {{.name = "in_proj", .rows = 2 * o.inner, .blocks = {o.inner, o.inner}}},
                 build.hidden, {.cut = Linear::Cut::kRows, .gate = {o.inner, o.inner}}),
        conv_(build, "conv1d", {.channels = o.inner, .bias = true}),
        select_(build, {{"x_proj", o.dt_rank + 2 * o.state}}, o.inner,
                {.cut = Linear::Cut::kColumns}),
        step_(build, {{"dt_proj", o.inner}}, o.dt_rank,
              {.init = step_init(o.dt_rank), .cut = Linear::Cut::kRows}),
        dt_bias_(channels(build, "dt_proj.bias", {o.inner}, Init::time_step(1e-3, 1e-1))),
        a_log_(channels(build, "A_log", {o.inner, o.state}, Init::each([n = o.state](int64_t i) {
                          return std::log(static_cast<double>(i % n + 1));
                        }))),
        d_(channels(build, "D", {o.inner}, Init::constant(1.0))),
        recurrence_({o.inner, o.state}),
        out_(build, {{"out_proj", build.hidden}}, o.inner,
             {.init = output_init(build), .cut = Linear::Cut::kColumns}) {
    if (!o.select_norm) return;
    const int64_t widths[] = {o.dt_rank, o.state, o.state};
    const char* names[] = {"dt_norm.weight", "b_norm.weight", "c_norm.weight"};
    for (int i = 0; i < 3; ++i) {
      norms_.push_back(&build.store.declare({.name = build.scope + names[i],
                                             .global = {widths[i]},
                                             .init = Init::constant(1.0),
                                             .weight_decay = false,
                                             .f32 = true}));
    }
  }

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    const int64_t tokens = context.sequence.tokens();
    Saved f;
    f.input = x;
    f.projected = project_.begin_forward(exec, x, compute_, saved);
    f.x = exec.empty({tokens, o_.inner}, compute_);
    conv_.forward(exec, input(f.projected), f.x, context.sequence, context.state, saved);
    f.raw = selected(exec, f.x, saved);
    f.selected = norms_.empty() ? f.raw : normed(exec, f);
    const Tensor low = exec.empty({tokens, o_.dt_rank}, compute_);
    kernels::copy(exec, part(f.selected, kStep), low);
    f.step = step_.forward(exec, low, DType::kF32, saved);
    f.dt = exec.empty({tokens, o_.inner});
    kernels::time_step_forward(exec, f.step, dt_bias_.value, f.dt);
    f.y = recurrence_.forward(exec, inputs(f), context.sequence, context.part(kRecurrence), saved,
                              [&] { project_.finish_gate(exec, x, f.projected); });
    const Tensor gated = exec.empty(f.y.shape(), compute_);
    kernels::output_gate_forward(exec, kernels::GateActivation::kSilu, f.y, gate(f.projected),
                                 gated);
    saved.push(std::move(f));
    return out_.forward(exec, gated, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Tensor d_y = out_.backward(exec, in_type(exec, dy, compute_), DType::kF32, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor d = exec.empty(f.projected.shape(), compute_);
    kernels::output_gate_backward(exec, kernels::GateActivation::kSilu, f.y, gate(f.projected), d_y,
                                  d_y, gate(d));
    project_.begin_backward(exec, d, f.input, saved);
    const Tensor d_selected = exec.empty(f.selected.shape(), compute_);
    const Tensor dx_scan = exec.empty(f.x.shape()), d_dt = exec.empty(f.dt.shape());
    recurrence_.backward(
        exec, inputs(f), context.sequence, d_y, context.part(kRecurrence),
        {dx_scan, d_dt, part(d_selected, kInput), part(d_selected, kRead), a_log_.grad, d_.grad},
        saved);
    const Tensor d_step = exec.empty(f.dt.shape(), compute_);
    kernels::time_step_backward(exec, f.step, dt_bias_.value, d_dt, d_step, dt_bias_.grad);
    kernels::copy(exec, step_.backward(exec, d_step, compute_, saved), part(d_selected, kStep));
    const Tensor d_all = summed(exec, d_selected);
    for (size_t i = 0; i < norms_.size(); ++i) {
      const auto which = static_cast<Selected>(i);
      const View d_part = part(d_all, which);
      kernels::head_norm_backward(exec, norm(), d_part, part(f.raw, which), {}, norms_[i]->value,
                                  f.inv_rms.row(static_cast<int64_t>(i)), d_part, {},
                                  norms_[i]->grad);
    }
    const Tensor dx = select_.backward(exec, d_all, DType::kF32, saved);
    kernels::add(exec, dx, dx_scan, dx);
    conv_.backward(exec, input(f.projected), dx, input(d), context.sequence, context.state, saved);
    return project_.backward(exec, d, DType::kF32, saved);
  }

  double flops_per_token(int64_t) const override {
    const int64_t weights = hidden_ * (project_.out() + o_.inner) +
                            o_.inner * (select_.out() + o_.dt_rank + ShortConv::kTaps);
    return 2.0 * static_cast<double>(weights) + recurrence_.flops_per_token();
  }

 private:
  struct Saved {
    Tensor input;      // of the layer
    Tensor projected;  // [tokens, x | z]
    Tensor x;          // [tokens, inner] after the convolution
    Tensor raw;        // [tokens, r | B | C]
    Tensor selected;   // the same after the norms
    Tensor inv_rms;    // [3, tokens, 1]; undefined without norms
    Tensor step, dt;   // [tokens, inner] f32, before and after the softplus
    Tensor y;          // [tokens, inner]
  };
  enum Selected { kStep, kInput, kRead };

  static Init step_init(int64_t rank) {
    const double limit = 1.0 / std::sqrt(static_cast<double>(rank));
    return Init::uniform(-limit, limit);
  }
  static Parameter& channels(const Build& build, const char* name, const Shape& shape,
                             const Init& init) {
    return build.declare({.name = build.scope + name,
                          .global = shape,
                          .splits = {Split{.dim = 0, .axis = Axis::kTensor}},
                          .init = init,
                          .weight_decay = false,
                          .f32 = true});
  }
  bool alone() const { return tensor_ranks_ == nullptr || tensor_ranks_->size() == 1; }
  // What all channels select for a token, and the gradient that all their states have for it.
  Tensor selected(Exec& exec, const Tensor& x, SavedStack& saved) const {
    const Tensor out = select_.forward(exec, x, alone() ? compute_ : DType::kF32, saved);
    sum_parts(exec, tensor_ranks_, out);
    return in_type(exec, out, compute_);
  }
  Tensor summed(Exec& exec, const Tensor& parts) const {
    if (alone()) return parts;
    const Tensor out = exec.empty(parts.shape());
    kernels::copy(exec, parts, out);
    sum_parts(exec, tensor_ranks_, out);
    return in_type(exec, out, compute_);
  }
  kernels::HeadNorm norm() const { return {.epsilon = static_cast<float>(o_.norm_eps)}; }
  Tensor normed(Exec& exec, Saved& f) const {
    const Tensor out = exec.empty(f.raw.shape(), compute_);
    f.inv_rms = exec.empty({3, f.raw.shape()[0], 1});
    for (size_t i = 0; i < norms_.size(); ++i) {
      const auto which = static_cast<Selected>(i);
      kernels::head_norm_forward(exec, norm(), part(f.raw, which), {}, norms_[i]->value,
                                 part(out, which), f.inv_rms.row(static_cast<int64_t>(i)));
    }
    return out;
  }
  View input(const Tensor& rows) const { return rows.view().columns(0, o_.inner); }
  View gate(const Tensor& rows) const { return rows.view().columns(o_.inner, o_.inner); }
  View part(const Tensor& selected, Selected which) const {
    if (which == kStep) return selected.view().columns(0, o_.dt_rank);
    return selected.view().columns(o_.dt_rank + (which == kRead ? o_.state : 0), o_.state);
  }
  SelectiveInputs inputs(const Saved& f) const {
    return {f.x, f.dt, part(f.selected, kInput), part(f.selected, kRead), a_log_.value, d_.value};
  }

  MambaOptions o_;
  DType compute_;
  int64_t hidden_;
  Communicator* tensor_ranks_;
  Linear project_;
  ShortConv conv_;
  Linear select_, step_;
  Parameter &dt_bias_, &a_log_, &d_;
  SelectiveRecurrence recurrence_;
  Linear out_;
  std::vector<Parameter*> norms_;  // of r, B and C; none without select_norm
};

}  // namespace

std::unique_ptr<Mixer> make_mamba(const MixerBuild& build) {
  auto o = read_options<MambaOptions>(build.options, "mamba");
  if (o.inner == 0) o.inner = 2 * build.hidden;
  o.inner = cut_evenly(build, "inner", o.inner);
  if (o.dt_rank == 0) o.dt_rank = (build.hidden + 15) / 16;
  return std::make_unique<Mamba>(build, o);
}

std::vector<FieldInfo> options_of_mamba() { return describe<MambaOptions>(); }

}  // namespace weft
