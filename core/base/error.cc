#include "core/base/error.h"

namespace weft {

void throw_check(const char* condition, const char* file, int line, const std::string& message) {
  throw Error("{} [{}, {}:{}]", message, condition, file, line);
}

}  // namespace weft
