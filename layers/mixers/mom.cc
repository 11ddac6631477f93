// MoM, a mixture of memories. A router sends each token to top_k of several memories, which other
// tokens do not touch, and every token to a shared one:
//   o_t = sum over the chosen m of w_tm o^m_t + o^shared_t
//   y = o_proj( RMSNorm_head(o) * silu(g_proj x) )
// A memory runs the rule of another mixer (layers/mixers/linear_rule.h) over the tokens that were
// sent to it, with keys, values and gates of its own and, over these tokens alone, short
// convolutions that all memories share. Time order inside a memory is that of the document.
// The silu behind the convolutions is the only map of q, k and v: feature maps (bla's,
// lightning's), rotations (retnet's) and the silu that deltanet, gsa and hgrn2 have without
// convolutions belong to the layers of those mixers, which a memory does not have. Lengths of one
// do (delta rules, descent). Descent (ttt, titans) is plain and steps token by token: how far a
// memory is in a mini-batch would depend on what all sequence ranks before have sent to it.
#include <algorithm>
#include <map>

#include "kernels/rows/rebased.h"
#include "layers/mixers/memory_mixer.h"

namespace weft {
namespace {

struct MomOptions {
  int64_t heads = 0, dk = 0, dv = 0;
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
  if (o.memories.top_k > o.memories.memories) {
    throw ConfigError(
        "{} = {}: a token cannot go to more memories than there are, memories = {}; "
        "the nearest that works is top_k = {}",
        place_of(build.options, "top_k"), o.memories.top_k, o.memories.memories,
        o.memories.memories);
  }
  const LinearRule rule = memory_rule(o.inner)({build, heads, o.gate_rank});
  const bool low_rank = std::any_of(rule.gates.begin(), rule.gates.end(),
                                    [](const GateSpec& gate) { return gate.rank > 0; });
  if (!low_rank && build.options.has("gate_rank")) {
    throw ConfigError(
        "{}: memories of inner = \"{}\" have no gate of low rank; leave gate_rank out, "
        "or set inner = \"gla\"",
        place_of(build.options, "gate_rank"), o.inner);
  }
  if (o.inner == "rebased" && heads.dk > kernels::kWidestRebased) {
    throw ConfigError(
        "{} = {}: the state of inner = \"rebased\" has dk (dk + 1) / 2 rows per head; use at most "
        "{} "
        "(published: 16)",
        place_of(build.options, "dk"), heads.dk, kernels::kWidestRebased);
  }
  return std::make_unique<MemoryMixer>(build, MemorySpec{.heads = heads,
                                                         .memories = o.memories,
                                                         .single_projection = o.single_kv_proj,
                                                         .short_conv = o.short_conv,
                                                         .output_gate = o.output_gate,
                                                         .rule = rule});
}

std::vector<FieldInfo> options_of_mom() { return describe<MomOptions>(); }

}  // namespace weft
