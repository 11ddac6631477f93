#include "core/files/parquet/texts.h"

#include <zlib.h>

#include <bit>
#include <cstring>

#include "core/base/error.h"
#include "core/files/parquet/runs.h"

namespace weft {
namespace {

using Bytes = std::span<const std::byte>;

uint32_t four_bytes(Bytes data) {
  uint32_t value = 0;
  std::memcpy(&value, data.data(), sizeof value);
  return value;
}

class PageReader {
 public:
  PageReader(const MappedFile& file, const ParquetColumn& column, const ParquetPage& page)
      : column_(column),
        page_(page),
        where_(fmt::format("{}: the page at byte {}", file.path(), page.begin)),
        stored_(file.bytes().subspan(static_cast<size_t>(page.begin),
                                     static_cast<size_t>(page.size))) {}

  ParquetTexts run(std::shared_ptr<const ParquetTexts> dictionary) {
    check_crc();
    try {
      unpack();
      out_.dictionary = std::move(dictionary);
      read_values(count_values());
    } catch (const RunsError& error) {
      refuse(error.what);
    }
    spread();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError("{}: damaged: {}", where_, what);
  }

  void check_crc() const {
    if (!page_.crc) return;
    const auto sum = crc32_z(0, reinterpret_cast<const Bytef*>(stored_.data()), stored_.size());
    if (*page_.crc != static_cast<uint32_t>(sum)) refuse("its bytes are not those of its checksum");
  }

  // Finds the levels, and the values behind them, unpacked.
  void unpack() {
    const ParquetCodec codec = column_.chunks[page_.chunk].codec;
    if (page_.kind == ParquetPage::Kind::kDataV2) {
      const auto repetition = static_cast<size_t>(page_.repetition_bytes);
      const auto levels = repetition + static_cast<size_t>(page_.definition_bytes);
      definitions_ = stored_.subspan(repetition, levels - repetition);
      out_.bytes = unpacked(page_.packed ? codec : ParquetCodec::kNone, stored_.subspan(levels),
                            static_cast<size_t>(page_.unpacked) - levels, where_);
      values_ = out_.bytes.span();
      return;
    }
    out_.bytes = unpacked(codec, stored_, static_cast<size_t>(page_.unpacked), where_);
    values_ = out_.bytes.span();
    if (page_.kind == ParquetPage::Kind::kDictionary) return;
    if (column_.repetition > 0) take_levels();  // where lists begin does not matter
    if (column_.definition > 0) definitions_ = take_levels();
  }

  // Levels of the first version: their length, then they.
  Bytes take_levels() {
    if (values_.size() < 4) refuse("it ends before its levels");
    const uint32_t length = four_bytes(values_);
    if (length > values_.size() - 4) refuse("levels that are longer than the page");
    const Bytes levels = values_.subspan(4, length);
    values_ = values_.subspan(4 + length);
    return levels;
  }

  // Which values are there.
  int64_t count_values() {
    if (page_.kind == ParquetPage::Kind::kDictionary || column_.definition == 0)
      return page_.values;
    RunReader levels(definitions_, std::bit_width(static_cast<unsigned>(column_.definition)));
    present_.resize(static_cast<size_t>(page_.values));
    int64_t count = 0;
    for (size_t i = 0; i < present_.size(); ++i) {
      const uint32_t level = levels.next();
      if (level > static_cast<uint32_t>(column_.definition)) refuse("a level beyond the schema's");
      present_[i] = level == static_cast<uint32_t>(column_.definition);
      count += present_[i] ? 1 : 0;
    }
    const bool counted = page_.kind == ParquetPage::Kind::kDataV2;
    if (counted && page_.nulls != page_.values - count && column_.repetition == 0)
      refuse(fmt::format("{} values are missing, its header says {}", page_.values - count,
                         page_.nulls));
    return count;
  }

  void read_values(int64_t count) {
    if (count == 0) return;
    const bool plain =
        page_.kind == ParquetPage::Kind::kDictionary || page_.encoding == ParquetEncoding::kPlain;
    if (plain && count > std::ssize(values_) / 4) refuse("it ends before its last value");
    out_.texts.reserve(static_cast<size_t>(count));
    if (plain) return read_plain(count);
    switch (page_.encoding) {
      case ParquetEncoding::kPlain:
      case ParquetEncoding::kDictionary: return read_entries(count);
      case ParquetEncoding::kDeltaLength: read_delta_length(values_, count); return;
      case ParquetEncoding::kDelta: return read_delta(count);
    }
  }

