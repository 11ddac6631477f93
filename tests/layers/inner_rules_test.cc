// Every rule that a memory of a mixture can have, compared with the plain loop of its recurrence:
// its gates, normalization of queries and keys, scale of reads. The mixture around a rule is common
// to all (golden cases of three, mom_test.cc).
#include <gtest/gtest.h>

#include <map>

#include "core/host_access.h"
#include "core/memory/host_table.h"
#include "layers/mixers/memory_gates.h"
#include "tests/layers/mixer_cases.h"
#include "tests/layers/naive_mixers.h"

namespace weft::test {
namespace {

using naive::Numbers;

constexpr int64_t kTokens = 71;  // more than a chunk
constexpr int64_t kHeads = 2, kKey = 8, kValue = 12, kRank = 5;

// One memory that receives every token.
class InnerRules : public Gradients, public testing::WithParamInterface<std::string> {
 public:
  Numbers weight(const std::string& name) { return numbers(store.find("t." + name)->master); }
  // A projection of x; with `pair` a low-rank one.
  Numbers gate(const std::string& name) { return biased(name + "_proj", x_, kHidden); }
  Numbers pair(const std::string& name, double (*between)(double)) {
    const Numbers low = naive::project(x_, weight(name + "_proj.0.weight"), kHidden);
    return biased(name + "_proj.1", naive::map(low, between), kRank);
  }
  naive::Rows rows(double scale) const {
    return {kTokens, kHeads, kKey, kValue, scale, numbers(q_), numbers(k_), numbers(v_)};
  }
  // Queries and keys of length one.
  naive::Rows unit_rows() const {
    naive::Rows r = rows(kScale);
    r.q = naive::normalized(r.q, kKey, 1e-6, naive::Of::kSum);
    r.k = naive::normalized(r.k, kKey, 1e-6, naive::Of::kSum);
    return r;
  }
  static constexpr double kScale = 0.35355339059327379;  // 8^{-1/2}

 protected:
  Numbers biased(const std::string& name, const Numbers& x, int64_t in) {
    const Parameter* bias = store.find("t." + name + ".bias");
    return naive::project(x, weight(name + ".weight"), in,
                          bias == nullptr ? Numbers{} : numbers(bias->master));
  }

  Tensor run() {
    const HeadOptions heads{
        .heads = kHeads, .kv_heads = kHeads, .dk = kKey, .dv = kValue, .all_heads = kHeads};
    const Build b = build();
    const LinearRule rule = memory_rule(GetParam())({b, heads, kRank});
    const MemoryGates gates(b, {.routed = 1}, kHeads, rule.gates);
    const auto core = rule.core(b);
    prepare();
    const Sequence sequence = make_sequence({0, kTokens});
    const Tensor index = rig.exec.zeros({kTokens, 1}, DType::kI32);
    const MemoryRows memory = rows_of_memories(rig.exec, sequence, index, 1);
    SavedStack saved;
    const Tensor q = copy(q_), k = copy(k_);  // a core may change them
    CoreInputs in{q, k, v_, std::vector<ConstView>(kMostGates)};
    const HostTable<float> log_decay(rule.log_decay);
    if (!log_decay.empty()) in.gates[0] = log_decay.view(rig.exec);
    const std::vector<MemoryGates::Saved> made = gates.forward(rig.exec, input_, memory);
    for (size_t i = 0; i < made.size(); ++i) in.gates[rule.gates[i].slot] = made[i].value;
    return core->forward(rig.exec, in, memory.sequence, nullptr, saved, [] {});
  }
  Tensor copy(const Tensor& t) {
    const Tensor to = rig.exec.empty(t.shape());
    std::copy_n(host<float>(t), t.elements(), host<float>(to));
    return to;
  }

