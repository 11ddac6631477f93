#pragma once

#include <cstdlib>
#include <string>

namespace weft::test {

// WEFT_FAIL_AT for the programs started, and the code run, while this lives (launcher/drill.h).
class Drill {
 public:
  explicit Drill(const std::string& at) { setenv("WEFT_FAIL_AT", at.c_str(), 1); }
  ~Drill() { unsetenv("WEFT_FAIL_AT"); }
  Drill(const Drill&) = delete;
  Drill& operator=(const Drill&) = delete;
};

}  // namespace weft::test
