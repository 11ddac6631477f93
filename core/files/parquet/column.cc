#include "core/files/parquet/column.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "core/base/error.h"
#include "core/files/parquet/thrift.h"

namespace weft {
namespace {

using Type = ThriftReader::Type;

constexpr std::string_view kMagic = "PAR1";
constexpr int64_t kTail = 8;  // length of the footer and the magic
constexpr size_t kMostColumns = 1 << 16;

// An element of the schema: a column, or a group of them.
struct Element {
  std::string_view name;
  int64_t physical = -1;   // -1: a group
  int64_t repetition = 0;  // 0 required, 1 optional, 2 repeated
  int64_t children = 0;
  int64_t converted = -1, logical = -1;  // what it stands for; -1: not said
};

constexpr int64_t kByteArray = 6;

std::string physical_name(int64_t type) {
  static constexpr std::array<const char*, 8> kNames = {
      "BOOLEAN", "INT32",  "INT64",      "INT96",
      "FLOAT",   "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"};
  if (type < 0 || type >= std::ssize(kNames)) return fmt::format("type {}", type);
  return kNames[static_cast<size_t>(type)];
}

// Texts, also as ENUM, JSON or plain bytes (that they are UTF-8 is checked document by document).
bool is_text(const Element& e) {
  const bool converted =
      e.converted < 0 || e.converted == 0 || e.converted == 4 || e.converted == 19;
  const bool logical = e.logical < 0 || e.logical == 1 || e.logical == 4 || e.logical == 12;
  return e.physical == kByteArray && converted && logical;
}

Element read_element(ThriftReader& in, Type type) {
  Element e;
  in.structure(type, [&](int id, Type t) {
    switch (id) {
      case 1: e.physical = in.whole(t, 0, 7, "the type of a column"); return true;
      case 3: e.repetition = in.whole(t, 0, 2, "the repetition of a column"); return true;
      case 4: e.name = in.text(t); return true;
      case 5:
        e.children = in.whole(t, 0, INT32_MAX, "the number of columns in a group");
        return true;
      case 6: e.converted = in.whole(t, 0, 255, "what a column stands for"); return true;
      case 10:
        in.structure(t, [&](int kind, Type) {
          e.logical = kind;
          return false;
        });
        return true;
      default: return false;
    }
  });
  return e;
}

// A column of the file, by its place in the schema.
struct Leaf {
  std::string_view top;  // the column, or the group it is in
  int depth = 0;         // 1: the column itself
  int definition = 0, repetition = 0;
  Element element = {};
};

class Schema {
 public:
  Schema(std::vector<Element> elements, const std::string& file)
      : elements_(std::move(elements)), file_(file) {
    if (elements_.empty() || elements_[0].physical >= 0) refuse();
    for (int64_t child = 0; child < elements_[0].children; ++child) add(Leaf{});
    if (next_ != elements_.size()) refuse();
  }
  const std::vector<Leaf>& leaves() const { return leaves_; }

 private:
  [[noreturn]] void refuse() const {
    throw ConfigError("{}: damaged: its schema is no tree", file_);
  }

  void add(Leaf above) {
    if (next_ == elements_.size() || above.depth == 64) refuse();
    const Element& e = elements_[next_++];
    if (above.depth++ == 0) above.top = e.name;
    above.definition += e.repetition != 0 ? 1 : 0;
    above.repetition += e.repetition == 2 ? 1 : 0;
    if (e.physical < 0) {
      for (int64_t child = 0; child < e.children; ++child) add(above);
      return;
    }
    above.element = e;
    leaves_.push_back(above);
  }

  std::vector<Element> elements_;
  const std::string& file_;
  size_t next_ = 1;
  std::vector<Leaf> leaves_;
};

class Footer {
 public:
  explicit Footer(const MappedFile& file) : file_(file) {
    const int64_t size = file.size();
    if (size < 2 * static_cast<int64_t>(kMagic.size()) + 4) refuse("it is too short");
    const std::string_view magic = text(size - 4, 4);
    if (magic == "PARE") refuse("it is encrypted, which is not supported");
    if (magic != kMagic) refuse("it does not end with PAR1; it may have been cut");
    uint32_t length = 0;
    std::memcpy(&length, file.data() + size - kTail, sizeof length);
    if (length > size - kTail - 4) {
      refuse(fmt::format("its footer of {} bytes is not there; it may have been cut", length));
    }
    begin_ = size - kTail - length;
  }

