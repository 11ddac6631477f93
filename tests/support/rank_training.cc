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

}  // namespace

History train_on_ranks(const Config& config, int ranks, const MakeBatch& make_batch) {
  History out;
  std::mutex mutex;
  WholeWeights whole;
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
    if (world.rank() == 0) out = mine;
  });
  for (const auto& [name, values] : whole.values) {
    out.weights.insert(out.weights.end(), values.begin(), values.end());
  }
  return out;
}

}  // namespace weft::test
