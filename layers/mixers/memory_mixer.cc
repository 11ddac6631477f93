#include "layers/mixers/memory_mixer.h"

#include "kernels/routing/mixture.h"
#include "kernels/rows/elementwise.h"
#include "kernels/rows/gather.h"
#include "layers/basic/cast.h"

namespace weft {
namespace {

std::vector<Linear::Part> parts_of(const MemorySpec& s) {
  const HeadOptions& h = s.heads;
  std::vector<Linear::Part> parts = {{"q_proj", h.heads * h.dk, h.dk}};
  if (s.output_gate) parts.push_back({"g_proj", h.heads * h.dv, h.dv});
  return parts;
}

MemoryLinear::Options projection(const Build& build, const MemorySpec& s, const char* name,
                                 const char* shared_name, int64_t width) {
  return {.name = name,
          .shared_name = shared_name,
          .out = s.heads.heads * width,
          .in = build.hidden,
          .unit = width};
}

std::array<std::optional<ShortConv>, 3> convs_of(const Build& build, const MemorySpec& s) {
  std::array<std::optional<ShortConv>, 3> convs;
  if (!s.short_conv) return convs;
  const HeadOptions& h = s.heads;
  const ShortConv::Options keys{h.heads * h.dk, h.dk}, values{h.heads * h.dv, h.dv};
  convs[0].emplace(build, "q_conv1d", keys);
  if (!s.rule.keys_are_gates) convs[1].emplace(build, "k_conv1d", keys);
  convs[2].emplace(build, "v_conv1d", values);
  return convs;
}

FinishSpec finish_of(const MemorySpec& s) {
  return {.gate = s.output_gate ? kernels::GateActivation::kSilu : kernels::GateActivation::kNone};
}

}  // namespace

MemoryMixer::MemoryMixer(const Build& build, MemorySpec spec)
    : spec_(std::move(spec)),
      compute_(build.compute),
      hidden_(build.hidden),
      log_decay_(spec_.rule.log_decay),
      space_{spec_.memories.memories, spec_.memories.shared, spec_.single_projection},
      router_(build, spec_.memories),
      project_(build, parts_of(spec_), build.hidden,
               {.cut = Linear::Cut::kRows,
                .queries = {0, query_width()},
                .gate = {query_width(), spec_.output_gate ? value_width() : 0}}),
      k_proj_(build, space_, projection(build, spec_, "k_proj", "shared_k", spec_.heads.dk)),
      v_proj_(build, space_, projection(build, spec_, "v_proj", "shared_v", spec_.heads.dv)),
      gates_(build, space_, spec_.heads.heads, spec_.rule.gates),
      core_(spec_.rule.core(build)),
      convs_(convs_of(build, spec_)),
      finish_(build, finish_of(spec_), spec_.heads.heads, spec_.heads.dv),
      out_(build, {{"o_proj", build.hidden}}, value_width(),
           {.init = output_init(build), .cut = Linear::Cut::kColumns}) {
  spec_.rule.core = nullptr;  // may refer to `build`
}

CoreInputs MemoryMixer::inputs(Exec& exec, const Saved& f) const {
  CoreInputs in{f.read.q, f.read.k, f.read.v, std::vector<ConstView>(kMostGates)};
  if (!log_decay_.empty()) in.gates[0] = log_decay_.view(exec);
  for (size_t i = 0; i < f.gates.size(); ++i) in.gates[spec_.rule.gates[i].slot] = f.gates[i].value;
  return in;
}

Tensor MemoryMixer::forward(Exec& exec, const Tensor& x, const MixerContext& context,
                            SavedStack& saved) const {
  Saved f;
  f.x = x;
  f.routing = router_.forward(exec, x, context.step);
  f.rows = rows_of_memories(exec, context.sequence, f.routing.index, spec_.memories.all());
  f.projected = project_.begin_forward(exec, x, compute_, saved);
  MemoryStates states(exec, context.state, spec_.memories.all());
  send(exec, states, f, saved);
  f.gates = gates_.forward(exec, x, f.rows);
  const Tensor out =
      core_->forward(exec, inputs(exec, f), f.rows.sequence, states.part(kRecurrence), saved, [&] {
        project_.finish_queries(exec, x, f.projected);
        kernels::gather_rows(exec, query(f.projected), f.rows.tokens(), f.sent.q);
        convolve(exec, kQ, states, f, saved);
        project_.finish_gate(exec, x, f.projected);
      });
  f.out = in_type(exec, out, compute_);
  states.give_back(exec);
  f.finish.out = exec.empty({context.sequence.tokens(), value_width()}, compute_);
  kernels::mix_rows_forward(exec, f.rows.order.row, f.out, f.routing.weight, f.finish.out);
  const Tensor y = finish_.forward(exec, gate(f.projected), f.finish);
  saved.push(std::move(f));
  return out_.forward(exec, y, DType::kF32, saved);
}

Tensor MemoryMixer::backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                             SavedStack& saved) const {
  const Tensor d_y = out_.backward(exec, in_type(exec, dy, compute_), DType::kF32, saved);
  const Saved f = saved.pop<Saved>();
  const Tensor d = exec.empty(f.projected.shape(), compute_);
  const Tensor d_mixed =
      finish_.backward(exec, f.finish, d_y, gate(f.projected), gate(d), DType::kF32);
  project_.begin_backward(exec, d, f.x, saved);
  const Tensor d_out = exec.empty(f.out.shape()), d_weight = exec.empty(f.routing.weight.shape());
  kernels::mix_rows_backward(exec, f.rows.order.row,
                             {f.out, f.routing.weight, d_mixed, d_out, d_weight});

  const Tensor d_rows = exec.zeros({space_.count(f.rows), hidden_});
  const Three d_sent = empty_like(exec, f.read);
  CoreGradients gradients{d_sent.q, d_sent.k, d_sent.v, std::vector<View>(kMostGates)};
  std::vector<Tensor> d_gates;
  for (size_t i = 0; i < f.gates.size(); ++i) {
    d_gates.push_back(exec.empty(f.gates[i].value.shape()));
    gradients.gates[spec_.rule.gates[i].slot] = d_gates.back();
  }
  MemoryStates states(exec, context.state, spec_.memories.all());
  core_->backward(exec, inputs(exec, f), f.rows.sequence, d_out, states.part(kRecurrence),
                  gradients, saved, {});
  gates_.backward(exec, f.x, f.rows, f.gates, d_gates, d_rows);
  send_backward(exec, states, f, d_sent, d, d_rows, saved);
  states.give_back(exec);
  const Tensor dx = project_.backward(exec, d, DType::kF32, saved);
  if (space_.single) {
    kernels::add(exec, dx, d_rows, dx);
  } else {
    kernels::combine_rows(exec, f.rows.order.row, d_rows, dx, kernels::Write::kAccumulate);
  }
  router_.backward(exec, f.x, f.routing, d_weight, context.step, dx);
  return dx;
}

