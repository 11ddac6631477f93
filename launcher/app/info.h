#pragma once

#include <string>

namespace weft {

std::string version_text();  // "weft 0.1.0 (revision)"
std::string revision_text();
std::string version_number();

}  // namespace weft
