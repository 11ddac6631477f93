#include "tests/support/rank_training.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "parallel/thread_comm.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"
#include "tests/support/slices.h"

namespace weft::test {
namespace {

// All parameters by name, from the slices of all ranks. Ranks that hold the same numbers must agree
// bit for bit.
struct WholeWeights {
  std::map<std::string, std::vector<float>> values;

  void put(const ParameterStore& store) {
    for (const Parameter& p : store.all()) {
      const std::vector<double> mine = numbers(p.value);
      const auto count = static_cast<size_t>(p.spec.global.elements());
      const auto found = values.try_emplace(p.spec.name, count, NAN).first;
      bool same = true;
      each_element(p, store.here(), [&](size_t local, size_t whole) {
        float& value = found->second[whole];
        const auto own = static_cast<float>(mine[local]);
        same = same && (std::isnan(value) || value == own);
        value = own;
      });
      EXPECT_TRUE(same) << "ranks have different " << p.spec.name;
    }
  }
};

// What all ranks must return alike.
std::vector<double> seen(const History& history) {
  std::vector<double> out = {history.valid};
  for (const StepResult& s : history.steps) {
    out.insert(out.end(), {s.loss, s.aux_loss, s.z_loss, s.grad_norm, s.skipped ? 1.0 : 0.0});
    for (const MoeReport& moe : s.moe) {
      out.insert(out.end(), {static_cast<double>(moe.layer), moe.aux, moe.router_entropy});
      out.insert(out.end(), moe.counts.begin(), moe.counts.end());
    }
  }
  return out;
}

}  // namespace

History train_on_ranks(const Config& config, int ranks, const MakeBatch& make_batch) {
  History out;
  std::mutex mutex;
  WholeWeights whole;
  std::vector<std::vector<double>> all_seen;
  run_ranks(ranks, [&](ThreadComm& world, Exec&) {
    Runtime runtime(1);
    const Splitter split = [&](int color, int key, const std::string& axis) {
      return world.split(color, key, axis);
    };
    const auto mesh = std::make_shared<Mesh>(make_layout(config, world.rank(), ranks), split,
                                             Signatures::kCompare);
    Trainer trainer(config, runtime, mesh);
    trainer.initialize();
    const BatchSource source = [&](Pool& pool, int64_t first, int64_t rows) {
      return make_batch(config, pool, first, rows);
    };
    History mine;
    for (int64_t s = 0; s < config.train.steps; ++s) {
      mine.steps.push_back(trainer.step(s, s * config.train.global_batch, source));
    }
    mine.valid = trainer.evaluate(source, 1000, 5);
    trainer.finish();
    const std::lock_guard lock(mutex);
    whole.put(trainer.parameters());
    all_seen.push_back(seen(mine));
    if (world.rank() == 0) out = mine;
  });
  for (const auto& one : all_seen) {
    EXPECT_EQ(one, all_seen[0]) << "ranks returned different results";
  }
  for (const auto& [name, values] : whole.values) {
    out.weights.insert(out.weights.end(), values.begin(), values.end());
  }
  return out;
}

Config tiny_hybrid(const std::vector<std::string>& overrides) {
  return config_from_text(R"(
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
[train]
steps = 6
sequence = 23
global_batch = 12
micro_batch = 1
precision = "f32"
[optimizer]
lr = 3e-3
warmup = 0
schedule = "constant"
eps = 1e-3
[run]
dir = "unused"
)",
                          "tiny.toml", overrides);
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
      batch.tokens.data<int32_t>()[r * length + t] = static_cast<int32_t>(value % 61);
      batch.targets.data<int32_t>()[r * length + t] = static_cast<int32_t>((value + 3) % 61);
    }
    if ((first + r) % 3 == 0) {
      batch.targets.data<int32_t>()[r * length + 10] = -1;
      --batch.target_tokens;
    }
    batch.documents.push_back(static_cast<int32_t>(r * length + 11));
    batch.documents.push_back(static_cast<int32_t>((r + 1) * length));
  }
  return batch;
}

void expect_same_training(const History& got, const History& want, const std::string& what) {
  ASSERT_EQ(got.steps.size(), want.steps.size());
  for (size_t s = 0; s < want.steps.size(); ++s) {
    const StepResult &a = want.steps[s], &b = got.steps[s];
    EXPECT_NEAR(a.loss, b.loss, 2e-5 * a.loss) << what << " step " << s;
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-4 * a.grad_norm) << what << " step " << s;
    EXPECT_NEAR(a.aux_loss, b.aux_loss, 2e-5 * a.aux_loss) << what << " step " << s;
    EXPECT_NEAR(a.z_loss, b.z_loss, 1e-4 * a.z_loss) << what << " step " << s;
    EXPECT_EQ(a.tokens, b.tokens) << what;
    for (size_t l = 0; l < a.moe.size(); ++l) {
      EXPECT_EQ(a.moe[l].counts, b.moe[l].counts) << what;
      EXPECT_EQ(a.moe[l].dropped, b.moe[l].dropped) << what;
    }
  }
  EXPECT_NEAR(want.valid, got.valid, 2e-5 * want.valid) << what;
  const std::vector<double> v(got.weights.begin(), got.weights.end()),
      w(want.weights.begin(), want.weights.end());
  EXPECT_TRUE(Near(v, w, 1e-4)) << what;
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
      batch.tokens.data<int32_t>()[r * length + t] = static_cast<int32_t>(value % 61);
      batch.targets.data<int32_t>()[r * length + t] = static_cast<int32_t>((value + 3) % 61);
    }
    const int64_t start = r * length, third = start + length / 3;
    for (const int64_t border : {third + 1, third + 2, start + length}) {
      batch.documents.push_back(static_cast<int32_t>(border));
    }
  }
  return batch;
}

}  // namespace weft::test
