#include "layers/mixers/registry.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "core/base/nearest.h"

namespace weft {

// Each mixer's file defines these two for its name.
#define WEFT_MIXER(name, sentence)                             \
  std::unique_ptr<Mixer> make_##name(const MixerBuild& build); \
  std::vector<FieldInfo> options_of_##name();
#include "layers/mixers/mixers.def"
#undef WEFT_MIXER
std::string remark_on_ttt(const OptionTable& options);  // the only one with anything to say

namespace {

struct Entry {
  const char* name;
  const char* sentence;
  std::unique_ptr<Mixer> (*make)(const MixerBuild& build);
  std::vector<FieldInfo> (*options)();
};

constexpr Entry kMixers[] = {
#define WEFT_MIXER(name, sentence) {#name, sentence, make_##name, options_of_##name},
#include "layers/mixers/mixers.def"
#undef WEFT_MIXER
};

bool has(const Entry& entry, std::string_view option) {
  const std::vector<FieldInfo> options = entry.options();
  return std::any_of(options.begin(), options.end(),
                     [&](const FieldInfo& field) { return field.name == option; });
}

// An option of other mixers is no slip of the pen: says whose it is. At most some of many.
std::string owners_of(std::string_view option) {
  std::vector<std::string> owners;
  for (const Entry& entry : kMixers) {
    if (has(entry, option)) owners.emplace_back(entry.name);
  }
  constexpr size_t kTold = 4;
  const size_t told = std::min(owners.size(), kTold);
  const std::string first =
      fmt::format("{}", fmt::join(owners.begin(), owners.begin() + static_cast<long>(told), ", "));
  if (told == owners.size()) return first;
  return fmt::format("{} and {} more", first, owners.size() - told);
}

void refuse_options_of_others(const Entry& entry, const OptionTable& options) {
  for (const ConfigEntry& e : std::get<ConfigNode::Table>(options.node().value)) {
    if (has(entry, e.key)) continue;
    const std::string owners = owners_of(e.key);
    if (owners.empty()) continue;  // the mixer's own reader finds what resembles it
    std::vector<std::string> own;
    for (const FieldInfo& field : entry.options()) own.push_back(field.name);
    throw ConfigError(
        "{}: {}: mixer \"{}\" has no option '{}', which is an option of {}; {} (weft info --mixers "
        "{})",
        e.place.text(), options.path(), entry.name, e.key, owners, nearest_or_all(e.key, own),
        entry.name);
  }
}

}  // namespace

std::vector<MixerInfo> mixer_list() {
  std::vector<MixerInfo> list;
  for (const Entry& entry : kMixers) list.push_back({entry.name, entry.sentence, entry.options()});
  return list;
}

std::string remark_on(const std::string& name, const OptionTable& options) {
  return name == "ttt" ? remark_on_ttt(options) : "";
}

std::unique_ptr<Mixer> make_mixer(const std::string& name, const MixerBuild& build) {
  std::vector<std::string> names;
  for (const Entry& entry : kMixers) {
    if (name == entry.name) {
      refuse_options_of_others(entry, build.options);
      return entry.make(build);
    }
    names.emplace_back(entry.name);
  }
  const std::string where = build.options.path().empty() ? "" : build.options.path() + ".";
  throw ConfigError("{}mixer = \"{}\" is not a mixer ({}); weft info --mixers lists them", where,
                    name, nearest_or_all(name, names));
}

}  // namespace weft
