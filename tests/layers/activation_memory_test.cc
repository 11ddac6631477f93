// Checks the table of layers/mixers/README.md: programs, bytes saved for backward, and bytes of
// states in decoding.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <regex>
#include <set>

#include "core/base/isa.h"
#include "layers/mixers/registry.h"
#include "parallel/parameter_values.h"
#include "tests/support/paths.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

constexpr int64_t kWide = 1024;
constexpr int32_t kTokens = 256;

struct Row {
  std::string mixer, programs;
  double recomputed, kept;  // KiB per token, by handling of the states between chunks
  bool grows;               // the state grows: its KiB are per token
  double state;             // KiB
};

std::string without(std::string text, char unwanted) {
  std::erase(text, unwanted);
  return text;
}

// | `name` | `program`, `program` | KiB | KiB with kept states | grows: KiB per token, or KiB |
std::vector<Row> rows_of_the_page() {
  std::ifstream page(in_project("layers/mixers/README.md"));
  const std::regex row(
      R"(^\| `([a-z0-9_]+)` \| ([a-z_, `]+) \| ([0-9]+) \| ([0-9]+) \| (grows: )?([0-9.]+) KiB( per token|, .*)? \|$)");
  std::vector<Row> rows;
  for (std::string line; std::getline(page, line);) {
    std::smatch found;
    if (std::regex_match(line, found, row)) {
      rows.push_back({found[1], without(found[2], '`'), std::stod(found[3]), std::stod(found[4]),
                      found[5].matched, std::stod(found[6])});
    }
  }
  return rows;
}

bool takes(const MixerInfo& mixer, const std::string& option) {
  return std::any_of(mixer.options.begin(), mixer.options.end(),
                     [&](const FieldInfo& field) { return field.name == option; });
}

// A mixer of the page's sizes.
class Wide {
 public:
  explicit Wide(const MixerInfo& info) {
    std::string text;
    if (takes(info, "heads")) text += "heads = 8\n";
    if (takes(info, "dk")) text += info.name == "rebased" ? "dk = 16\n" : "dk = 128\n";
    if (takes(info, "dv")) text += "dv = 128\n";
    options_ = OptionTable::parse(text);
    const Build build{.store = store_, .scope = "", .hidden = kWide, .compute = DType::kBF16};
    mixer_ = make_mixer(info.name, MixerBuild{build, options_});
    store_.allocate(rig_.pool, DType::kBF16, ParameterStore::Gradients::kNone);
    publish(rig_.exec, store_);
  }

  double kib_per_token(ChunkStates states) {
    Sequence sequence = make_sequence({0, kTokens});
    sequence.chunk_states = states;
    sequence.profile = &profile_;
    const Tensor x = rig_.normal("x", {kTokens, kWide}, 1.0, DType::kBF16);
    int64_t bytes = 0;
    for (int run = 0; run < 2; ++run) {  // the first also packs weights
      StepContext step;
      const int64_t before = rig_.ledger.total().live;
      SavedStack saved;
      { const Tensor y = mixer_->forward(rig_.exec, x, {sequence, nullptr, &step}, saved); }
      bytes = rig_.ledger.total().live - before;
    }
    return static_cast<double>(bytes) / 1024.0 / static_cast<double>(kTokens);
  }
  std::string programs() const { return fmt::format("{}", fmt::join(profile_.programs, ", ")); }

  // After a text of `tokens` tokens, and some more of them one by one.
  double state_kib(int32_t tokens, int32_t more) {
    MixerState state;
    SavedStack saved;
    StepContext step;
    const auto go_on = [&](int32_t begin, int32_t count) {
      const Sequence sequence = make_sequence({0, count}, {begin});
      const Tensor x = rig_.normal("x", {count, kWide}, 1.0, DType::kBF16);
      mixer_->forward(rig_.exec, x, {sequence, &state, &step}, saved);
    };
    go_on(0, tokens);
    for (int32_t i = 0; i < more; ++i) go_on(tokens + i, 1);
    double bytes = 0;
    for (const auto& [name, part] : state.parts()) {
      for (const Tensor& t : part) bytes += static_cast<double>(t.bytes());
    }
    return bytes / 1024.0;
  }

 private:
  Rig rig_;
  OptionTable options_;
  ParameterStore store_;
  std::unique_ptr<Mixer> mixer_;
  CoreProfile profile_;
};

class PageOfTheMixers : public testing::TestWithParam<std::string> {};

TEST_P(PageOfTheMixers, SaysWhatRunsAndWhatIsKept) {
  const std::vector<Row> rows = rows_of_the_page();
  for (const MixerInfo& mixer : mixer_list()) {
    if (mixer.name != GetParam()) continue;
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.mixer == mixer.name; });
    EXPECT_NE(row, rows.end()) << mixer.name << " is not in the table of layers/mixers/README.md";
    if (row == rows.end()) continue;
    Wide wide(mixer);
    EXPECT_EQ(std::round(wide.kib_per_token(ChunkStates::kRecomputed)), row->recomputed)
        << mixer.name;
    const double kept = std::round(wide.kib_per_token(ChunkStates::kKept));
    if (chosen_isa() >= Isa::kAvx512Bf16) {
      EXPECT_EQ(kept, row->kept) << mixer.name << ", states kept";
    } else {  // in f32
      EXPECT_GE(kept, row->kept) << mixer.name << ", states kept";
    }
    EXPECT_EQ(wide.programs(), row->programs) << mixer.name;
    // The first token after a text grows the cache, and drops rows before a window.
    constexpr int32_t kShort = 64;
    const double fixed = wide.state_kib(2 * kShort, 1);
    EXPECT_EQ(fixed != wide.state_kib(kShort, 1), row->grows) << mixer.name;
    const double growth = wide.state_kib(2 * kShort, 0) - wide.state_kib(kShort, 0);
    EXPECT_NEAR(row->grows ? growth / kShort : fixed, row->state,
                row->grows ? 0.05 : 0.5)  // as many digits as the page has
        << mixer.name;
  }
}

std::vector<std::string> names() {
  std::vector<std::string> names;
  for (const MixerInfo& mixer : mixer_list()) names.push_back(mixer.name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(All, PageOfTheMixers, testing::ValuesIn(names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace weft::test
