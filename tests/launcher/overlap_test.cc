// parallel.overlap changes no bit of a run in any layout: overlapped communication has the same
// numbers in the same order.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "parallel/comm/thread_comm.h"
#include "tests/support/rank_training.h"

namespace weft::test {
namespace {

struct Case {
  std::string name;
  int ranks;
  std::vector<std::string> overrides;
};

void expect_same_bits(const History& got, const History& want) {
  ASSERT_EQ(got.steps.size(), want.steps.size());
  for (size_t s = 0; s < want.steps.size(); ++s) {
    EXPECT_EQ(got.steps[s].loss, want.steps[s].loss) << s;
    EXPECT_EQ(got.steps[s].grad_norm, want.steps[s].grad_norm) << s;
  }
  EXPECT_EQ(got.valid, want.valid);
  EXPECT_EQ(got.weights, want.weights);
}

class OverlapOnRanks : public testing::TestWithParam<Case> {};

TEST_P(OverlapOnRanks, ChangesNoBit) {
  std::vector<std::string> overrides = GetParam().overrides;
  overrides.insert(overrides.end(), {"train.steps=3", "model.moe.experts=6"});
  const auto train = [&](const char* overlap) {
    auto all = overrides;
    all.push_back(std::string("parallel.overlap=") + overlap);
    return train_on_ranks(tiny_hybrid(all), GetParam().ranks, packed_batch);
  };
  expect_same_bits(train("true"), train("false"));
}

std::vector<Case> cases() {
  const auto p = [](const char* key) { return std::string("parallel.") + key; };
  return {
      {"data", 3, {}},
      {"data_whole", 2, {p("zero=0")}},
      {"data_bf16", 2, {"train.precision=bf16"}},
      {"sequence", 2, {p("sequence=2")}},
      {"expert", 2, {p("expert=2")}},
      {"expert_bf16", 2, {p("expert=2"), "train.precision=bf16"}},
      {"expert_width", 4, {p("expert=2"), p("expert_tensor=2")}},
      {"expert_once_per_expert", 2, {p("expert=2"), p("deduplicate=false")}},
      {"expert_recomputed", 2, {p("expert=2"), "train.recompute=full"}},
      {"expert_within_data", 4, {p("expert=2")}},
      {"tensor", 2, {p("tensor=2"), "model.layer.L.heads=4", "model.layer.D.heads=4"}},
      {"tensor_bf16",
       2,
       {p("tensor=2"), "model.layer.L.heads=4", "model.layer.D.heads=4", "train.precision=bf16"}},
      {"tensor_recomputed",
       2,
       {p("tensor=2"), "model.layer.L.heads=4", "model.layer.D.heads=4",
        "train.recompute=selective"}},
      {"tensor_expert_data",
       4,
       {p("tensor=2"), p("expert=2"), "model.layer.L.heads=4", "model.layer.D.heads=4"}},
      {"pipe_data", 4, {p("pipe=2")}},
      {"zero_bubble_expert", 4, {p("pipe=2"), p("schedule=zero_bubble"), p("expert=2")}},
      {"zero_bubble_tensor",
       4,
       {p("pipe=2"), p("schedule=zero_bubble"), p("tensor=2"), "model.layer.L.heads=4",
        "model.layer.D.heads=4"}},
      {"interleaved_data",
       4,
       {p("pipe=2"), p("schedule=interleaved"), p("virtual_stages=2"), "model.layers=4",
        "model.pattern=LNDL"}},
  };
}

// The moment in a step at which communication starts, or is waited for.
struct Moment {
  enum class Kind : uint8_t { kStart, kWait } kind;
  std::string what;  // "reduce_scatter"
  int64_t step;
  std::string phase;
  int64_t layer;
};

// A communicator that records such moments.
class Noting final : public Communicator {
 public:
  struct Notes {
    const Activity* activity = nullptr;  // null until the mesh exists
    std::vector<Moment> moments;

    void add(Moment::Kind kind, const char* what) {
      const Activity::Now now = activity->now();
      moments.push_back({kind, what, now.step, now.phase, now.layer});
    }
  };

