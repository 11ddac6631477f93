// Liger: the weights of a softmax attention layer, read as a gated recurrence beside attention over
// a window. No weight is added: gates are means over the channels of the keys, before the rotation.
//   o = alpha * recurrence(q, k, v, gates) + beta * attention(rotated q, rotated k, v; window)
//   form        log gate                          query, key
//   gla         logsigmoid(k) / tau               softmax(q), softmax(k)       a decay per channel
//   hgrn2       log a, a = l + (1 - l) sigmoid(k) softmax(q), 1 - a            a decay per channel
//   rwkv6       -e^k                              softmax(q), softmax(k)       a decay per channel
//   mamba2      -softplus(mean k)                 softmax(q), softmax(k)       a decay per head
//   retention, mlstm   logsigmoid(mean k) / tau   softmax(q), softmax(k)       a decay per head
//   gsa         logsigmoid(means of k) / tau      q, k                         a decay per slot
#include <cmath>
#include <functional>
#include <variant>

#include "kernels/gates/decay_gate.h"
#include "kernels/rows/elementwise.h"
#include "kernels/rows/head_pool.h"
#include "kernels/rows/head_softmax.h"
#include "layers/basic/cast.h"
#include "layers/basic/linear.h"
#include "layers/basic/rotation.h"
#include "layers/context/mixer.h"
#include "layers/recurrence/attention.h"
#include "layers/recurrence/diagonal.h"
#include "layers/recurrence/scalar.h"
#include "layers/recurrence/slots.h"

