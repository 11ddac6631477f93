// MoM, a mixture of memories. A router sends each token to top_k of several memories, which other
// tokens do not touch, and every token to a shared one:
//   o_t = sum over the chosen m of w_tm o^m_t + o^shared_t
//   y = o_proj( RMSNorm_head(o) * silu(g_proj x) )
// A memory is a recurrence of another mixer (layers/memory/inner_rule.h) over the tokens that were
// sent to it, with keys, values and gates of its own and, over these tokens alone, short
// convolutions that all memories share. Time order inside a memory is that of the document.
// The silu behind the convolutions is the only map of q, k and v: feature maps (bla's,
// lightning's), rotations (retnet's) and the silu that deltanet, gsa and hgrn2 have without
// convolutions belong to the layers of those mixers, which a memory does not have. Lengths of one
// do (delta rules, descent). Descent (ttt, titans) is plain and steps token by token: how far a
// memory is in a mini-batch would depend on what all sequence ranks before have sent to it.
#include <array>
#include <map>
#include <optional>

#include "kernels/routing/mixture.h"
#include "kernels/rows/elementwise.h"
#include "kernels/rows/gather.h"
#include "kernels/rows/norm.h"
#include "kernels/rows/rebased.h"
#include "layers/basic/cast.h"
#include "layers/basic/linear.h"
#include "layers/basic/short_conv.h"
#include "layers/context/mixer.h"
#include "layers/memory/inner_rule.h"
#include "layers/memory/memory_router.h"

