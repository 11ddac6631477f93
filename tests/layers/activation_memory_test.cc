// What the page of the mixers says that each keeps for backward, counted.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <regex>

#include "core/isa.h"
#include "layers/mixers/registry.h"
#include "tests/support/paths.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

constexpr int64_t kWide = 1024, kTokens = 256;

struct Row {
  std::string mixer;
  double recomputed, kept;  // KiB per token, by what is done with the states between chunks
};

// | `name` | `program` | KiB | KiB with kept states | ...
std::vector<Row> rows_of_the_page() {
  std::ifstream page(in_project("layers/mixers/README.md"));
  const std::regex row(R"(^\| `([a-z0-9_]+)` \| `[a-z_]+` \| ([0-9]+) \| ([0-9]+) \|.*)");
  std::vector<Row> rows;
  for (std::string line; std::getline(page, line);) {
    std::smatch found;
    if (std::regex_match(line, found, row)) {
      rows.push_back({found[1], std::stod(found[2]), std::stod(found[3])});
    }
  }
  return rows;
}

bool takes(const MixerInfo& mixer, const std::string& option) {
  return std::any_of(mixer.options.begin(), mixer.options.end(),
                     [&](const FieldInfo& field) { return field.name == option; });
}

double kib_per_token(const MixerInfo& info, ChunkStates states) {
  Rig rig;
  std::string text;
  if (takes(info, "heads")) text += "heads = 8\n";
  if (takes(info, "dk")) text += info.name == "rebased" ? "dk = 16\n" : "dk = 128\n";
  if (takes(info, "dv")) text += "dv = 128\n";
  const OptionTable options = OptionTable::parse(text);
  ParameterStore store;
  const Build build{.store = store, .scope = "", .hidden = kWide, .compute = DType::kBF16};
  const auto mixer = make_mixer(info.name, MixerBuild{build, options});
  store.allocate(rig.ledger, DType::kBF16, ParameterStore::Gradients::kNone);
  store.publish(rig.exec);
  Sequence sequence = make_sequence(rig.exec, {0, kTokens});
  sequence.chunk_states = states;
  const Tensor x = rig.normal("x", {kTokens, kWide}, 1.0, DType::kBF16);
  int64_t bytes = 0;
  for (int run = 0; run < 2; ++run) {  // the first also packs weights
    StepContext step;
    const int64_t before = rig.ledger.total().live;
    SavedStack saved;
    { const Tensor y = mixer->forward(rig.exec, x, {sequence, nullptr, &step}, saved); }
    bytes = rig.ledger.total().live - before;
  }
  return static_cast<double>(bytes) / 1024.0 / static_cast<double>(kTokens);
}

TEST(ActivationMemory, IsWhatThePageSays) {
  const std::vector<Row> rows = rows_of_the_page();
  for (const MixerInfo& mixer : mixer_list()) {
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.mixer == mixer.name; });
    EXPECT_NE(row, rows.end()) << mixer.name << " is not in the table of layers/mixers/README.md";
    if (row == rows.end()) continue;
    EXPECT_EQ(std::round(kib_per_token(mixer, ChunkStates::kRecomputed)), row->recomputed)
        << mixer.name;
    const double kept = std::round(kib_per_token(mixer, ChunkStates::kKept));
    if (chosen_isa() >= Isa::kAvx512Bf16) {
      EXPECT_EQ(kept, row->kept) << mixer.name << ", states kept";
    } else {  // in f32
      EXPECT_GE(kept, row->kept) << mixer.name << ", states kept";
    }
  }
}

}  // namespace
}  // namespace weft::test
