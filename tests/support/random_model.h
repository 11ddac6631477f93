#pragma once

#include <string>

#include "launcher/checkpoint/loaded_model.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {

// A small hybrid with random weights, or another model, as a checkpoint in a scratch folder.
class RandomModel {
 public:
  explicit RandomModel(Runtime& runtime, const std::string& config = "");
  std::string path() const { return folder_.path().string(); }

 private:
  ScratchFolder folder_;
};

}  // namespace weft::test