  Noting(std::unique_ptr<Communicator> inner, Notes& notes)
      : inner_(std::move(inner)), notes_(notes) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return inner_->name(); }
  void all_reduce(Exec& e, View inout, ReduceOp op) override { inner_->all_reduce(e, inout, op); }
  void all_gather(Exec& e, ConstView mine, View all) override { inner_->all_gather(e, mine, all); }
  void reduce_scatter(Exec& e, ConstView all, View mine) override {
    inner_->reduce_scatter(e, all, mine);
  }
  void all_to_all_v(Exec& e, ConstView send, std::span<const int64_t> send_rows, View recv,
                    std::span<const int64_t> recv_rows) override {
    inner_->all_to_all_v(e, send, send_rows, recv, recv_rows);
  }
  void transfer(Exec& e, std::span<const Transfer> together) override {
    inner_->transfer(e, together);
  }
  std::unique_ptr<Pending> start(Exec& e, std::span<const Transfer> together) override {
    return inner_->start(e, together);
  }
  HostGroup& hosts() override { return inner_->hosts(); }
  std::unique_ptr<Pending> start_together(Exec& e, const Collective& what,
                                          std::vector<Transfer> parts) override {
    notes_.add(Moment::Kind::kStart, what.name);
    return std::make_unique<Noted>(inner_->start_together(e, what, std::move(parts)), what.name,
                                   notes_);
  }

 private:
  class Noted final : public Pending {
   public:
    Noted(std::unique_ptr<Pending> inner, const char* what, Notes& notes)
        : inner_(std::move(inner)), what_(what), notes_(notes) {}
    void wait() override {
      notes_.add(Moment::Kind::kWait, what_);
      inner_->wait();
    }

   private:
    std::unique_ptr<Pending> inner_;
    const char* what_;
    Notes& notes_;
  };
  std::unique_ptr<Communicator> inner_;
  Notes& notes_;
};

// Two steps of two data ranks; the record of the first. Each of the three layers has more weights
// than a bucket holds, so that its sums need not wait for the next layer's.
std::vector<Moment> moments_of_training(const std::string& overlap) {
  const Config config =
      tiny_config(R"(
[model]
vocab = 61
hidden = 256
layers = 3
pattern = "L"
[model.layer.L]
mixer = "bla"
heads = 4
ffn = "dense"
[model.dense]
ffn = 2048
)",
                  {"train.global_batch=2", "train.steps=2", "parallel.overlap=" + overlap});
  std::vector<Moment> moments;
  run_ranks(2, [&](ThreadComm& world, Exec&) {
    Noting::Notes notes;
    Runtime runtime(1);
    const auto mesh = std::make_shared<Mesh>(
        make_layout(config, world.rank(), 2), [&](int color, int key, const std::string& axis) {
          return std::make_unique<Noting>(world.split(color, key, axis), notes);
        });
    notes.activity = &mesh->activity();
    Trainer trainer(config, runtime, mesh);
    trainer.initialize();
    for (int64_t s = 0; s < 2; ++s) {
      mesh->activity().at(s + 1, "");
      trainer.step(s, 2 * s, [&](Pool& pool, int64_t first, int64_t rows) {
        return rule_batch(config, pool, first, rows);
      });
    }
    trainer.finish();
    if (world.rank() == 0) moments = notes.moments;
  });
  return moments;
}

// The layers in which this happened during the second step.
std::set<int64_t> layers_with(const std::vector<Moment>& moments, Moment::Kind kind,
                              const std::string& what, const std::string& phase) {
  std::set<int64_t> layers;
  for (const Moment& m : moments) {
    if (m.kind == kind && m.what == what && m.phase == phase && m.step == 2) layers.insert(m.layer);
  }
  return layers;
}

using Layers = std::set<int64_t>;

TEST(Overlap, SumsTravelBehindEveryLayerOfTheBackward) {
  const auto sums = [](const char* overlap) {
    return layers_with(moments_of_training(overlap), Moment::Kind::kStart, "reduce_scatter",
                       "backward");
  };
  EXPECT_EQ(sums("true"), (Layers{0, 1, 2}));  // pending when the next layer begins
  EXPECT_EQ(sums("false"), Layers{});
}

TEST(Overlap, NewWeightsTravelUntilTheLayersOfTheNextForwardNeedThem) {
  const std::vector<Moment> with = moments_of_training("true");
  const auto before_forward = std::count_if(with.begin(), with.end(), [](const Moment& m) {
    return m.kind == Moment::Kind::kStart && m.what == "all_gather" && m.step == 2 && m.layer < 0;
  });
  EXPECT_GT(before_forward, 0);
  // The first layer waits for its weights while the others are pending.
  EXPECT_EQ(layers_with(with, Moment::Kind::kWait, "all_gather", "forward"), (Layers{0, 1, 2}));
  const std::vector<Moment> without = moments_of_training("false");
  EXPECT_EQ(layers_with(without, Moment::Kind::kWait, "all_gather", "forward"), Layers{});
}

INSTANTIATE_TEST_SUITE_P(All, OverlapOnRanks, testing::ValuesIn(cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::test
