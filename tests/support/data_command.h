#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "core/data/indexed_dataset.h"
#include "core/data/tokenizer.h"
#include "launcher/data/data.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {

using Texts = std::vector<std::string>;

// Runs `weft data ...` inside this process and returns what it prints.
inline std::string run_data(std::vector<std::string> arguments) {
  CLI::App app;
  add_data(app);
  arguments.insert(arguments.begin(), "data");
  std::reverse(arguments.begin(), arguments.end());  // CLI11 expects reversed arguments
  testing::internal::CaptureStdout();
  try {
    app.parse(arguments);
  } catch (...) {
    testing::internal::GetCapturedStdout();
    throw;
  }
  return testing::internal::GetCapturedStdout();
}

// Documents of a dataset of bytes.
inline Texts documents_of(const std::string& prefix) {
  const IndexedDataset data(prefix);
  Texts texts;
  for (int64_t d = 0; d < data.documents(); ++d) {
    const auto ids = data.read(d);
    EXPECT_EQ(ids.back(), ByteTokenizer::kEndOfDocument);
    texts.push_back(ByteTokenizer().decode(ids));
  }
  return texts;
}

inline std::string files_of_dataset(const std::string& prefix) {
  return get_file(prefix + ".bin") + get_file(prefix + ".idx") +
         get_file(prefix + ".tokenizer.json");
}

}  // namespace weft::test