  std::string_view text_at(Bytes data, size_t at, size_t size) const {
    if (size > data.size() - at) refuse("a text that is longer than the page");
    return {reinterpret_cast<const char*>(data.data()) + at, size};
  }

  void read_plain(int64_t count) {
    size_t at = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (values_.size() - at < 4) refuse("it ends before its last value");
      const uint32_t size = four_bytes(values_.subspan(at));
      at += 4;
      out_.texts.push_back(text_at(values_, at, size));
      at += size;
    }
    if (at != values_.size())
      refuse(fmt::format("{} bytes behind its last value", values_.size() - at));
  }

  void read_entries(int64_t count) {
    if (out_.dictionary == nullptr) refuse("entries of a dictionary that is not there");
    if (values_.empty()) refuse("it ends before its last value");
    const int width = static_cast<int>(values_[0]);
    if (width > 32) refuse("entries of more than 32 bits");
    const auto& entries = out_.dictionary->texts;
    RunReader runs(values_.subspan(1), width);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t entry = runs.next();
      if (entry >= entries.size())
        refuse(fmt::format("entry {} of a dictionary of {}", entry, entries.size()));
      out_.texts.push_back(entries[entry]);
    }
  }

  void read_delta_length(Bytes data, int64_t count) {
    const DeltaNumbers lengths = delta_numbers(data, count);
    if (std::ssize(lengths.values) != count) refuse("fewer lengths than values");
    size_t at = lengths.bytes;
    for (const int32_t length : lengths.values) {
      out_.texts.push_back(text_at(data, at, static_cast<size_t>(length)));
      at += static_cast<size_t>(length);
    }
    if (at != data.size()) refuse("bytes behind its last value");
  }

  // Each text begins with so many bytes of the one before: they are written out.
  void read_delta(int64_t count) {
    const DeltaNumbers prefixes = delta_numbers(values_, count);
    if (std::ssize(prefixes.values) != count) refuse("fewer lengths than values");
    read_delta_length(values_.subspan(prefixes.bytes), count);
    size_t all = 0, before = 0;
    for (size_t i = 0; i < out_.texts.size(); ++i) {
      const auto prefix = static_cast<size_t>(prefixes.values[i]);
      if (prefix > before) refuse("a text that begins with more than the one before has");
      before = prefix + out_.texts[i].size();
      all += before;
      if (all > static_cast<size_t>(ParquetPage::kLargest)) refuse("texts of more than 1 GiB");
    }
    RawBytes whole{std::make_unique_for_overwrite<std::byte[]>(all + 1), all};
    auto* to = reinterpret_cast<char*>(whole.data.get());
    const char* last = to;
    for (size_t i = 0; i < out_.texts.size(); ++i) {
      const auto prefix = static_cast<size_t>(prefixes.values[i]);
      const std::string_view rest = out_.texts[i];
      if (prefix > 0) std::memcpy(to, last, prefix);
      if (!rest.empty()) std::memcpy(to + prefix, rest.data(), rest.size());
      out_.texts[i] = {to, prefix + rest.size()};
      last = std::exchange(to, to + prefix + rest.size());
    }
    out_.bytes = std::move(whole);
  }

  // Puts empty views where values are missing.
  void spread() {
    if (present_.empty() || out_.texts.size() == present_.size()) return;
    size_t from = out_.texts.size();
    out_.texts.resize(present_.size());
    for (size_t to = present_.size(); to-- > 0;) {
      out_.texts[to] = present_[to] ? out_.texts[--from] : std::string_view();
    }
  }

  const ParquetColumn& column_;
  const ParquetPage& page_;
  std::string where_;
  Bytes stored_, definitions_, values_;
  std::vector<bool> present_;
  ParquetTexts out_;
};

}  // namespace

ParquetTexts read_texts(const MappedFile& file, const ParquetColumn& column,
                        const ParquetPage& page, std::shared_ptr<const ParquetTexts> dictionary) {
  return PageReader(file, column, page).run(std::move(dictionary));
}

}  // namespace weft
