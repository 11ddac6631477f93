// The promise of layouts_test.cc over real processes: its model, and every mixer, under mpirun.
#include <gtest/gtest.h>

#include <set>

#include "layers/mixers/registry.h"
#include "tests/support/rank_jobs.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class Processes : public testing::Test {
 protected:
  std::string trace(const std::string& name) const { return folder_ / (name + ".safetensors"); }

  // Compares with one rank, whose choices of experts the others replay.
  void expect_promise(int processes, const std::vector<LayoutCase>& layouts,
                      Config (*model)(const std::vector<std::string>&) = family_hybrid) {
    const std::string file = trace("one");
    const History one = train_on_ranks(model({"run.routing_trace=write:" + file}), 1, rule_batch);
    std::vector<RankJob> jobs;
    for (const LayoutCase& layout : layouts) {
      jobs.push_back({layout.ranks(),
                      model(joined(layout.overrides(), {"run.routing_trace=replay:" + file}))});
    }
    const std::vector<History> all = train_over_processes(processes, jobs);
    for (size_t i = 0; i < layouts.size(); ++i) {
      expect_same_training(all[i], one, layouts[i].name());
    }
  }
  const ScratchFolder folder_;
};

// Combines every pair of axes: tensor, sequence, pipe, data, expert.
TEST_F(Processes, OfEveryPairOfAxesGiveTheTrainingOfOneRank) {
  expect_promise(4, {{.tensor = 2, .sequence = 2},
                     {.tensor = 2, .pipe = 2},
                     {.tensor = 2, .data = 2},
                     {.sequence = 2, .pipe = 2, .schedule = "zero_bubble"},
                     {.sequence = 2, .data = 2},
                     {.pipe = 2, .data = 2},
                     {.tensor = 2, .expert = 2},
                     {.sequence = 2, .expert = 2},
                     {.data = 2, .expert = 2},
                     {.data = 2, .expert_tensor = 2},
                     {.pipe = 2, .data = 2, .expert = 2}});
}

TEST_F(Processes, OfThreeAxesAndMoreGiveTheTrainingOfOneRank) {
  expect_promise(8,
                 {{.tensor = 2, .sequence = 2, .data = 2, .expert = 4},
                  {.tensor = 2, .sequence = 2, .pipe = 2, .expert = 2},
                  {.sequence = 2, .pipe = 2, .data = 2, .expert = 4, .schedule = "zero_bubble"}});
}

TEST_F(Processes, OfAllAxesGiveTheTrainingOfOneRank) {
  expect_promise(16, {{.tensor = 2, .sequence = 2, .pipe = 2, .data = 2, .expert = 2}});
}

TEST_F(Processes, OfTheRarerFamiliesGiveTheTrainingOfOneRank) {
  expect_promise(4,
                 {{.sequence = 2},
                  {.tensor = 2},
                  {.tensor = 2, .sequence = 2, .expert = 2},
                  {.sequence = 2, .pipe = 2}},
                 rarer_hybrid);
}

TEST_F(Processes, GiveTheSameBitsHoweverStatesTravel) {
  const LayoutCase layout{.sequence = 4};
  std::vector<RankJob> jobs;
  for (const char* exchange : {"gather", "scan"}) {
    for (const char* overlap : {"true", "false"}) {
      jobs.push_back({layout.ranks(),
                      family_hybrid(joined(layout.overrides(),
                                           {"train.steps=3", "train.global_batch=4",
                                            std::string("parallel.sequence_exchange=") + exchange,
                                            std::string("parallel.overlap=") + overlap}))});
    }
  }
  const std::vector<History> all = train_over_processes(4, jobs);
  for (size_t i = 1; i < all.size(); ++i) {
    expect_same_bits(all[i], all[0], jobs[i].config.parallel.sequence_exchange);
  }
}

// Every line of mixers.def, and variants selected by an option.
struct MixerChoice {
  MixerInfo mixer;
  std::string name, option = {};
};
std::vector<MixerChoice> mixer_choices() {
  std::vector<MixerChoice> all;
  for (const MixerInfo& mixer : mixer_list()) {
    all.push_back({mixer, mixer.name});
    if (mixer.name == "ttt") {
      all.push_back({mixer, "ttt_inner_norm", "inner_norm = true\nmini_batch = 3\n"});
    }
  }
  return all;
}

// Two layers of one mixer, experts and a shared one behind each.
Config model_of(const MixerChoice& choice, const std::vector<std::string>& overrides) {
  const MixerInfo& mixer = choice.mixer;
  std::set<std::string> options;
  for (const FieldInfo& field : mixer.options) options.insert(field.name);
  std::string layer = fmt::format("mixer = \"{}\"\n{}", mixer.name, choice.option);
  if (options.contains("heads")) layer += "heads = 4\n";
  if (options.contains("kv_heads")) layer += "kv_heads = 2\n";
  // Rebased divides by a sum of squared scores, of a single one at the start of a document, which
  // can be as small as its epsilon. Gradients then spike, and one rank at another instruction set
  // deviates as much as several ranks: by more than 1e-4 of the norm for half of the seeds 1 to 24
  // (seed 3: 0.03). The chosen seed is the first for which one rank at avx2 is within 1e-6 of
  // avx512_bf16; it was not chosen by results of several ranks.
  const char* seed = mixer.name == "rebased" ? "train.seed=7" : "train.seed=1";
  return tiny_config(fmt::format(R"(
[model]
vocab = 61
hidden = 40
layers = 2
pattern = "M"
tie_embeddings = true
[model.layer.M]
{}
[model.moe]
experts = 6
active = 2
ffn = 19
shared = 1
aux_loss = 0.01
)",
                                 layer),
                     joined({"train.global_batch=2", seed}, overrides));
}

// Neither vocabulary, tokens, spans nor the widths of experts divide by the ranks.
TEST_F(Processes, GiveEveryMixerTheTrainingOfOneRank) {
  const LayoutCase layout{.tensor = 2, .sequence = 2, .expert = 2};
  std::vector<RankJob> jobs;
  std::vector<History> alone;
  const std::vector<MixerChoice> choices = mixer_choices();
  for (const MixerChoice& choice : choices) {
    const std::string file = trace(choice.name);
    alone.push_back(
        train_on_ranks(model_of(choice, {"run.routing_trace=write:" + file}), 1, rule_batch));
    jobs.push_back(
        {layout.ranks(),
         model_of(choice, joined(layout.overrides(), {"run.routing_trace=replay:" + file}))});
  }
  const std::vector<History> all = train_over_processes(4, jobs);
  for (size_t i = 0; i < all.size(); ++i) {
    expect_same_training(all[i], alone[i], choices[i].name);
  }
}

}  // namespace
}  // namespace weft::test