  Tensor input_ = rig.normal("x", {kTokens, kHidden});
  Numbers x_ = numbers(input_);
  Tensor q_ = rig.normal("q", {kTokens, kHeads*kKey}), k_ = rig.normal("k", {kTokens, kHeads*kKey}),
         v_ = rig.normal("v", {kTokens, kHeads*kValue});
};

using naive::Here;
double same(double x) { return x; }
double zero(const Here&, int64_t, int64_t) { return 0.0; }
naive::LogDecay fixed(double first, double second) {
  return [=](const Here& x, int64_t, int64_t) { return x.h == 0 ? first : second; };
}
naive::LogDecay per_head(const Numbers& g) {
  return [&g](const Here& x, int64_t, int64_t) { return x.one(g); };
}
naive::LogDecay per_key(const Numbers& g) {
  return [&g](const Here& x, int64_t i, int64_t) { return x.of(g, kKey, i); };
}
// -e^{A_log} softplus(z + dt_bias), A_log per head, dt_bias per number of z.
Numbers decay(InnerRules& in, Numbers z) {
  const Numbers a = in.weight("A_log"), bias = in.weight("dt_bias");
  const size_t width = bias.size() / a.size();
  for (size_t i = 0; i < z.size(); ++i) {
    const size_t channel = i % bias.size();
    z[i] = -std::exp(a[channel / width]) * naive::softplus(z[i] + bias[channel]);
  }
  return z;
}
Numbers log_sigmoid(const Numbers& z, double divisor) {
  return naive::map(z, [=](double x) { return naive::log_sigmoid(x) / divisor; });
}
Numbers sigmoid(const Numbers& z) { return naive::map(z, naive::sigmoid); }
Numbers capped(const Numbers& z) {
  return naive::map(z, [](double x) { return 15 * std::tanh(x / 15); });
}

Numbers hgrn2(InnerRules& in) {  // keys are the complements of forget gates
  naive::Rows r = in.rows(InnerRules::kScale);
  const Numbers g = naive::map(r.k, naive::log_sigmoid);
  r.k = naive::map(g, [](double x) { return 1 - std::exp(x); });
  return naive::decayed(r, per_key(g));
}
Numbers gfw(InnerRules& in) {
  const Numbers g = log_sigmoid(in.gate("a"), 16), c = log_sigmoid(in.gate("c"), 16);
  return naive::decayed(in.rows(InnerRules::kScale), [&](const Here& x, int64_t i, int64_t j) {
    return x.of(g, kKey, i) + x.of(c, kValue, j);
  });
}
Numbers rebased(InnerRules& in) {  // (q . k)^2 / dk of layer-normed q and k; gamma = 1, beta = 0
  const auto norm = [](Numbers x) {
    for (size_t begin = 0; begin < x.size(); begin += kKey) {
      double mean = 0;
      for (size_t i = 0; i < kKey; ++i) mean += x[begin + i] / kKey;
      for (size_t i = 0; i < kKey; ++i) x[begin + i] -= mean;
    }
    return naive::normalized(x, kKey, 1e-5, naive::Of::kMean);
  };
  naive::Rows r = in.rows(1.0);
  r.q = norm(r.q), r.k = norm(r.k);
  return naive::attend(
      r, [](double score) { return score * score / kKey; }, 1e-5);
}
Numbers mamba2(InnerRules& in) {
  naive::Rows r = in.rows(1.0);
  const Numbers a = in.weight("A_log"), bias = in.weight("dt_bias"), skip = in.weight("D");
  Numbers dt = in.gate("dt"), g = dt;
  for (size_t i = 0; i < dt.size(); ++i) {
    dt[i] = naive::softplus(dt[i] + bias[i % kHeads]);
    g[i] = -dt[i] * std::exp(a[i % kHeads]);
  }
  const Numbers v = r.v;
  for (size_t i = 0; i < v.size(); ++i) r.v[i] *= dt[i / kValue];
  Numbers out = naive::decayed(r, per_head(g));
  for (size_t i = 0; i < v.size(); ++i) out[i] += skip[i / kValue % kHeads] * v[i];
  return out;
}
Numbers rwkv7(InnerRules& in) {
  naive::Rows r = in.rows(1.0);
  const Numbers g = naive::map(in.pair("w", std::tanh),
                               [](double z) { return -std::exp(-0.5) * naive::sigmoid(z); });
  const Numbers a = sigmoid(in.pair("a", same)), k_k = in.weight("k_k"), k_a = in.weight("k_a");
  constexpr size_t kKeys = kHeads * kKey;
  Numbers kappa = r.k;
  for (size_t i = 0; i < kappa.size(); ++i) kappa[i] *= k_k[i % kKeys];
  kappa = naive::normalized(kappa, kKey, 0.0, naive::Of::kSum);
  Numbers alpha = kappa, beta = kappa;
  for (size_t i = 0; i < kappa.size(); ++i) {
    alpha[i] = -kappa[i];
    beta[i] = kappa[i] * a[i];
    r.k[i] *= 1 + (a[i] - 1) * k_a[i % kKeys];
  }
  return naive::rank_one(r, g, alpha, beta);
}

using Rule = std::function<Numbers(InnerRules&)>;
const std::map<std::string, Rule>& loops() {
  constexpr double s = InnerRules::kScale;
  const Numbers none(kTokens * kHeads);
  static const std::map<std::string, Rule> table = {
      {"bla", [](InnerRules& in) { return naive::decayed(in.rows(s), zero); }},
      {"lightning",
       [](InnerRules& in) {
         return naive::decayed(in.rows(1.0), fixed(-std::exp2(-4), -std::exp2(-8)));
       }},
      {"retnet",
       [](InnerRules& in) {
         return naive::decayed(in.rows(s), fixed(std::log(1 - 1 / 32.0), std::log(1 - 1 / 64.0)));
       }},
      {"gla",
       [](InnerRules& in) {
         const Numbers g = log_sigmoid(in.pair("gk", same), 16);
         return naive::decayed(in.rows(s), per_key(g));
       }},
      {"hgrn2", hgrn2},
      {"gfw", gfw},
      {"gateloop",
       [](InnerRules& in) {
         return naive::complex_decay(in.rows(s), log_sigmoid(in.gate("a"), 16), in.gate("p"));
       }},
      {"gsa",
       [](InnerRules& in) {
         return naive::slots(in.rows(1.0), log_sigmoid(in.gate("f"), 8), kKey);
       }},
      {"deltanet",
       [](InnerRules& in) { return naive::delta(in.unit_rows(), sigmoid(in.gate("b")), zero); }},
      {"gated_deltanet",
       [](InnerRules& in) {
         const Numbers g = decay(in, in.gate("a"));
         return naive::delta(in.unit_rows(), sigmoid(in.gate("b")), per_head(g));
       }},
      {"kda",
       [](InnerRules& in) {
         const Numbers g = decay(in, in.pair("f", same));
         return naive::delta(in.unit_rows(), sigmoid(in.gate("b")), per_key(g));
       }},
      {"ttt",
       [none](InnerRules& in) {
         return naive::momentum(in.unit_rows(), sigmoid(in.gate("eta")), none, none);
       }},
      {"titans",
       [](InnerRules& in) {
         return naive::momentum(in.unit_rows(), sigmoid(in.gate("theta")),
                                sigmoid(in.gate("alpha")), sigmoid(in.gate("eta")));
       }},
      {"rebased", rebased},
      {"mamba2", mamba2},
      {"rwkv6",
       [](InnerRules& in) {
         const Numbers g =
             naive::map(in.pair("w", std::tanh), [](double z) { return -std::exp(z); });
         return naive::bonus(in.rows(1.0), g, in.weight("bonus"));
       }},
      {"rwkv7", rwkv7},
      {"mlstm", [](InnerRules& in) {
         return naive::mlstm(in.rows(s), capped(in.gate("i")), capped(in.gate("f")));
       }}};
  return table;
}

TEST_P(InnerRules, GiveWhatAPlainLoopGives) {
  const auto loop = loops().find(GetParam());
  ASSERT_NE(loop, loops().end()) << "a rule without a plain loop to be compared with";
  const Tensor out = run();
  EXPECT_TRUE(Near(out, loop->second(*this), kTolerance));
}

INSTANTIATE_TEST_SUITE_P(All, InnerRules, testing::ValuesIn(inner_rules()), name_of_case);

}  // namespace
}  // namespace weft::test
