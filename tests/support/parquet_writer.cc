#include "tests/support/parquet_writer.h"

namespace weft::test {

void ThriftWriter::varint(uint64_t value) {
  for (; value >= 0x80; value >>= 7) out_ += static_cast<char>((value & 0x7F) | 0x80);
  out_ += static_cast<char>(value);
}

void ThriftWriter::head(int id, int type) {
  out_ += static_cast<char>((id - last_) << 4 | type);
  last_ = id;
}

ThriftWriter& ThriftWriter::whole(int id, int64_t value) {
  head(id, 6);
  varint(static_cast<uint64_t>(value) << 1 ^ static_cast<uint64_t>(value >> 63));
  return *this;
}

ThriftWriter& ThriftWriter::text(int id, const std::string& value) {
  head(id, 8);
  varint(value.size());
  out_ += value;
  return *this;
}

ThriftWriter& ThriftWriter::structure(int id, const ThriftWriter& value) {
  head(id, 12);
  out_ += value.bytes();
  return *this;
}

ThriftWriter& ThriftWriter::list(int id, const std::vector<ThriftWriter>& values) {
  head(id, 9);
  if (values.size() < 15) {
    out_ += static_cast<char>(values.size() << 4 | 12);
  } else {
    out_ += static_cast<char>(0xFC);
    varint(values.size());
  }
  for (const ThriftWriter& value : values) out_ += value.bytes();
  return *this;
}

std::string four_bytes(uint32_t value) {
  return {reinterpret_cast<const char*>(&value), sizeof value};
}

std::string plain_values(const std::vector<std::string>& texts) {
  std::string out;
  for (const std::string& text : texts)
    out += four_bytes(static_cast<uint32_t>(text.size())) + text;
  return out;
}

namespace {

std::string header_of(const MadePage& page) {
  const auto stored = static_cast<int64_t>(page.stored.size());
  ThriftWriter out;
  out.whole(1, page.kind)
      .whole(2, page.unpacked < 0 ? stored : page.unpacked)
      .whole(3, page.size < 0 ? stored : page.size);
  ThriftWriter body;
  body.whole(1, page.values);
  if (page.kind == 0)
    return out.structure(5, body.whole(2, page.encoding).whole(3, 3).whole(4, 3)).bytes();
  if (page.kind == 2) return out.structure(7, body.whole(2, page.encoding)).bytes();
  body.whole(2, 0).whole(3, page.values).whole(4, page.encoding);
  return out.structure(8, body.whole(5, page.definition_bytes).whole(6, 0)).bytes();
}

}  // namespace

std::string parquet_bytes(const MadeFile& file) {
  std::string out = "PAR1";
  std::vector<ThriftWriter> groups;
  int64_t all_rows = 0, first = 4;
  for (const auto& pages : file.row_groups) {
    const int64_t begin = file.share ? first : static_cast<int64_t>(out.size());
    int64_t values = 0;
    for (const MadePage& page : pages) {
      if (!file.share || groups.empty()) out += header_of(page) + page.stored;
      if (page.kind != 2) values += page.values;
    }
    const int64_t rows = file.rows < 0 ? values : file.rows;
    const int64_t end = static_cast<int64_t>(out.size());
    ThriftWriter meta;
    meta.whole(1, 6).whole(4, file.codec).whole(5, rows).whole(7, end - begin).whole(9, begin);
    if (file.dictionary != 0) meta.whole(11, begin + file.dictionary);
    ThriftWriter chunk;
    groups.push_back(ThriftWriter().list(1, {chunk.structure(3, meta)}).whole(3, rows));
    all_rows += rows;
  }
  ThriftWriter root, column, footer;
  root.text(4, "schema").whole(5, 1);
  column.whole(1, 6).whole(3, file.optional ? 1 : 0).text(4, "text");
  const std::string end =
      footer.whole(1, 1).list(2, {root, column}).whole(3, all_rows).list(4, groups).bytes();
  return out + end + four_bytes(static_cast<uint32_t>(end.size())) + "PAR1";
}

}  // namespace weft::test
