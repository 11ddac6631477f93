#include "tests/support/paths.h"

namespace weft::test {

std::string in_project(const std::string& path) { return WEFT_SOURCE_DIR "/" + path; }

const std::string& weft_program() {
  static const std::string path = WEFT_PROGRAM;
  return path;
}

std::string training_ranks_program() { return WEFT_TESTS "/training_ranks"; }

}  // namespace weft::test