  // Two passes: which column it is must be known before its chunks.
  ParquetColumn column(const std::string& name) {
    const Leaf leaf = choose(name);
    ParquetColumn column{name, leaf.definition, leaf.repetition, {}};
    int64_t rows = 0, all_rows = -1;
    ThriftReader in = reader();
    in.structure([&](int id, Type type) {
      if (id == 3) return all_rows = in.whole(type, 0, INT64_MAX, "the number of rows"), true;
      if (id != 4) return false;
      in.list(type, [&](Type t) { rows += read_row_group(in, t, column); });
      return true;
    });
    if (all_rows != rows)
      refuse(fmt::format("damaged: {} rows, but {} in its row groups", all_rows, rows));
    check_overlap(column);
    return column;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError("{}: {}", file_.path(), what);
  }
  std::string_view text(int64_t at, size_t size) const {
    return {reinterpret_cast<const char*>(file_.data() + at), size};
  }
  ThriftReader reader() const {
    const auto length = static_cast<size_t>(file_.size() - kTail - begin_);
    return {file_.bytes().subspan(static_cast<size_t>(begin_), length), file_.path(), begin_};
  }

  std::vector<Leaf> leaves() const {
    std::vector<Element> elements;
    ThriftReader in = reader();
    in.structure([&](int id, Type type) {
      if (id != 2) return false;
      in.list(type, [&](Type t) {
        elements.push_back(read_element(in, t));
        if (elements.size() > kMostColumns)
          refuse(fmt::format("more than {} columns, which is not supported", kMostColumns));
      });
      return true;
    });
    return Schema(std::move(elements), file_.path()).leaves();
  }

  Leaf choose(const std::string& name) {
    const std::vector<Leaf> all = leaves();
    columns_ = all.size();
    std::vector<size_t> found;
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[i].top == name) found.push_back(i);
    }
    const auto no_text = [&](const std::string& why) {
      refuse(
          fmt::format("{}; it has texts in the columns [{}], see --key", why, text_columns(all)));
    };
    if (found.empty()) no_text(fmt::format("no column \"{}\"", name));
    index_ = found[0];
    const Leaf& leaf = all[index_];
    const bool flat = leaf.depth == 1;
    const bool list = leaf.repetition == 1 && leaf.depth <= 3;
    if (found.size() > 1 || !(flat || list) || leaf.repetition > 1) {
      no_text(
          fmt::format("the column \"{}\" is a group (struct, map or lists of lists), not texts "
                      "or lists of texts",
                      name));
    }
    if (!is_text(leaf.element)) {
      no_text(fmt::format("the column \"{}\" has {} in it, not texts", name,
                          leaf.element.physical == kByteArray
                              ? "other values than texts"
                              : physical_name(leaf.element.physical)));
    }
    return leaf;
  }

  static std::string text_columns(const std::vector<Leaf>& all) {
    std::vector<std::string_view> names;
    for (const Leaf& leaf : all) {
      if (!is_text(leaf.element) || leaf.repetition > 1 || leaf.depth > 3) continue;
      if (names.empty() || names.back() != leaf.top.substr(0, 60))
        names.push_back(leaf.top.substr(0, 60));
      if (names.size() == 20) break;
    }
    return fmt::format("{}", fmt::join(names, ", "));
  }

