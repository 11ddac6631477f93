#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace weft::test {

// Parquet files written by hand, valid or malformed, with one column "text".
struct MadePage {
  int kind = 0;  // 0 data, 2 dictionary, 3 data of the second version
  std::string stored;
  int64_t values = 0;
  int encoding = 0;
  int64_t unpacked = -1, size = -1;  // sizes in the header; -1: those of `stored`
  int64_t definition_bytes = 0;      // second version
};

struct MadeFile {
  std::vector<std::vector<MadePage>> row_groups;
  int codec = 0;
  bool optional = false;
  int64_t rows = -1;       // of each row group in the footer; -1: those of the pages
  bool share = false;      // all row groups share the bytes of the first
  int64_t dictionary = 0;  // dictionary offset in the footer, relative to the chunk; 0: none
};

std::string parquet_bytes(const MadeFile& file);

std::string plain_values(const std::vector<std::string>& texts);  // in PLAIN encoding
std::string four_bytes(uint32_t value);

// Structs of Thrift's compact protocol.
class ThriftWriter {
 public:
  ThriftWriter& whole(int id, int64_t value);  // as i64, which readers of i32 accept too
  ThriftWriter& text(int id, const std::string& value);
  ThriftWriter& structure(int id, const ThriftWriter& value);
  ThriftWriter& list(int id, const std::vector<ThriftWriter>& values);
  std::string bytes() const { return out_ + '\0'; }

 private:
  void head(int id, int type);
  void varint(uint64_t value);
  std::string out_;
  int last_ = 0;
};

}  // namespace weft::test
