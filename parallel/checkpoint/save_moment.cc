#include "parallel/checkpoint/save_moment.h"

#include <array>

namespace weft {

std::string_view name_of(SaveMoment moment) {
  static constexpr std::array<std::string_view, static_cast<size_t>(SaveMoment::kCount)> kNames = {
      "begun",     "written", "synced",    "indexed", "described",
      "replacing", "renamed", "published", "pruning"};
  return kNames[static_cast<size_t>(moment)];
}

}  // namespace weft
