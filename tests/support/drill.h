#pragma once

#include <cstdlib>
#include <string>

namespace weft::test {

// WEFT_FAIL_AT for the programs started, and the code run, while this lives
// (launcher/train/drill.h). What is slow is so until the file `until` is there.
class Drill {
 public:
  explicit Drill(const std::string& at, const std::string& until = "") {
    setenv("WEFT_FAIL_AT", at.c_str(), 1);
    if (!until.empty()) setenv("WEFT_FAIL_UNTIL", until.c_str(), 1);
  }
  ~Drill() {
    unsetenv("WEFT_FAIL_AT");
    unsetenv("WEFT_FAIL_UNTIL");
  }
  Drill(const Drill&) = delete;
  Drill& operator=(const Drill&) = delete;
};

}  // namespace weft::test