namespace weft {
namespace {

struct LigerOptions {
  HeadOptions heads;
  std::string form = "gla";
  double alpha = 0.5, beta = 0.5;
  int64_t window = 64;
  double tau = 16.0;
  int64_t slots = 0;
  double lower_bound = 0.0;
  RotationOptions rotation;
  bool bias = false;
};

void fields(FieldVisitor& f, LigerOptions& c) {
  fields(f, c.heads);
  f.choice("form", c.form, {"gla", "hgrn2", "rwkv6", "mamba2", "retention", "mlstm", "gsa"},
           "the recurrence that the keys gate");
  f("alpha", c.alpha, "weight of the recurrence");
  f("beta", c.beta, "weight of the attention over a window");
  f("window", c.window, "keys a token attends to, itself included", at_least(1));
  f("tau", c.tau, "gla, retention, mlstm, gsa: log decays are logsigmoid / this", above(0));
  f("slots", c.slots, "gsa: slots per head, at most dk; 0: dk", between(0, 1 << 20));
  f("lower_bound", c.lower_bound, "hgrn2: the least that a step keeps", from_below(0, 1));
  fields(f, c.rotation);
  f("bias", c.bias, "biases on the q, k and v projections, as in the layer that is converted");
}

enum class Decay : uint8_t { kPerChannel, kTied, kPerHead, kPerSlot };

Decay decay_of(const std::string& form) {
  if (form == "hgrn2") return Decay::kTied;
  if (form == "gsa") return Decay::kPerSlot;
  return form == "gla" || form == "rwkv6" ? Decay::kPerChannel : Decay::kPerHead;
}

kernels::DecayGate gate_of(const LigerOptions& o) {
  using Kind = kernels::DecayGate::Kind;
  if (o.form == "rwkv6") return {.kind = Kind::kMinusExp};
  // -softplus(z) = logsigmoid(-z); the pool turns the sign.
  return {.divisor = o.form == "mamba2" ? 1.0f : static_cast<float>(o.tau)};
}

// All read q, k, v and log decays.
using LigerRecurrence = std::variant<ScalarRecurrence, DiagonalRecurrence, SlotsRecurrence>;

LigerRecurrence recurrence_of(const LigerOptions& o) {
  switch (decay_of(o.form)) {
    case Decay::kPerHead: return ScalarRecurrence({.heads = o.heads});
    case Decay::kPerSlot: return SlotsRecurrence({.heads = o.heads, .slots = o.slots});
    default: return DiagonalRecurrence({.heads = o.heads});
  }
}

class Liger final : public Mixer {
 public:
  Liger(const MixerBuild& build, const LigerOptions& o)
      : o_(o),
        h_(o.heads),
        decay_(decay_of(o.form)),
        gate_(gate_of(o)),
        compute_(build.compute),
        hidden_(build.hidden),
        lower_(std::vector(static_cast<size_t>(h_.kv_heads * h_.dk),
                           static_cast<float>(o.lower_bound))),
        project_(build,
                 {{"q_proj", h_.heads * h_.dk, h_.dk},
                  kv_part(h_, "k_proj", h_.dk),
                  kv_part(h_, "v_proj", h_.dv)},
                 build.hidden,
                 {.cut = Linear::Cut::kRows,
                  .bias = o.bias ? Linear::Bias::kYes : Linear::Bias::kNo,
                  .queries = {0, q_width()}}),
        recurrence_(recurrence_of(o)),
        rotation_(o.rotation, h_.dk, h_.dk),
        window_({h_, 1.0f / std::sqrt(static_cast<float>(h_.dk)), o.window}),
        out_(build, {{"o_proj", build.hidden}}, h_.heads * h_.dv,
             {.init = output_init(build), .cut = Linear::Cut::kColumns}) {}

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    const Sequence& sequence = context.sequence;
    Saved f;
    f.projected = project_.begin_forward(exec, x, compute_, saved);
    open_gates(exec, f);
    Tensor seen;  // the window needs nothing of the recurrence
    const auto attend = [&] {
      project_.finish_queries(exec, x, f.projected);
      map_queries(exec, f);
      f.rotated = exec.empty({sequence.tokens(), qk_width()}, compute_);
      kernels::copy(exec, f.projected.view().columns(0, qk_width()), f.rotated);
      rotate(exec, sequence, f.rotated, Rotation::Direction::kForward);
      seen = window_.forward(exec, attention_inputs(f), {}, sequence, context.part("keys"), saved);
    };
    const Tensor out = recur(exec, f, context, attend, saved);
    kernels::scale(exec, out, static_cast<float>(o_.alpha), out);
    const Tensor mixed = exec.empty(out.shape(), compute_);  // attention keeps what it gave
    kernels::scale(exec, seen, static_cast<float>(o_.beta), mixed);
    kernels::add(exec, out, mixed, mixed);
    saved.push(std::move(f));
    return out_.forward(exec, mixed, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Sequence& sequence = context.sequence;
    const Tensor d_mixed = out_.backward(exec, in_type(exec, dy, compute_), DType::kF32, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor d = exec.empty(f.projected.shape(), compute_), d_out = exec.empty(d_mixed.shape());
    kernels::scale(exec, d_mixed, static_cast<float>(o_.alpha), d_out);
    const Read d_read = recur_backward(exec, f, context, d_out, saved);
    kernels::scale(exec, d_mixed, static_cast<float>(o_.beta), d_out);
    const Tensor d_seen = in_type(exec, d_out, compute_);
    window_.backward(exec, attention_inputs(f), {}, sequence, d_seen, context.part("keys"),
                     {query(d), key(d), value(d)}, saved);
    const View d_qk = d.view().columns(0, qk_width());
    rotate(exec, sequence, d_qk, Rotation::Direction::kBackward);
    kernels::add(exec, d_qk, d_read.qk, d_qk);
    kernels::add(exec, value(d), d_read.value, value(d));
    return project_.backward(exec, d, DType::kF32, saved);
  }

  double flops_per_token(int64_t length) const override {
    return 2.0 * static_cast<double>(hidden_) *
               static_cast<double>(project_.out() + h_.heads * h_.dv) +
           window_.flops_per_token(length) +
           std::visit([](const auto& r) { return r.flops_per_token(); }, recurrence_);
  }

 private:
  struct Saved {
    Tensor projected;  // [tokens, q | k | v]
    Tensor rotated;    // [tokens, q | k]
    Tensor mapped;     // [tokens, q | k ...] as the recurrence reads them
    Tensor pooled;     // per head, per slot: before the gate, f32
    Tensor
        log_decay;  // [tokens, kv_heads * dk], [tokens, heads] or [tokens, kv_heads * slots], f32
  };

  int64_t q_width() const { return h_.heads * h_.dk; }
  int64_t k_width() const { return h_.kv_heads * h_.dk; }
  int64_t qk_width() const { return q_width() + k_width(); }
  View query(const Tensor& t) const { return t.view().columns(0, q_width()); }
  View key(const Tensor& t) const { return t.view().columns(q_width(), k_width()); }
  View value(const Tensor& t) const { return t.view().columns(qk_width(), h_.kv_heads * h_.dv); }
  AttentionInputs attention_inputs(const Saved& f) const {
    return {query(f.rotated), key(f.rotated), value(f.projected)};
  }
  bool pools() const { return decay_ == Decay::kPerHead || decay_ == Decay::kPerSlot; }
  kernels::HeadPool pool() const {
    if (decay_ == Decay::kPerSlot) {
      return {.heads = h_.kv_heads, .sources = h_.kv_heads, .bins = o_.slots};
    }
    return {.heads = h_.heads,
            .sources = h_.kv_heads,
            .bins = 1,
            .factor = o_.form == "mamba2" ? -1.0f : 1.0f};
  }
  ConstView lower(Exec& exec) const {
    if (o_.lower_bound == 0.0) return {};
    return lower_.view(exec);
  }

  void rotate(Exec& exec, const Sequence& sequence, View qk, Rotation::Direction direction) const {
    rotation_.turn(exec, sequence, h_.heads, qk.columns(0, q_width()), direction);
    rotation_.turn(exec, sequence, h_.kv_heads, qk.columns(q_width(), k_width()), direction);
  }

  // From k to what the recurrence reads of it; q gets its place.
  void open_gates(Exec& exec, Saved& f) const {
    const int64_t tokens = f.projected.shape()[0];
    if (pools()) {
      f.pooled = exec.empty({tokens, pool().heads * pool().bins});
      f.log_decay = exec.empty(f.pooled.shape());
      kernels::head_pool_forward(exec, pool(), key(f.projected), f.pooled);
      kernels::decay_gate_forward(exec, gate_, f.pooled, f.log_decay);
    }
    if (decay_ == Decay::kPerSlot) {
      f.mapped = f.projected;
      return;
    }
    f.mapped = exec.empty({tokens, qk_width()}, compute_);
    if (!pools()) f.log_decay = exec.empty({tokens, k_width()});
    if (decay_ == Decay::kTied) {
      kernels::tied_gates_forward(exec, key(f.projected), lower(exec), f.log_decay, key(f.mapped));
      return;
    }
    kernels::head_softmax_forward(exec, h_.kv_heads, key(f.projected), key(f.mapped));
    if (!pools()) kernels::decay_gate_forward(exec, gate_, key(f.projected), f.log_decay);
  }

  void map_queries(Exec& exec, const Saved& f) const {
    if (decay_ == Decay::kPerSlot) return;
    kernels::head_softmax_forward(exec, h_.heads, query(f.projected), query(f.mapped));
  }

  // d [tokens, q | k]: from the gradients of what the recurrence read to those of q and k, in
  // place.
  void open_gates_backward(Exec& exec, const Saved& f, const Tensor& d,
                           const Tensor& d_decay) const {
    if (decay_ != Decay::kPerSlot) {
      kernels::head_softmax_backward(exec, h_.heads, query(f.mapped), query(d), query(d));
    }
    if (decay_ == Decay::kTied) {
      const Tensor ignored = exec.zeros({k_width()});
      const View d_lower = o_.lower_bound == 0.0 ? View{} : ignored.view();
      kernels::tied_gates_backward(
          exec, {key(f.projected), lower(exec), d_decay, key(d), key(d), d_lower});
      return;
    }
    if (decay_ != Decay::kPerSlot) {
      kernels::head_softmax_backward(exec, h_.kv_heads, key(f.mapped), key(d), key(d));
    }
    if (pools()) {
      kernels::decay_gate_backward(exec, gate_, f.pooled, d_decay, d_decay);
      kernels::head_pool_backward(exec, pool(), d_decay, key(d));
      return;
    }
    kernels::decay_gate_backward(exec, gate_, key(f.projected), d_decay, d_decay);
    kernels::add(exec, key(d), d_decay, key(d));
  }

  Tensor recur(Exec& exec, const Saved& f, const MixerContext& context,
               const std::function<void()>& meanwhile, SavedStack& saved) const {
    return std::visit(
        [&](const auto& r) {
          return r.forward(exec, {query(f.mapped), key(f.mapped), value(f.projected), f.log_decay},
                           context.sequence, context.part(kRecurrence), saved, meanwhile);
        },
        recurrence_);
  }

  // Gradients of q, k and v as far as the recurrence read them, f32: those of keys come from three
  // sides.
  struct Read {
    Tensor qk, value;
  };
  Read recur_backward(Exec& exec, const Saved& f, const MixerContext& context, const Tensor& d_out,
                      SavedStack& saved) const {
    const int64_t tokens = f.projected.shape()[0];
    const Read d{exec.empty({tokens, qk_width()}), exec.empty({tokens, h_.kv_heads * h_.dv})};
    const Tensor d_decay = exec.empty(f.log_decay.shape());
    std::visit(
        [&](const auto& r) {
          r.backward(exec, {query(f.mapped), key(f.mapped), value(f.projected), f.log_decay},
                     context.sequence, d_out, context.part(kRecurrence),
                     {query(d.qk), key(d.qk), d.value, d_decay}, saved);
        },
        recurrence_);
    open_gates_backward(exec, f, d.qk, d_decay);
    return d;
  }

  LigerOptions o_;
  HeadOptions h_;
  Decay decay_;
  kernels::DecayGate gate_;
  DType compute_;
  int64_t hidden_;
  HostTable<float> lower_;  // hgrn2, per key channel
  Linear project_;
  LigerRecurrence recurrence_;
  Rotation rotation_;
  AttentionRows window_;
  Linear out_;
};

}  // namespace

std::unique_ptr<Mixer> make_liger(const MixerBuild& build) {
  auto o = read_options<LigerOptions>(build.options, "liger");
  o.heads = resolve(build, o.heads);
  o.rotation = resolve(build, o.rotation);
  check_rotary(build, o.heads.dk, o.heads.dk, Rotates::kAlways);
  const auto only = [&](const char* option, const char* form) {
    if (o.form == form || !build.options.has(option)) return;
    throw ConfigError("{}: form = \"{}\" has no {}; leave it out, or set form = \"{}\"",
                      place_of(build.options, option), o.form, option, form);
  };
  only("lower_bound", "hgrn2");
  only("slots", "gsa");
  if (o.form == "hgrn2" || o.form == "rwkv6" || o.form == "mamba2") only("tau", "gla");
  if (o.slots > o.heads.dk) {
    throw ConfigError(
        "{} = {}: slots are means over channels of keys, so there are at most dk = {}; "
        "the nearest that works is {}",
        place_of(build.options, "slots"), o.slots, o.heads.dk, o.heads.dk);
  }
  if (o.slots == 0) o.slots = o.heads.dk;
  return std::make_unique<Liger>(build, o);
}

std::vector<FieldInfo> options_of_liger() { return describe<LigerOptions>(); }

}  // namespace weft