void MemoryMixer::send(Exec& exec, MemoryStates& states, Saved& f, SavedStack& saved) const {
  f.sent.q = exec.empty({f.rows.count(), query_width()}, compute_);
  f.sent.k = space_.spread(exec, f.rows, k_proj_.forward(exec, f.x, f.rows, compute_));
  f.sent.v = space_.spread(exec, f.rows, v_proj_.forward(exec, f.x, f.rows, compute_));
  f.read = f.sent;
  if (convs_[kQ]) f.read.q = exec.empty(f.sent.q.shape(), compute_);
  if (convs_[kK]) f.read.k = exec.empty(f.sent.k.shape(), compute_);
  if (convs_[kV]) f.read.v = exec.empty(f.sent.v.shape(), compute_);
  convolve(exec, kK, states, f, saved);
  convolve(exec, kV, states, f, saved);
}

void MemoryMixer::convolve(Exec& exec, Part which, MemoryStates& states, const Saved& f,
                           SavedStack& saved) const {
  if (!convs_[which]) return;
  const Tensor* from[] = {&f.sent.q, &f.sent.k, &f.sent.v};
  const Tensor* to[] = {&f.read.q, &f.read.k, &f.read.v};
  convs_[which]->forward(exec, *from[which], *to[which], f.rows.sequence, states.get(), saved);
}

void MemoryMixer::send_backward(Exec& exec, MemoryStates& states, const Saved& f, Three d_sent,
                                const Tensor& d, const Tensor& d_rows, SavedStack& saved) const {
  const Tensor* sent[] = {&f.sent.q, &f.sent.k, &f.sent.v};
  Tensor* gradient[] = {&d_sent.q, &d_sent.k, &d_sent.v};
  for (const Part i : {kQ, kV, kK}) {  // queries were last
    if (!convs_[i]) continue;
    const Tensor dx = exec.empty(gradient[i]->shape(), compute_);
    convs_[i]->backward(exec, *sent[i], *gradient[i], dx, f.rows.sequence, states.get(), saved);
    *gradient[i] = dx;
  }
  using kernels::Write;
  v_proj_.backward(exec, space_.collect(exec, f.rows, d_sent.v), f.x, f.rows, d_rows,
                   Write::kAccumulate);
  k_proj_.backward(exec, space_.collect(exec, f.rows, d_sent.k), f.x, f.rows, d_rows,
                   Write::kAccumulate);
  kernels::combine_rows(exec, f.rows.order.row, d_sent.q, query(d));
}

double MemoryMixer::flops_per_token(int64_t) const {
  const auto visits = static_cast<double>(spec_.memories.top_k + (spec_.memories.shared ? 1 : 0));
  const auto width = static_cast<double>(2 * query_width() + value_width());
  const double conv = !convs_[0] ? 0.0 : 2.0 * ShortConv::kTaps * width;
  const double projections =
      k_proj_.flops_per_row() + v_proj_.flops_per_row() + gates_.flops_per_row();
  return 2.0 * static_cast<double>(hidden_) *
             static_cast<double>(spec_.memories.memories + project_.out() + value_width()) +
         (space_.single ? 1.0 : visits) * projections + visits * (conv + core_->flops_per_token());
}

}  // namespace weft
