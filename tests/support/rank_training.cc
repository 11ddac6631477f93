#include "tests/support/rank_training.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "core/host_access.h"
#include "parallel/comm/host_group.h"
#include "parallel/comm/thread_comm.h"
#include "tests/support/rig.h"
#include "tests/support/slices.h"

namespace weft::test {
namespace {

// Values that must be equal on all ranks.
std::vector<double> seen(const History& history) {
  std::vector<double> out = {history.valid};
  for (const StepResult& s : history.steps) {
    out.insert(out.end(), {s.loss, s.aux_loss, s.z_loss, s.grad_norm, s.skipped ? 1.0 : 0.0});
    for (const MoeReport& moe : s.moe) {
      out.insert(out.end(),
                 {static_cast<double>(moe.layer), moe.aux, moe.router_entropy, moe.margin});
      out.insert(out.end(), moe.counts.begin(), moe.counts.end());
    }
  }
  return out;
}

void check_alike(HostGroup& world, const History& mine) {
  const std::vector<double> own = seen(mine), all = world.gather(own);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] == own[i % own.size()]) continue;
    throw Error("ranks {} and {} returned different results", world.rank(), i / own.size());
  }
}

// All parameters of the model by name, from the slices of all ranks. The largest and the smallest
// number that any rank has for an element are the same, or ranks that hold it disagree.
std::vector<float> whole_weights(Exec& exec, Communicator& world, Trainer& trainer) {
  std::map<std::string, int64_t> begin;
  for (const ParameterSpec& spec : trainer.model().parameters)
    begin[spec.name] = spec.global.elements();
  int64_t total = 0;
  for (auto& [name, at] : begin) total += std::exchange(at, total);

  const Tensor high = exec.empty({total}), low = exec.empty({total});
  float *most = host<float>(high), *least = host<float>(low);  // least: negated
  std::fill_n(most, total, -std::numeric_limits<float>::infinity());
  std::fill_n(least, total, -std::numeric_limits<float>::infinity());
  const ParameterStore& store = trainer.parameters();
  for (const Parameter& p : store.all()) {
    const std::vector<double> mine = numbers(p.value);
    each_element(p, store.here(), [&, at = begin.at(p.spec.name)](size_t local, size_t whole) {
      most[at + static_cast<int64_t>(whole)] = static_cast<float>(mine[local]);
      least[at + static_cast<int64_t>(whole)] = static_cast<float>(-mine[local]);
    });
  }
  world.all_reduce(exec, high, ReduceOp::kMax);
  world.all_reduce(exec, low, ReduceOp::kMax);
  for (const auto& [name, at] : begin) {
    const int64_t end = name == begin.rbegin()->first ? total : begin.upper_bound(name)->second;
    for (int64_t i = at; i < end; ++i) {
      if (!(most[i] == -least[i])) throw Error("ranks have different {}", name);
    }
  }
  return {most, most + total};
}

std::vector<std::string> joined(std::vector<std::string> first,
                                const std::vector<std::string>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

}  // namespace

History train_as_rank(const Config& config, Communicator& world, const Splitter& split,
                      Signatures signatures, const MakeBatch& make_batch) {
  Runtime runtime(1);
  const auto mesh =
      std::make_shared<Mesh>(make_layout(config, world.rank(), world.size()), split, signatures);
  Trainer trainer(config, runtime, mesh);
  trainer.initialize();
  const BatchSource source = [&](Pool& pool, int64_t first, int64_t rows) {
    return make_batch(config, pool, first, rows);
  };
  History mine;
  for (int64_t s = 0; s < config.train.steps; ++s) {
    mine.steps.push_back(trainer.step(s, s * config.train.global_batch, source));
  }
  mine.bounds = TrainingBounds(config, mine.steps);
  mine.valid = trainer.evaluate(source, 1000, 5);
  trainer.finish();
  check_alike(world.hosts(), mine);
  mine.weights = whole_weights(runtime.exec(), world, trainer);
  return mine;
}

History train_on_ranks(const Config& config, int ranks, const MakeBatch& make_batch) {
  History out;
  run_ranks(ranks, [&](ThreadComm& world, Exec&) {
    const Splitter split = [&](int color, int key, const std::string& axis) {
      return world.split(color, key, axis);
    };
    History mine = train_as_rank(config, world, split, Signatures::kCompare, make_batch);
    if (world.rank() == 0) out = std::move(mine);
  });
  return out;
}

std::string LayoutCase::name() const {
  return fmt::format(
      "tensor {} x sequence {} x pipe {} ({}, {}) x data {}, expert {} x {}, zero {}", tensor,
      sequence, pipe, schedule, virtual_stages, data, expert, expert_tensor, zero);
}

