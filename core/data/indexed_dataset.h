#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/mapped_file.h"
#include "core/files/new_file.h"

namespace weft {

// Megatron's indexed dataset: PREFIX.bin holds tokens, PREFIX.idx says where sequences and
// documents lie.
//
//   .idx   "MMIDIDX\0\0" | u64 version = 1 | u8 type code | u64 sequences | u64 documents + 1
//          | i32 length[sequences] | i64 byte offset[sequences] | i64 first sequence[documents + 1]
//
// Little endian, without padding, so that nothing behind the magic is aligned. A document is a run
// of sequences; most writers make it one.

// The type codes of the format that tokens can have (6 and 7 are f64 and f32).
enum class TokenType : uint8_t { kU8 = 1, kI8 = 2, kI16 = 3, kI32 = 4, kI64 = 5, kU16 = 8 };
int64_t size_of(TokenType type);
std::string_view name_of(TokenType type);
TokenType token_type_for(int64_t vocab);  // u16 when every id fits, else i32

// "dir/corpus" for "dir/corpus", "dir/corpus.bin" and "dir/corpus.idx".
std::string dataset_prefix(const std::string& path);

class IndexedDataset {
 public:
  // Maps both files and checks the index completely; a ConfigError names file and byte.
  explicit IndexedDataset(const std::string& path);

  const std::string& prefix() const { return prefix_; }
  const std::string& bin_path() const { return bin_.path(); }
  const std::string& idx_path() const { return idx_.path(); }
  std::span<const std::byte> bin_bytes() const { return bin_.bytes(); }
  std::span<const std::byte> idx_bytes() const { return idx_.bytes(); }
  TokenType type() const { return type_; }
  int64_t sequences() const { return sequences_; }
  int64_t documents() const { return documents_; }
  int64_t tokens() const { return tokens_; }
  int64_t unused_bytes() const;  // of the .bin: belonging to no sequence

  int64_t document_tokens(int64_t document) const;
  // Tokens [begin, begin + count) of a document. Ids beyond 31 bits are cut: check_tokens first.
  void read(int64_t document, int64_t begin, int64_t count, int32_t* out) const;
  std::vector<int32_t> read(int64_t document) const;

  struct BadToken {
    int64_t value, document, byte;  // byte: offset in the .bin
  };
  // The first token outside [0, vocab), by a pass over all of the data. Many threads:
  // core/data/dataset_pass.h.
  std::optional<BadToken> find_token_beyond(int64_t vocab) const;
  // Where the first one starts among those that start in bytes [begin, end) of the .bin.
  std::optional<int64_t> find_byte_beyond(int64_t vocab, int64_t begin, int64_t end) const;
  void check_tokens(int64_t vocab) const;  // throws as refuse_token does if there is one
  // The ConfigError about it: file, document and byte.
  [[noreturn]] void refuse_token(int64_t byte, int64_t vocab) const;

 private:
  int64_t length(int64_t sequence) const;
  int64_t offset(int64_t sequence) const;
  int64_t first_sequence(int64_t document) const;
  int64_t document_of_byte(int64_t byte) const;
  BadToken token_at(int64_t byte) const;
  void read_header();
  void check_sequences();
  void check_documents() const;

  std::string prefix_;
  MappedFile idx_, bin_;
  TokenType type_ = TokenType::kU16;
  int64_t sequences_ = 0, documents_ = 0, tokens_ = 0;
  int64_t lengths_at_ = 0, offsets_at_ = 0, documents_at_ = 0;  // bytes in the .idx
  bool dense_ = true;  // sequences follow each other without gaps
};

// Tokens as they lie in a .bin, appended to `out`; each must fit into the type.
void append_tokens(TokenType type, std::span<const int32_t> tokens, std::vector<char>& out);
// The content of an .idx whose sequences follow each other without gaps.
void write_index(NewFile& idx, TokenType type, std::span<const int32_t> lengths,
                 std::span<const int64_t> first_sequence);

// Writes a dataset of any size in one pass: tokens go to the disk as they come, four bytes per
// sequence stay in memory. Both files appear when finished.
class IndexedDatasetWriter {
 public:
  IndexedDatasetWriter(const std::string& prefix, TokenType type);

  void add_sequence(std::span<const int32_t> tokens);
  void end_document();
  void add_document(std::span<const int32_t> tokens) {
    add_sequence(tokens);
    end_document();
  }
  void finish();

  int64_t tokens() const { return tokens_; }
  int64_t documents() const { return static_cast<int64_t>(first_sequence_.size()) - 1; }

 private:
  TokenType type_;
  NewFile bin_, idx_;
  std::vector<int32_t> lengths_;
  std::vector<int64_t> first_sequence_{0};
  std::vector<char> encoded_;
  int64_t tokens_ = 0;
};

}  // namespace weft
