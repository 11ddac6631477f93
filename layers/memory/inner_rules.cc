// Which recurrences memories may have, by the name of the mixer: a recurrence, its gates, and what
// is done to queries and keys. Output norms and gates are those of the mixture.
#include <cmath>
#include <functional>
#include <map>

#include "layers/basic/rwkv6_start.h"
#include "layers/memory/inner_gated.h"
#include "layers/recurrence/complex_diagonal.h"
#include "layers/recurrence/delta.h"
#include "layers/recurrence/diagonal.h"
#include "layers/recurrence/fixed_decays.h"
#include "layers/recurrence/mlstm.h"
#include "layers/recurrence/momentum.h"
#include "layers/recurrence/rank_one.h"
#include "layers/recurrence/scalar.h"
#include "layers/recurrence/slots.h"
#include "layers/recurrence/two_sided.h"

namespace weft {
namespace {

using Map = MemoryGate::Map;
using Made = std::unique_ptr<InnerRule>;

HeadOptions heads_of(const InnerBuild& b) { return {b.heads, b.heads, b.dk, b.dv}; }
float scale_of(const InnerBuild& b) { return 1.0f / std::sqrt(static_cast<float>(b.dk)); }

InnerSlot gate(const MemoryGate::Options& options) { return {.gate = options}; }
// What becomes a log decay per key channel.
InnerSlot channel_decay(const InnerBuild& b) {
  return gate({.name = "a", .width = b.dk, .map = Map::kLogSigmoid, .factor = 16.0f, .bias = true});
}

Made fixed(const InnerBuild& b, float scale, std::vector<float> log_decay) {
  return std::make_unique<InnerGated<ScalarRecurrence, 1>>(
      b, ScalarRecurrence::Options{.heads = heads_of(b), .scale = scale},
      std::array{InnerSlot{.numbers = std::move(log_decay)}});
}
Made bla(const InnerBuild& b) { return fixed(b, scale_of(b), {}); }
Made lightning(const InnerBuild& b) {
  return fixed(b, 1.0f, b.here.here(alibi_log_decays(b.here.all_heads)));
}
Made retnet(const InnerBuild& b) {
  return fixed(b, scale_of(b), b.here.here(retnet_log_decays(b.here.all_heads)));
}

// Published for gla: xavier uniform with gain 2^{-5/2}.
Init xavier(int64_t in, int64_t out) {
  const double limit = std::exp2(-2.5) * std::sqrt(6.0 / static_cast<double>(in + out));
  return Init::uniform(-limit, limit);
}

Made gla(const InnerBuild& b) {
  return std::make_unique<InnerGated<DiagonalRecurrence, 1>>(
      b, DiagonalRecurrence::Options{heads_of(b), scale_of(b)},
      std::array{gate({.name = "gk",
                       .width = b.dk,
                       .map = Map::kLogSigmoid,
                       .factor = 16.0f,
                       .rank = b.gate_rank,
                       .bias = true,
                       .pair = std::pair{xavier(b.build.hidden, b.gate_rank),
                                         xavier(b.gate_rank, b.build.whole(b.heads * b.dk))}})});
}

// Decays -e^{w}, w of low rank with a tanh, and a bonus for the token itself.
Made rwkv6(const InnerBuild& b) {
  const int64_t channels = b.here.all_heads * b.dk;
  const Rwkv6Start start(b.build);
  Parameter& bonus = b.build.declare({.name = b.build.scope + "bonus",
                                      .global = {b.heads, b.dk},
                                      .splits = {Split{.dim = 0, .axis = Axis::kTensor}},
                                      .init = start.bonus(channels),
                                      .weight_decay = false,
                                      .f32 = true});
  return std::make_unique<InnerGated<DiagonalRecurrence, 2>>(
      b, DiagonalRecurrence::Options{heads_of(b), 1.0f},
      std::array{gate({.name = "w",
                       .width = b.dk,
                       .map = Map::kMinusExp,
                       .rank = b.gate_rank,
                       .between = kernels::Activation::kTanh,
                       .bias = true,
                       .bias_init = start.decay(channels),
                       // A deviation of zero, not zeros: tests put numbers in its place.
                       .pair = std::pair{Init::normal(0.0), Init::uniform(-0.01, 0.01)}}),
                 InnerSlot{.weight = &bonus}});
}

Made gfw(const InnerBuild& b) {
  return std::make_unique<InnerGated<TwoSidedRecurrence, 2>>(
      b, TwoSidedRecurrence::Options{heads_of(b), scale_of(b)},
      std::array{channel_decay(b), gate({.name = "c",
                                         .width = b.dv,
                                         .map = Map::kLogSigmoid,
                                         .factor = 16.0f,
                                         .bias = true})});
}
Made gateloop(const InnerBuild& b) {
  return std::make_unique<InnerGated<ComplexDiagonalRecurrence, 2>>(
      b, ComplexDiagonalRecurrence::Options{heads_of(b), scale_of(b)},
      std::array{channel_decay(b), gate({.name = "p", .width = b.dk, .bias = true})});
}
// As many slots as a key has channels.
Made gsa(const InnerBuild& b) {
  return std::make_unique<InnerGated<SlotsRecurrence, 1>>(
      b, SlotsRecurrence::Options{heads_of(b), b.dk, 1.0f},
      std::array{gate({.name = "f", .width = b.dk, .map = Map::kLogSigmoid, .factor = 8.0f})});
}

DeltaRecurrence::Options delta_of(const InnerBuild& b) {
  return {b.heads, b.heads, b.dk, b.dv, scale_of(b)};
}
InnerSlot strength() { return gate({.name = "b", .map = Map::kSigmoid}); }

Made deltanet(const InnerBuild& b) {
  return std::make_unique<InnerGated<DeltaRecurrence, 2>>(
      b, delta_of(b), std::array{strength(), InnerSlot{}}, UnitLength::kYes);
}
Made gated_deltanet(const InnerBuild& b) {
  return std::make_unique<InnerGated<DeltaRecurrence, 2>>(
      b, delta_of(b), std::array{strength(), gate({.name = "a", .map = Map::kDecay})},
      UnitLength::kYes);
}
Made ttt(const InnerBuild& b) {
  return std::make_unique<InnerGated<DeltaRecurrence, 2>>(
      b, delta_of(b),
      std::array{gate({.name = "eta", .map = Map::kSigmoid, .bias = true}), InnerSlot{}},
      UnitLength::kYes);
}
Made kda(const InnerBuild& b) {
  return std::make_unique<InnerGated<RankOneRecurrence, 3>>(
      b, RankOneRecurrence::Options{b.heads, b.dk, b.dv, scale_of(b)},
      std::array{gate({.name = "f",
                       .width = b.dk,
                       .map = Map::kDecay,
                       .rank = b.gate_rank,
                       .slowest = 1.0}),
                 InnerSlot{}, strength()},
      UnitLength::kYes);
}
Made titans(const InnerBuild& b) {
  const auto rate = [](const char* name, double start) {
    return gate(
        {.name = name, .map = Map::kSigmoid, .bias = true, .bias_init = Init::constant(start)});
  };
  return std::make_unique<InnerGated<MomentumRecurrence, 3>>(
      b,
      MomentumRecurrence::Options{
          .heads = b.heads, .dk = b.dk, .dv = b.dv, .scale = scale_of(b), .momentum = true},
      std::array{rate("theta", 0.0), rate("alpha", -4.0), rate("eta", 0.0)}, UnitLength::kYes);
}

Made mlstm(const InnerBuild& b) {
  const int64_t heads = b.here.all_heads;
  const auto open = [heads](int64_t n) {  // the later the head, the longer it remembers
    return heads == 1 ? 3.0
                      : 3.0 + 3.0 * static_cast<double>(n % heads) / static_cast<double>(heads - 1);
  };
  const auto capped = [](const char* name, const Init& start) {  // projections start at zero
    return gate({.name = name,
                 .map = Map::kCapped,
                 .factor = 15.0f,
                 .bias = true,
                 .bias_init = start,
                 .init = Init::zeros()});
  };
  return std::make_unique<InnerGated<MlstmRecurrence, 2>>(
      b, MlstmRecurrence::Options{b.heads, b.dk, b.dv, scale_of(b)},
      std::array{capped("i", Init::normal(0.1)), capped("f", Init::each(open))});
}

using Maker = std::function<Made(const InnerBuild&)>;
const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> table = {{"bla", bla},
                                                     {"deltanet", deltanet},
                                                     {"gated_deltanet", gated_deltanet},
                                                     {"gateloop", gateloop},
                                                     {"gfw", gfw},
                                                     {"gla", gla},
                                                     {"gsa", gsa},
                                                     {"hgrn2", make_inner_hgrn2},
                                                     {"kda", kda},
                                                     {"lightning", lightning},
                                                     {"mamba2", make_inner_mamba2},
                                                     {"mlstm", mlstm},
                                                     {"rebased", make_inner_rebased},
                                                     {"retnet", retnet},
                                                     {"rwkv6", rwkv6},
                                                     {"rwkv7", make_inner_rwkv7},
                                                     {"titans", titans},
                                                     {"ttt", ttt}};
  return table;
}

}  // namespace

bool has_gate_rank(const std::string& name) {
  return name == "gla" || name == "kda" || name == "rwkv6" || name == "rwkv7";
}

std::unique_ptr<InnerRule> make_inner_rule(const InnerBuild& inner, const std::string& name) {
  const auto found = makers().find(name);
  WEFT_CHECK(found != makers().end(), "memories of {}", name);
  return found->second(inner);
}

}  // namespace weft