std::vector<std::string> LayoutCase::overrides() const {
  const auto set = [](const char* key, auto value) {
    return fmt::format("parallel.{}={}", key, value);
  };
  return {set("tensor", tensor),
          set("sequence", sequence),
          set("pipe", pipe),
          set("expert", expert),
          set("expert_tensor", expert_tensor),
          set("zero", zero),
          set("schedule", schedule),
          set("virtual_stages", virtual_stages)};
}

Config tiny_config(std::string_view model, const std::vector<std::string>& overrides) {
  return config_from_text(std::string(model) + R"(
[train]
steps = 3
sequence = 23
global_batch = 12
micro_batch = 1
precision = "f32"
[optimizer]
lr = 1e-3
warmup = 0
schedule = "constant"
eps = 1e-3
[run]
dir = "unused"
)",
                          "tiny.toml", overrides);
}

namespace {
const std::string kExpertsOfHybrids = R"(
[model.dense]
ffn = 53
[model.moe]
experts = 12
active = 3
ffn = 20
shared = 1
aux_loss = 0.01
z_loss = 0.001
)";
}  // namespace

Config family_hybrid(const std::vector<std::string>& overrides) {
  return tiny_config(R"(
[model]
vocab = 61
hidden = 32
layers = 8
pattern = "ABCDEFGH"
tie_embeddings = true
[model.layer.A]
mixer = "retnet"
heads = 4
[model.layer.B]
mixer = "gla"
heads = 4
ffn = "dense"
[model.layer.C]
mixer = "mamba"
state = 4
ffn = "none"
[model.layer.D]
mixer = "gated_deltanet"
heads = 4
[model.layer.E]
mixer = "rwkv7"
heads = 4
ffn = "none"
[model.layer.F]
mixer = "softmax"
heads = 4
kv_heads = 2
[model.layer.G]
mixer = "fox"
heads = 4
ffn = "none"
[model.layer.H]
mixer = "mom"
heads = 4
)" + kExpertsOfHybrids,
                     joined({"train.steps=10"}, overrides));
}

Config rarer_hybrid(const std::vector<std::string>& overrides) {
  return tiny_config(R"(
[model]
vocab = 61
hidden = 32
layers = 5
pattern = "ABCDE"
tie_embeddings = true
[model.layer.A]
mixer = "ttt"
heads = 4
inner_norm = true
mini_batch = 3
[model.layer.B]
mixer = "gfw"
heads = 4
ffn = "none"
[model.layer.C]
mixer = "gateloop"
heads = 4
ffn = "none"
[model.layer.D]
mixer = "gsa"
heads = 4
ffn = "dense"
[model.layer.E]
mixer = "mlstm"
heads = 4
)" + kExpertsOfHybrids,
                     joined({"train.steps=5"}, overrides));
}

Config tiny_hybrid(const std::vector<std::string>& overrides) {
  return tiny_config(R"(
[model]
vocab = 61
hidden = 48
layers = 3
pattern = "LND"
tie_embeddings = true
[model.layer.L]
mixer = "retnet"
heads = 3
[model.layer.N]
mixer = "softmax"
heads = 4
kv_heads = 2
[model.layer.D]
mixer = "gla"
heads = 3
ffn = "dense"
[model.moe]
experts = 5
active = 2
ffn = 20
shared = 1
aux_loss = 0.01
z_loss = 0.001
)",
                     joined({"train.steps=6", "optimizer.lr=3e-3"}, overrides));
}

Batch rule_batch(const Config& config, Pool& pool, int64_t first, int64_t rows) {
  const int64_t length = config.train.sequence;
  Batch batch{.tokens = Tensor::empty(pool, {rows * length}, DType::kI32),
              .targets = Tensor::empty(pool, {rows * length}, DType::kI32),
              .documents = {0},
              .target_tokens = rows * length};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t t = 0; t < length; ++t) {
      const int64_t value = (first + r) * 5 + t * 3;
      host<int32_t>(batch.tokens)[r * length + t] = static_cast<int32_t>(value % 61);
      host<int32_t>(batch.targets)[r * length + t] = static_cast<int32_t>((value + 3) % 61);
    }
    const int64_t kind = (first + r) % 3, border = kind == 0 ? length / 3 + 1 : length / 2;
    if (kind == 0) {
      host<int32_t>(batch.targets)[r * length + border - 1] = -1;
      --batch.target_tokens;
    }
    if (kind < 2) batch.documents.push_back(static_cast<int32_t>(r * length + border));
    batch.documents.push_back(static_cast<int32_t>((r + 1) * length));
  }
  return batch;
}