  // Returns the number of rows.
  int64_t read_row_group(ThriftReader& in, Type type, ParquetColumn& column) const {
    int64_t rows = -1;
    size_t columns = 0;
    in.structure(type, [&](int id, Type t) {
      if (id == 3) return rows = in.whole(t, 0, int64_t{1} << 40, "the rows of a row group"), true;
      if (id != 1) return false;
      in.list(t, [&](Type chunk) {
        if (columns++ == index_)
          column.chunks.push_back(read_chunk(in, chunk));
        else
          in.skip(chunk);
      });
      return true;
    });
    if (rows < 0 || columns != columns_)
      in.refuse("a row group with other columns than the schema");
    const int64_t values = column.chunks.back().values;
    if (column.repetition == 0 ? values != rows : values < rows)
      in.refuse(fmt::format("{} values of the column in {} rows", values, rows));
    return rows;
  }

  ParquetColumn::Chunk read_chunk(ThriftReader& in, Type type) const {
    std::optional<ParquetColumn::Chunk> chunk;
    in.structure(type, [&](int id, Type t) {
      if (id == 1 && !in.text(t).empty())
        refuse("the column lies in another file, which is not supported");
      if (id == 1) return true;
      if (id == 8 || id == 9) refuse("the column is encrypted, which is not supported");
      if (id != 3) return false;
      chunk = read_metadata(in, t);
      return true;
    });
    if (!chunk) in.refuse("a column without metadata");
    return *chunk;
  }

  ParquetColumn::Chunk read_metadata(ThriftReader& in, Type type) const {
    int64_t codec = -1, values = -1, packed = -1, data = -1, dictionary = -1, physical = -1;
    in.structure(type, [&](int id, Type t) {
      switch (id) {
        case 1: physical = in.whole(t); return true;
        case 4: codec = in.whole(t); return true;
        case 5: values = in.whole(t, 0, int64_t{1} << 40, "the number of values"); return true;
        case 7: packed = in.whole(t, 0, begin_, "the size of a column"); return true;
        case 9: data = in.whole(t, 4, begin_, "the place of a column's data"); return true;
        case 11:
          dictionary = in.whole(t, 0, begin_, "the place of a column's dictionary");
          return true;
        default: return false;
      }
    });
    if (physical != kByteArray) in.refuse("a chunk of another type than its column");
    if (values < 0 || packed < 0 || data < 0) in.refuse("a chunk without its size and place");
    const int64_t begin = dictionary >= 4 && dictionary < data ? dictionary : data;
    if (packed > begin_ - begin) in.refuse("a chunk that reaches into the footer");
    return {begin, begin + packed, values, codec_of(codec)};
  }

  ParquetCodec codec_of(int64_t codec) const {
    static constexpr std::array<const char*, 8> kNames = {
        "UNCOMPRESSED", "SNAPPY", "GZIP", "LZO", "BROTLI", "LZ4", "ZSTD", "LZ4_RAW"};
    if (codec < 0 || codec >= std::ssize(kNames))
      refuse(fmt::format("packed with an unknown codec, {}", codec));
    if (codec <= 2 || codec == 6) return static_cast<ParquetCodec>(codec);
    refuse(fmt::format(
        "packed with {}, which is not supported; supported are UNCOMPRESSED, SNAPPY, GZIP and ZSTD",
        kNames[static_cast<size_t>(codec)]));
  }

  // Row groups that share bytes would let a small file be read without end.
  void check_overlap(const ParquetColumn& column) const {
    std::vector<ParquetColumn::Chunk> sorted = column.chunks;
    std::sort(sorted.begin(), sorted.end(), [](auto& a, auto& b) { return a.begin < b.begin; });
    for (size_t i = 1; i < sorted.size(); ++i) {
      if (sorted[i].begin < sorted[i - 1].end)
        refuse(fmt::format("damaged: two row groups share byte {}", sorted[i].begin));
    }
  }

  const MappedFile& file_;
  int64_t begin_ = 0;               // of the footer
  size_t index_ = 0, columns_ = 0;  // the column's place among all
};

}  // namespace

bool is_parquet(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  std::array<char, 4> magic{};
  const bool read = pread(fd, magic.data(), magic.size(), 0) == 4;
  close(fd);
  const std::string_view text(magic.data(), magic.size());
  return read && (text == kMagic || text == "PARE");
}

ParquetColumn parquet_column(const MappedFile& file, const std::string& name) {
  return Footer(file).column(name);
}

}  // namespace weft
