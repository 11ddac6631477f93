#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct DataBuild {
  enum class Document : uint8_t { kFile, kLine, kParagraph };
  enum class Strip : uint8_t { kNothing, kRoff };

  std::vector<std::string> inputs;  // files and folders
  std::string out;                  // prefix
  bool jsonl = false;
  std::string key = "text";
  Document document = Document::kFile;
  Strip strip = Strip::kNothing;
  int64_t max_bytes = 0;  // of text; 0: all
  int64_t shuffle =
      -1;  // seed of a random order of the files; negative: in the order of their names
  bool force = false;
};

struct DataBuilt {
  int64_t files = 0, documents = 0, bytes = 0, tokens = 0;
  int64_t not_text = 0, empty = 0;  // documents left out
};

// Files under the inputs, folders walked in the order of their names; links inside folders are not
// followed (manual pages have many to the same page).
std::vector<std::string> files_under(const std::vector<std::string>& inputs);

// Writes out.bin, out.idx and out.tokenizer.json. Shows progress on stderr.
DataBuilt build_dataset(const DataBuild& options);

}  // namespace weft
