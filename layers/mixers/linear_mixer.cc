#include "layers/mixers/linear_mixer.h"

#include "layers/basic/cast.h"

namespace weft {
namespace {

int64_t gate_columns(const LinearSpec& spec) {
  int64_t columns = 0;
  if (spec.gates == LinearGates::Projected::kApart) return columns;
  for (const GateSpec& gate : spec.rule.gates) columns += spec.heads.v.count * gate.width;
  return columns;
}

// Columns of the projection that belong to the output gate.
int64_t output_gate_columns(const LinearSpec& spec) {
  const bool none = spec.gate.kind == kernels::GateActivation::kNone || spec.gate.rank > 0;
  return none ? 0 : spec.heads.out_width();
}

std::vector<Linear::Part> parts_of(const LinearSpec& spec) {
  const LinearHeads& h = spec.heads;
  std::vector<Linear::Part> parts = {h.q.part(spec.rows[0], h.dk), h.k.part(spec.rows[1], h.dk),
                                     h.v.part(spec.rows[2], h.dv)};
  if (spec.gates == LinearGates::Projected::kAmongRows) {
    for (const GateSpec& gate : spec.rule.gates) {
      parts.push_back(h.v.part(gate.weight_name(), gate.width));
    }
  }
  if (output_gate_columns(spec) > 0) parts.push_back(h.out.part(spec.gate.name, h.dv));
  return parts;
}

Linear::Options projection_of(const LinearSpec& spec) {
  const LinearHeads& h = spec.heads;
  const int64_t rows = h.q_width() + h.k_width() + h.v_width();
  return {.cut = Linear::Cut::kRows,
          .queries = {0, h.q_width()},
          .gate = {rows + gate_columns(spec), output_gate_columns(spec)}};
}

// The finish knows whether there is a gate from the spec's output gate.
FinishSpec finish_of(const LinearSpec& spec) {
  FinishSpec finish = spec.finish;
  finish.gate = spec.gate.kind;
  return finish;
}

}  // namespace

LinearHeads::LinearHeads(const HeadOptions& h)
    : q{.count = h.heads},
      k{.count = h.kv_heads, .replicas = h.kv_replicas},
      v(k),
      out(q),
      dk(h.dk),
      dv(h.dv) {}

LinearHeads::LinearHeads(const HeadOptions& h, int64_t value_heads)
    : q{.count = h.heads},
      k(q),
      v{.count = value_heads, .unit = value_heads / h.heads},
      out(v),
      dk(h.dk),
      dv(h.dv) {}

OutputGate silu_gate(bool output_gate) {
  return {.kind = output_gate ? kernels::GateActivation::kSilu : kernels::GateActivation::kNone};
}

LinearMixer::LinearMixer(const MixerBuild& build, LinearSpec spec)
    : spec_(std::move(spec)),
      compute_(build.compute),
      hidden_(build.hidden),
      log_decay_(spec_.rule.log_decay),
      project_(build, parts_of(spec_), build.hidden, projection_of(spec_)),
      gates_(build, spec_.heads.v, spec_.rule.gates, spec_.gates) {
  const LinearHeads& h = spec_.heads;
  if (const OutputGate& gate = spec_.gate; gate.rank > 0) {
    low_rank_gate_.emplace(LowRankGate{
        Linear(build, {{gate.down, gate.rank}}, build.hidden, {.partial_over = {Axis::kTensor}}),
        Linear(build, {h.out.part(gate.name, h.dv)}, gate.rank, {.cut = Linear::Cut::kRows})});
  }
  declare_optional(build, Weights::kBeforeNorm);
  finish_.emplace(build, finish_of(spec_), h.out.count, h.dv, h.out.unit);
  out_.emplace(build, std::vector{Linear::Part{"o_proj", build.hidden}}, h.out_width(),
               Linear::Options{.init = output_init(build), .cut = Linear::Cut::kColumns});
  declare_optional(build, Weights::kLast);
  spec_.rule.core = nullptr;  // may refer to `build`
}

void LinearMixer::declare_optional(const Build& build, Weights place) {
  const LinearHeads& h = spec_.heads;
  if (spec_.convs == place) {
    convs_ = LinearConvs(build, {{{h.q, h.dk}, {h.k, h.dk}, {h.v, h.dv}}});
  }
  if (place == Weights::kBeforeNorm) gates_.declare_vectors(build);
  if (place == (spec_.core_weights == Weights::kLast ? Weights::kLast : Weights::kBeforeNorm)) {
    core_ = spec_.rule.core(build);
  }
}

int64_t LinearMixer::begin(Kind kind) const {
  const LinearHeads& h = spec_.heads;
  const int64_t widths[] = {h.q_width(), h.k_width(), h.v_width()};
  int64_t begin = 0;
  for (int i = 0; i < kind; ++i) begin += widths[i];
  return begin;
}

int64_t LinearMixer::mapped_width() const {
  if (spec_.map == kernels::Activation::kIdentity) return 0;
  return begin(static_cast<Kind>(static_cast<int>(spec_.mapped) + 1));
}

View LinearMixer::among_rows(const Tensor& projected) const {
  return projected.view().columns(begin(kGates), gate_columns(spec_));
}

View LinearMixer::output_gate(const Tensor& projected) const {
  const int64_t count = output_gate_columns(spec_);
  return count == 0 ? View{} : projected.view().columns(project_.out() - count, count);
}

CoreInputs LinearMixer::inputs(Exec& exec, const Saved& f) const {
  const auto source = [&](Kind kind) {
    return columns(begin(kind) < mapped_width() ? f.mapped : f.rows, kind);
  };
  CoreInputs in{source(kQ), source(kK), source(kV), std::vector<ConstView>(kMostGates)};
  if (!log_decay_.empty()) in.gates[0] = log_decay_.view(exec);
  for (size_t i = 0; i < spec_.rule.gates.size(); ++i)
    in.gates[spec_.rule.gates[i].slot] = f.gates.value[i];
  return in;
}

void LinearMixer::rotate(Exec& exec, const Sequence& sequence, const Tensor& rows, Kind kind,
                         kernels::Rope::Direction direction) const {
  if (!spec_.rope_base || kind == kV) return;
  const LinearHeads& h = spec_.heads;
  const kernels::Rope rope{.heads = kind == kQ ? h.q.count : h.k.count,
                           .head_width = h.dk,
                           .rotary_width = h.dk,
                           .base = *spec_.rope_base,
                           .direction = direction};
  kernels::rope(exec, rope, sequence.positions.view(exec), columns(rows, kind));
}

void LinearMixer::prepare(Exec& exec, const Sequence& sequence, const Saved& f, Kind first,
                          Kind last) const {
  for (int kind = first; kind <= last; ++kind) {
    rotate(exec, sequence, f.rows, static_cast<Kind>(kind), kernels::Rope::Direction::kForward);
  }
  const int64_t from = begin(first), to = std::min(mapped_width(), begin(last) + width(last));
  if (from >= to) return;
  kernels::activation_forward(exec, spec_.map, f.rows.view().columns(from, to - from),
                              f.mapped.view().columns(from, to - from));
}

Tensor LinearMixer::forward(Exec& exec, const Tensor& x, const MixerContext& context,
                            SavedStack& saved) const {
  const Sequence& sequence = context.sequence;
  Saved f;
  f.x = x;
  f.projected = project_.begin_forward(exec, x, compute_, saved);
  LinearConvs::Pass convs(convs_, exec, f.projected, context);
  f.rows = convs.rows();
  f.gates = gates_.forward(exec, x, among_rows(f.projected), saved);
  if (mapped_width() > 0) f.mapped = exec.empty({sequence.tokens(), mapped_width()}, compute_);
  convs.finish_keys_and_values(exec, saved);
  prepare(exec, sequence, f, kK, kV);
  const auto queries_and_gate = [&] {
    project_.finish_queries(exec, x, f.projected);
    convs.start_queries(exec);
    project_.finish_gate(exec, x, f.projected);
    convs.finish_queries(exec, saved);
    prepare(exec, sequence, f, kQ, kQ);
    if (!low_rank_gate_) return;
    const Tensor low = low_rank_gate_->down.forward(exec, x, compute_, saved);
    f.gate = low_rank_gate_->up.forward(exec, low, compute_, saved);
  };
  f.finish.out = core_->forward(exec, inputs(exec, f), sequence, context.part(kRecurrence), saved,
                                queries_and_gate);
  const View gate = low_rank_gate_ ? f.gate.view() : output_gate(f.projected);
  const Tensor y = finish_->forward(exec, gate, f.finish);
  saved.push(std::move(f));
  return out_->forward(exec, y, DType::kF32, saved);
}

Tensor LinearMixer::backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                             SavedStack& saved) const {
  const Sequence& sequence = context.sequence;
  const Tensor d_y =
      out_->backward(exec, in_type(exec, dy, compute_), spec_.output_gradient, saved);
  const Saved f = saved.pop<Saved>();
  const Tensor d = exec.empty(f.projected.shape(), compute_);
  Tensor d_gate, dx;
  if (low_rank_gate_) d_gate = exec.empty(f.gate.shape(), compute_);
  const Tensor d_out = finish_->backward(
      exec, f.finish, d_y, low_rank_gate_ ? f.gate.view() : output_gate(f.projected),
      low_rank_gate_ ? d_gate.view() : output_gate(d), spec_.output_gradient);
  project_.begin_backward(exec, d, f.x, saved);

  const Tensor d_rows = convs_.output_gradient(exec, d);
  CoreGradients gradients{columns(d_rows, kQ), columns(d_rows, kK), columns(d_rows, kV),
                          std::vector<View>(kMostGates)};
  std::vector<Tensor> d_gates;
  for (size_t i = 0; i < spec_.rule.gates.size(); ++i) {
    d_gates.push_back(exec.empty(f.gates.value[i].shape()));
    gradients.gates[spec_.rule.gates[i].slot] = d_gates.back();
  }
  LinearCore::OverlapWork output_gate_backward;
  if (low_rank_gate_) {
    output_gate_backward = [&] {
      const Tensor d_low = low_rank_gate_->up.backward(exec, d_gate, compute_, saved);
      dx = low_rank_gate_->down.backward(exec, d_low, DType::kF32, saved);
    };
  }
  core_->backward(exec, inputs(exec, f), sequence, d_out, context.part(kRecurrence), gradients,
                  saved, output_gate_backward);
  if (const int64_t width = mapped_width(); width > 0) {
    const View d_mapped = d_rows.view().columns(0, width);
    kernels::activation_backward(exec, spec_.map, f.rows.view().columns(0, width), d_mapped,
                                 d_mapped);
  }
  for (const Kind kind : {kQ, kK}) {
    rotate(exec, sequence, d_rows, kind, kernels::Rope::Direction::kBackward);
  }
  auto convs = convs_.backward(exec, f.projected, d_rows, d, context, saved);
  gates_.backward(exec, f.gates, among_rows(f.projected), d_gates, among_rows(d), saved, dx);
  if (convs) convs->finish(exec);
  add_to(exec, dx, project_.backward(exec, d, DType::kF32, saved));
  return dx;
}

double LinearMixer::flops_per_token(int64_t) const {
  const int64_t rank = spec_.gate.rank, out = spec_.heads.out_width();
  const int64_t weights =
      hidden_ * (project_.out() + out) + gates_.weights() + rank * (hidden_ + out);
  return 2.0 * static_cast<double>(weights) + (convs_.enabled() ? convs_.flops_per_token() : 0.0) +
         core_->flops_per_token();
}

}  // namespace weft
