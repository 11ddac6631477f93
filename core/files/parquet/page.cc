#include "core/files/parquet/page.h"

#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "core/files/parquet/thrift.h"

namespace weft {
namespace {

using Type = ThriftReader::Type;

ParquetEncoding encoding_of(int64_t code, const std::string& file) {
  static constexpr std::array<const char*, 10> kNames = {
      "PLAIN",          "encoding 1",          "PLAIN_DICTIONARY",        "RLE",
      "BIT_PACKED",     "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
      "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"};
  switch (code) {
    case 0: return ParquetEncoding::kPlain;
    case 2:
    case 8: return ParquetEncoding::kDictionary;
    case 6: return ParquetEncoding::kDeltaLength;
    case 7: return ParquetEncoding::kDelta;
    default: break;
  }
  const bool known = code >= 0 && code < std::ssize(kNames);
  throw ConfigError(
      "{}: texts written as {}, which is not supported; supported are PLAIN, PLAIN_DICTIONARY, "
      "RLE_DICTIONARY, DELTA_LENGTH_BYTE_ARRAY and DELTA_BYTE_ARRAY",
      file, known ? kNames[static_cast<size_t>(code)] : fmt::format("encoding {}", code));
}

constexpr int64_t kRle = 3;

}  // namespace

void ParquetPages::refuse(const std::string& what) const {
  throw ConfigError("{}: damaged: the page at byte {} of row group {}: {}", file_.path(), at_,
                    chunk_, what);
}

ParquetPage ParquetPages::read_header(int64_t end) {
  ThriftReader in(file_.bytes().subspan(static_cast<size_t>(at_), static_cast<size_t>(end - at_)),
                  file_.path(), at_);
  ParquetPage page;
  int64_t type = -1, encoding = -1, definition = kRle, repetition = kRle;
  const auto body = [&](int id, Type t) {  // of the first version, and of a dictionary
    if (id == 1) return page.values = in.whole(t, 0, INT32_MAX, "the number of values"), true;
    if (id == 2) return encoding = in.whole(t), true;
    if (id == 3 && type == 0) return definition = in.whole(t), true;
    if (id == 4) return repetition = in.whole(t), true;
    return false;
  };
  const auto body_v2 = [&](int id, Type t) {
    const auto count = [&] { return in.whole(t, 0, INT32_MAX, "a number of a page"); };
    switch (id) {
      case 1: page.values = count(); return true;
      case 2: page.nulls = count(); return true;
      case 4: encoding = in.whole(t); return true;
      case 5: page.definition_bytes = count(); return true;
      case 6: page.repetition_bytes = count(); return true;
      case 7: page.packed = in.flag(t); return true;
      default: return false;
    }
  };
  page.unpacked = page.size = -1;
  int64_t described = -1;
  in.structure([&](int id, Type t) {
    switch (id) {
      case 1: type = in.whole(t); return true;
      case 2: page.unpacked = in.whole(t, 0, INT32_MAX, "the unpacked size of a page"); return true;
      case 3: page.size = in.whole(t, 0, INT32_MAX, "the size of a page"); return true;
      case 4: page.crc = static_cast<uint32_t>(in.whole(t)); return true;
      case 5: described = 0; return in.structure(t, body), true;
      case 7: described = 2; return in.structure(t, body), true;
      case 8: described = 3; return in.structure(t, body_v2), true;
      default: return false;
    }
  });
  if (page.unpacked < 0 || page.size < 0) refuse("its size is missing");
  page.begin = at_ + static_cast<int64_t>(in.at());
  page.chunk = chunk_;
  if (type == 1) {  // an index, which readers of texts skip
    page.values = 0;
    return page;
  }
  if (type != described) refuse("its header is of another kind than it says");
  page.kind = type == 0   ? ParquetPage::Kind::kData
              : type == 2 ? ParquetPage::Kind::kDictionary
                          : ParquetPage::Kind::kDataV2;
  if (definition != kRle && column_.definition > 0) refuse("levels that are not written as RLE");
  if (repetition != kRle && column_.repetition > 0) refuse("levels that are not written as RLE");
  page.encoding = encoding_of(encoding, file_.path());
  return page;
}

void ParquetPages::check(const ParquetPage& page, int64_t end) {
  if (page.size > end - page.begin) {
    refuse(fmt::format("{} bytes, but its column ends after {}", page.size, end - page.begin));
  }
  if (page.unpacked > ParquetPage::kLargest || page.values > ParquetPage::kMostValues) {
    refuse(fmt::format("{} bytes and {} values; at most {} and {} are read", page.unpacked,
                       page.values, ParquetPage::kLargest, ParquetPage::kMostValues));
  }
  if (page.definition_bytes + page.repetition_bytes > std::min(page.size, page.unpacked))
    refuse("levels that are longer than the page");
  const bool dictionary = page.kind == ParquetPage::Kind::kDictionary;
  if (dictionary && (has_dictionary_ || values_ > 0)) refuse("a second dictionary");
  // Versions 1 and 2 of the format name the plain encoding of a dictionary differently.
  const bool plain = page.encoding == ParquetEncoding::kPlain;
  if (dictionary && !plain && page.encoding != ParquetEncoding::kDictionary)
    refuse("a dictionary that is not written plainly");
  if (!dictionary && page.encoding == ParquetEncoding::kDictionary && !has_dictionary_)
    refuse("entries of a dictionary that is not there");
}

std::optional<ParquetPage> ParquetPages::next() {
  while (chunk_ < column_.chunks.size()) {
    const ParquetColumn::Chunk& chunk = column_.chunks[chunk_];
    if (at_ < 0) {
      at_ = chunk.begin;
      values_ = 0;
      has_dictionary_ = false;
    }
    if (at_ == chunk.end) {
      if (values_ != chunk.values)
        refuse(fmt::format("{} values in its pages, {} in the footer", values_, chunk.values));
      ++chunk_;
      at_ = -1;
      continue;
    }
    ParquetPage page = read_header(chunk.end);
    check(page, chunk.end);
    if (page.kind == ParquetPage::Kind::kDictionary)
      has_dictionary_ = true;
    else
      values_ += page.values;
    at_ = page.begin + page.size;
    if (page.values > 0 || page.kind == ParquetPage::Kind::kDictionary) return page;
  }
  return std::nullopt;
}

}  // namespace weft