namespace weft {
namespace {

struct MomOptions {
  int64_t heads = 0, dk = 0, dv = 0;
  HeadOptions resolved = {};  // the same, with their place among the layer's heads
  std::string inner = "gated_deltanet";
  MemoryOptions memories;
  bool single_kv_proj = false;
  bool short_conv = true;
  int64_t gate_rank = 16;
  bool output_gate = true;
};

void fields(FieldVisitor& f, MomOptions& c) {
  head_fields(f, c.heads, c.dk, c.dv);
  f.choice(
      "inner", c.inner,
      {"bla", "lightning", "retnet", "gla", "deltanet", "gated_deltanet", "kda", "rebased", "gfw",
       "gateloop", "ttt", "titans", "mamba2", "hgrn2", "rwkv6", "rwkv7", "gsa", "mlstm"},
      "how a memory is written and read: the recurrence of that mixer");
  f("memories", c.memories.memories, "memories that tokens are routed to",
    between(1, kLargestExtent));
  f("top_k", c.memories.top_k, "memories per token, at most memories", between(1, kLargestExtent));
  f("shared_memory", c.memories.shared, "one more memory, which sees every token");
  f("single_kv_proj", c.single_kv_proj,
    "keys, values and gates from one projection for all memories");
  f("short_conv", c.short_conv,
    "convolve q, k and v over the last four tokens of the memory, then silu; false: as projected");
  f("gate_rank", c.gate_rank,
    "inner = \"gla\", \"kda\", \"rwkv6\", \"rwkv7\": rank of the projections that give the gates",
    between(1, kLargestExtent));
  f("aux_loss", c.memories.aux_loss, "coefficient of the loss that balances the memories",
    at_least(0));
  f("output_gate", c.output_gate, "multiply the output by silu of a projection of the input");
}

std::vector<Linear::Part> parts_of(const MomOptions& o) {
  std::vector<Linear::Part> parts = {{"q_proj", o.heads * o.dk, o.dk}};
  if (o.output_gate) parts.push_back({"g_proj", o.heads * o.dv, o.dv});
  return parts;
}

MemorySpace space_of(const MomOptions& o) {
  return {o.memories.memories, o.memories.shared, o.single_kv_proj};
}

MemoryLinear::Options projection(const Build& build, const MomOptions& o, const char* name,
                                 const char* shared_name, int64_t width) {
  return {.name = name,
          .shared_name = shared_name,
          .out = o.heads * width,
          .in = build.hidden,
          .unit = width};
}

std::unique_ptr<InnerRule> inner_of(const Build& build, const MomOptions& o) {
  const InnerBuild inner{build, space_of(o), o.heads, o.dk, o.dv, o.gate_rank, o.resolved};
  return make_inner_rule(inner, o.inner);
}

std::array<std::optional<ShortConv>, 3> convs_of(const Build& build, const MomOptions& o,
                                                 const InnerRule& inner) {
  std::array<std::optional<ShortConv>, 3> convs;
  if (!o.short_conv) return convs;
  const ShortConv::Options keys{o.heads * o.dk, o.dk}, values{o.heads * o.dv, o.dv};
  convs[0].emplace(build, "q_conv1d", keys);
  if (!inner.keys_are_gates()) convs[1].emplace(build, "k_conv1d", keys);
  convs[2].emplace(build, "v_conv1d", values);
  return convs;
}

class Mom final : public Mixer {
 public:
  Mom(const MixerBuild& build, const MomOptions& o)
      : o_(o),
        compute_(build.compute),
        hidden_(build.hidden),
        space_(space_of(o)),
        router_(build, o.memories),
        project_(build, parts_of(o), build.hidden,
                 {.cut = Linear::Cut::kRows,
                  .queries = {0, o.heads * o.dk},
                  .gate = {o.heads * o.dk, o.output_gate ? o.heads * o.dv : 0}}),
        k_proj_(build, space_, projection(build, o, "k_proj", "shared_k", o.dk)),
        v_proj_(build, space_, projection(build, o, "v_proj", "shared_v", o.dv)),
        inner_(inner_of(build, o)),
        convs_(convs_of(build, o, *inner_)),
        norm_(build.declare({.name = build.scope + "o_norm.weight",
                             .global = {o.dv},
                             .partial_over = {Axis::kTensor},
                             .init = Init::constant(1.0),
                             .weight_decay = false,
                             .f32 = true})),
        out_(build, {{"o_proj", build.hidden}}, o.heads * o.dv,
             {.init = output_init(build), .cut = Linear::Cut::kColumns}) {}

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override {
    Saved f;
    f.x = x;
    f.routing = router_.forward(exec, x, context.step);
    f.rows = rows_of_memories(exec, context.sequence, f.routing.index, o_.memories.all());
    f.projected = project_.begin_forward(exec, x, compute_, saved);
    MemoryStates states(exec, context.state, o_.memories.all());
    send(exec, states, f, saved);
    f.out = inner_->forward(exec, inputs(f), states.part(kRecurrence), saved, [&] {
      project_.finish_queries(exec, x, f.projected);
      kernels::gather_rows(exec, query(f.projected), f.rows.tokens(), f.sent.q);
      convolve(exec, kQ, states, f, saved);
      project_.finish_gate(exec, x, f.projected);
    });
    states.give_back(exec);
    f.mixed = exec.empty({context.sequence.tokens(), o_.heads * o_.dv}, compute_);
    kernels::mix_rows_forward(exec, f.rows.order.row, f.out, f.routing.weight, f.mixed);
    f.inv_rms = exec.empty({context.sequence.tokens(), o_.heads});
    const Tensor y = exec.empty(f.mixed.shape(), compute_);
    kernels::head_norm_forward(exec, head_norm(), f.mixed, gate(f.projected), norm_.value, y,
                               f.inv_rms);
    saved.push(std::move(f));
    return out_.forward(exec, y, DType::kF32, saved);
  }

  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override {
    const Tensor d_y = out_.backward(exec, in_type(exec, dy, compute_), DType::kF32, saved);
    const Saved f = saved.pop<Saved>();
    const Tensor d = exec.empty(f.projected.shape(), compute_);
    const Tensor d_mixed = exec.empty(f.mixed.shape());
    kernels::head_norm_backward(exec, head_norm(), d_y, f.mixed, gate(f.projected), norm_.value,
                                f.inv_rms, d_mixed, gate(d), norm_.grad);
    project_.begin_backward(exec, d, f.x, saved);
    const Tensor d_out = exec.empty(f.out.shape()), d_weight = exec.empty(f.routing.weight.shape());
    kernels::mix_rows_backward(exec, f.rows.order.row,
                               {f.out, f.routing.weight, d_mixed, d_out, d_weight});

    const Tensor d_rows = exec.zeros({space_.count(f.rows), hidden_});
    const Three d_sent = empty_like(exec, f.read);
    MemoryStates states(exec, context.state, o_.memories.all());
    inner_->backward(exec, inputs(f), d_out, states.part(kRecurrence),
                     {d_sent.q, d_sent.k, d_sent.v, d_rows}, saved);
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

  double flops_per_token(int64_t) const override {
    const auto visits = static_cast<double>(o_.memories.top_k + (o_.memories.shared ? 1 : 0));
    const double width = static_cast<double>(o_.heads * (2 * o_.dk + o_.dv));
    const double conv = !convs_[0] ? 0.0 : 2.0 * ShortConv::kTaps * width;
    const double projections =
        k_proj_.flops_per_row() + v_proj_.flops_per_row() + inner_->gate_flops();
    return 2.0 * static_cast<double>(hidden_) *
               static_cast<double>(o_.memories.memories + project_.out() + o_.heads * o_.dv) +
           (space_.single ? 1.0 : visits) * projections + visits * (conv + inner_->flops_per_row());
  }

 private:
  struct Three {
    Tensor q, k, v;  // [rows, heads * dk], [rows, heads * dk], [rows, heads * dv]
  };
  struct Saved {
    Tensor x;
    MemoryRouting routing;
    MemoryRows rows;
    Tensor projected;  // [tokens, q | gate]
    Three sent, read;  // before and after the convolutions; the same without
    Tensor out;        // [rows, heads * dv]
    Tensor mixed;      // [tokens, heads * dv]
    Tensor inv_rms;    // [tokens, heads]
  };

  enum Part { kQ, kK, kV };

  View query(const Tensor& projected) const {
    return projected.view().columns(0, o_.heads * o_.dk);
  }
  View gate(const Tensor& projected) const {
    if (!o_.output_gate) return {};
    return projected.view().columns(o_.heads * o_.dk, o_.heads * o_.dv);
  }
  kernels::HeadNorm head_norm() const {
    return {
        .heads = o_.heads,
        .epsilon = kHeadNormEpsilon,
        .gate = o_.output_gate ? kernels::GateActivation::kSilu : kernels::GateActivation::kNone};
  }
  static InnerInputs inputs(const Saved& f) { return {f.x, f.rows, f.read.q, f.read.k, f.read.v}; }
  Three empty_like(Exec& exec, const Three& t) const {
    return {exec.empty(t.q.shape(), compute_), exec.empty(t.k.shape(), compute_),
            exec.empty(t.v.shape(), compute_)};
  }

  // What the memories read of their tokens; queries get their place.
  void send(Exec& exec, MemoryStates& states, Saved& f, SavedStack& saved) const {
    f.sent.q = exec.empty({f.rows.count(), o_.heads * o_.dk}, compute_);
    f.sent.k = space_.spread(exec, f.rows, k_proj_.forward(exec, f.x, f.rows, compute_));
    f.sent.v = space_.spread(exec, f.rows, v_proj_.forward(exec, f.x, f.rows, compute_));
    f.read = f.sent;
    if (convs_[kQ]) f.read.q = exec.empty(f.sent.q.shape(), compute_);
    if (convs_[kK]) f.read.k = exec.empty(f.sent.k.shape(), compute_);
    if (convs_[kV]) f.read.v = exec.empty(f.sent.v.shape(), compute_);
    convolve(exec, kK, states, f, saved);
    convolve(exec, kV, states, f, saved);
  }
  void convolve(Exec& exec, Part which, MemoryStates& states, const Saved& f,
                SavedStack& saved) const {
    if (!convs_[which]) return;
    const Tensor* from[] = {&f.sent.q, &f.sent.k, &f.sent.v};
    const Tensor* to[] = {&f.read.q, &f.read.k, &f.read.v};
    convs_[which]->forward(exec, *from[which], *to[which], f.rows.sequence, states.get(), saved);
  }

  // d_sent enters as the gradient of what was read; d gets the queries' part, d_rows is added to.
  void send_backward(Exec& exec, MemoryStates& states, const Saved& f, Three d_sent,
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

  MomOptions o_;
  DType compute_;
  int64_t hidden_;
  MemorySpace space_;
  MemoryRouter router_;
  Linear project_;
  MemoryLinear k_proj_, v_proj_;
  std::unique_ptr<InnerRule> inner_;
  std::array<std::optional<ShortConv>, 3> convs_;  // q, k, v; not there: as projected
  Parameter& norm_;                                // [dv]
  Linear out_;
};

// Mixers that are none of the choices, and why: a name that resembles theirs would not help.
void refuse_inner_mixer(const OptionTable& options) {
  static const std::map<std::string, std::string> kReasons = {
      {"softmax", "attends to all tokens and has no memory of fixed size"},
      {"fox", "attends to all tokens and has no memory of fixed size"},
      {"mla", "attends to all tokens and has no memory of fixed size"},
      {"liger", "attends to the tokens of a window beside its recurrence"},
      {"s4", "has a state per channel and no heads, nor a query that memories could share"},
      {"mamba", "has a state per channel and no heads, nor a query that memories could share"},
      {"mom", "is a mixture itself"}};
  for (const ConfigEntry& entry : std::get<ConfigNode::Table>(options.node().value)) {
    const auto* inner = std::get_if<std::string>(&entry.node.value);
    if (entry.key != "inner" || inner == nullptr) continue;
    const auto reason = kReasons.find(*inner);
    if (reason == kReasons.end()) continue;
    throw ConfigError(
        "{} = \"{}\" {}; a memory is a linear recurrence with heads, \"{}\" for example (weft info "
        "--mixers mom lists them)",
        place_of(options, "inner"), *inner, reason->second,
        *inner == "mamba" ? "mamba2" : MomOptions{}.inner);
  }
}

}  // namespace

std::unique_ptr<Mixer> make_mom(const MixerBuild& build) {
  refuse_inner_mixer(build.options);
  auto o = read_options<MomOptions>(build.options, "mom");
  const HeadOptions heads = resolve(build, {.heads = o.heads, .dk = o.dk, .dv = o.dv});
  o.heads = heads.heads, o.dk = heads.dk, o.dv = heads.dv, o.resolved = heads;
  if (o.memories.top_k > o.memories.memories) {
    throw ConfigError(
        "{} = {}: a token cannot go to more memories than there are, memories = {}; "
        "the nearest that works is top_k = {}",
        place_of(build.options, "top_k"), o.memories.top_k, o.memories.memories,
        o.memories.memories);
  }
  if (!has_gate_rank(o.inner) && build.options.has("gate_rank")) {
    throw ConfigError(
        "{}: memories of inner = \"{}\" have no gate of low rank; leave gate_rank out, "
        "or set inner = \"gla\"",
        place_of(build.options, "gate_rank"), o.inner);
  }
  if (o.inner == "rebased" && o.dk > kernels::kWidestRebased) {
    throw ConfigError(
        "{} = {}: the state of inner = \"rebased\" has dk (dk + 1) / 2 rows per head; use at most "
        "{} "
        "(published: 16)",
        place_of(build.options, "dk"), o.dk, kernels::kWidestRebased);
  }
  return std::make_unique<Mom>(build, o);
}

std::vector<FieldInfo> options_of_mom() { return describe<MomOptions>(); }

}  // namespace weft
