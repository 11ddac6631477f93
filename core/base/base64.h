#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

// Base64 of RFC 4648 with its padding; nothing when `text` is not that.
std::optional<std::string> from_base64(std::string_view text);
std::string to_base64(std::string_view bytes);

}  // namespace weft
