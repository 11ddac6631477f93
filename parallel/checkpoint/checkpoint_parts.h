#pragma once

#include <string>

#include "core/files/manifest.h"

namespace weft {

// Files and pieces of one rank as text for the rank that writes the manifest, and back into one.
std::string parts_to_text(const Manifest& part);
void add_parts(const std::string& text, Manifest& whole);

}  // namespace weft
