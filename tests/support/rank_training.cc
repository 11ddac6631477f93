#include "tests/support/rank_training.h"

#include <gtest/gtest.h>

#include "parallel/thread_comm.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {

History train_on_ranks(const Config& config, int ranks, const MakeBatch& make_batch) {
  History out;
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
    for (const Parameter& p : trainer.parameters().all()) {
      const std::vector<double> values = numbers(p.value);
      mine.weights.insert(mine.weights.end(), values.begin(), values.end());
    }
    const auto count = static_cast<int64_t>(mine.weights.size());
    const Tensor all = runtime.exec().empty({ranks, count});
    world.all_gather(runtime.exec(), Tensor::borrow(mine.weights.data(), {count}, DType::kF32),
                     all);
    EXPECT_TRUE(SameBits(all.row(world.rank()), all.row(0))) << "ranks have different weights";
    if (world.rank() == 0) out = mine;
  });
  return out;
}

}  // namespace weft::test
