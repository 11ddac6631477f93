#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/data/parquet_reader.h"
#include "core/data/text_reader.h"

namespace weft {

// Where text comes from and what a document of it is.
struct TextInputs {
  enum class Document : uint8_t { kFile, kLine, kParagraph };
  enum class Strip : uint8_t { kNothing, kRoff };

  std::vector<std::string> inputs;  // files and folders
  bool jsonl = false;               // text files have an object per line
  std::string key = "text";         // in those objects; the column of Parquet files
  Document document = Document::kFile;
  Strip strip = Strip::kNothing;
  // Seed of a random order of the files; negative: in the order of their names.
  int64_t shuffle = -1;
};

// Throws ConfigError for options that contradict each other.
void check_inputs(const TextInputs& inputs);

// Files under the inputs, folders walked in the order of their names; links inside folders are not
// followed (manual pages have many to the same page).
std::vector<std::string> files_under(const std::vector<std::string>& inputs);
// The same in the order of the seed.
std::vector<std::string> files_of(const TextInputs& inputs);

// A document as it stands in its file: not checked, a line of JSON as it is.
struct RawDocument {
  std::string text;
  size_t file = 0;   // index in the list of files
  int64_t line = 0;  // of that file, from 1; 0: a whole file
  bool json = false;
};

// The documents of files, one after the other: text files as the inputs say, Parquet files (seen
// from their content) by the column `key`, unpacked by `threads`.
class DocumentReader {
 public:
  DocumentReader(const TextInputs& inputs, std::vector<std::string> files, int threads = 1)
      : inputs_(inputs), files_(std::move(files)), threads_(threads) {}

  std::optional<RawDocument> next();

  // How far it has read: files finished, and documents of the next one.
  struct Position {
    size_t file = 0;
    int64_t document = 0;
  };
  Position position() const { return position_; }
  void skip_to(Position position);  // forwards only

  const std::vector<std::string>& files() const { return files_; }

 private:
  void open_file();
  std::optional<RawDocument> next_of_file();
  std::optional<std::string> next_text();
  std::optional<std::string> paragraph();

  TextInputs inputs_;
  std::vector<std::string> files_;
  int threads_;
  Position position_;
  std::unique_ptr<TextReader> text_;        // of the file that is open
  std::unique_ptr<ParquetReader> parquet_;  // likewise
};

enum class Verdict : uint8_t { kText, kNotText, kEmpty };
// The text of a document, ready to be encoded. Throws ConfigError with file and line for JSON that
// has none. Thread-safe.
Verdict text_of(const TextInputs& inputs, const std::string& file, RawDocument document,
                std::string& text);

}  // namespace weft
