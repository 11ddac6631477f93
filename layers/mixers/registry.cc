#include "layers/mixers/registry.h"

#include "core/nearest.h"

namespace weft {

// Each mixer's file defines these two for its name.
#define WEFT_MIXER(name, sentence)                              \
  std::unique_ptr<Mixer> make_##name(const MixerBuild& build);  \
  std::vector<FieldInfo> options_of_##name();
#include "layers/mixers/mixers.def"
#undef WEFT_MIXER

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

}  // namespace

std::vector<MixerInfo> mixer_list() {
  std::vector<MixerInfo> list;
  for (const Entry& entry : kMixers) list.push_back({entry.name, entry.sentence, entry.options()});
  return list;
}

std::unique_ptr<Mixer> make_mixer(const std::string& name, const MixerBuild& build) {
  std::vector<std::string> names;
  for (const Entry& entry : kMixers) {
    if (name == entry.name) return entry.make(build);
    names.emplace_back(entry.name);
  }
  const std::string where = build.options.path().empty() ? "" : build.options.path() + ".";
  throw ConfigError("{}mixer = \"{}\" is not a mixer ({}); weft info --mixers lists them", where, name,
                    nearest_or_all(name, names));
}

}  // namespace weft