namespace {

// Records the largest used share of a bound in the test's report.
class Used {
 public:
  void note(const std::string& of, double share) {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    double& most = most_[std::string(test->test_suite_name()) + test->name()][of];
    if (share <= most) return;
    most = share;
    testing::Test::RecordProperty(of + "_of_bound", fmt::format("{:.3f}", share));
  }

 private:
  std::map<std::string, std::map<std::string, double>> most_;  // by test
};

void expect_within(double got, double want, double bound, const char* of, const std::string& what) {
  static Used used;
  used.note(of, std::abs(got - want) / bound);
  EXPECT_NEAR(got, want, bound) << what << ": " << of << ", " << std::abs(got - want) / bound
                                << " of its bound";
}

}  // namespace

void expect_same_training(const History& got, const History& want, const std::string& what) {
  ASSERT_EQ(got.steps.size(), want.steps.size());
  constexpr double kMost = 2e-5, kMostOfWeights = 1e-4;
  for (size_t s = 0; s < want.steps.size(); ++s) {
    const StepResult &a = want.steps[s], &b = got.steps[s];
    expect_within(b.loss, a.loss, std::min(kMost, want.bounds.loss(s)) * a.loss, "loss",
                  fmt::format("{} step {}", what, s));
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-4 * a.grad_norm) << what << " step " << s;
    EXPECT_NEAR(a.aux_loss, b.aux_loss, 2e-5 * a.aux_loss) << what << " step " << s;
    EXPECT_NEAR(a.z_loss, b.z_loss, 1e-4 * a.z_loss) << what << " step " << s;
    EXPECT_EQ(a.tokens, b.tokens) << what;
    ASSERT_EQ(a.moe.size(), b.moe.size()) << what;
    for (size_t l = 0; l < a.moe.size(); ++l) {
      EXPECT_EQ(a.moe[l].counts, b.moe[l].counts) << what;
      EXPECT_EQ(a.moe[l].dropped, b.moe[l].dropped) << what;
    }
  }
  EXPECT_NEAR(want.valid, got.valid, kMost * want.valid) << what;
  ASSERT_EQ(got.weights.size(), want.weights.size()) << what;
  double largest = 0, furthest = 0;
  size_t worst = 0;
  for (size_t i = 0; i < want.weights.size(); ++i) {
    const double far = std::abs(double{got.weights[i]} - want.weights[i]);
    largest = std::max(largest, std::abs(double{want.weights[i]}));
    if (!(far <= furthest)) furthest = far, worst = i;
    if (std::isnan(far)) break;
  }
  expect_within(got.weights[worst], want.weights[worst],
                std::min(kMostOfWeights * largest, want.bounds.weights()), "weights",
                fmt::format("{} element {}", what, worst));
}

void expect_same_bits(const History& got, const History& want, const std::string& what) {
  ASSERT_EQ(got.steps.size(), want.steps.size()) << what;
  for (size_t s = 0; s < want.steps.size(); ++s) {
    const StepResult &a = got.steps[s], &b = want.steps[s];
    EXPECT_EQ(a.loss, b.loss) << what << " step " << s;
    EXPECT_EQ(a.grad_norm, b.grad_norm) << what << " step " << s;
    EXPECT_EQ(a.aux_loss, b.aux_loss) << what << " step " << s;
    EXPECT_EQ(a.z_loss, b.z_loss) << what << " step " << s;
    ASSERT_EQ(a.moe.size(), b.moe.size()) << what;
    for (size_t l = 0; l < a.moe.size(); ++l) {
      EXPECT_EQ(a.moe[l].layer, b.moe[l].layer) << what;
      EXPECT_EQ(a.moe[l].memories, b.moe[l].memories) << what;
      EXPECT_EQ(a.moe[l].counts, b.moe[l].counts) << what;
    }
  }
  EXPECT_EQ(got.valid, want.valid) << what;
  EXPECT_TRUE(got.weights == want.weights) << what;
}

Batch packed_batch(const Config& config, Pool& pool, int64_t first, int64_t rows) {
  const int64_t length = config.train.sequence;
  Batch batch{.tokens = Tensor::empty(pool, {rows * length}, DType::kI32),
              .targets = Tensor::empty(pool, {rows * length}, DType::kI32),
              .documents = {0},
              .target_tokens = rows * length};
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t t = 0; t < length; ++t) {
      const int64_t value = (first + r) * 5 + t * t;
      host<int32_t>(batch.tokens)[r * length + t] = static_cast<int32_t>(value % 61);
      host<int32_t>(batch.targets)[r * length + t] = static_cast<int32_t>((value + 3) % 61);
    }
    const int64_t start = r * length, third = start + length / 3;
    for (const int64_t border : {third + 1, third + 2, start + length}) {
      batch.documents.push_back(static_cast<int32_t>(border));
    }
  }
  return batch;
}

}  // namespace weft::test
