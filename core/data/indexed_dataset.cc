#include "core/data/indexed_dataset.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>

#include "core/base/error.h"

namespace weft {
namespace {

constexpr char kMagic[] = "MMIDIDX\0";  // nine bytes with the terminating zero
constexpr int64_t kMagicBytes = 9;
constexpr int64_t kHeaderBytes = kMagicBytes + 8 + 1 + 8 + 8;
static_assert(sizeof kMagic == kMagicBytes);

template <class T>
T load(const MappedFile& file, int64_t at) {
  T value;
  std::memcpy(&value, file.data() + at, sizeof value);
  return value;
}

// Calls with a null pointer of the type that the tokens have.
template <class Call>
auto with_type(TokenType type, Call&& call) {
  switch (type) {
    case TokenType::kU8: return call(static_cast<const uint8_t*>(nullptr));
    case TokenType::kI8: return call(static_cast<const int8_t*>(nullptr));
    case TokenType::kI16: return call(static_cast<const int16_t*>(nullptr));
    case TokenType::kI32: return call(static_cast<const int32_t*>(nullptr));
    case TokenType::kI64: return call(static_cast<const int64_t*>(nullptr));
    default: return call(static_cast<const uint16_t*>(nullptr));
  }
}

// The first index of a token outside [0, vocab), or `count`. Whole blocks are tested without
// branches, which compilers vectorise; only the block that has one is searched.
template <class T>
int64_t first_beyond(const T* tokens, int64_t count, int64_t vocab) {
  using Unsigned = std::make_unsigned_t<T>;  // makes negative ids large
  constexpr auto kLargest = static_cast<uint64_t>(std::numeric_limits<Unsigned>::max());
  if (std::is_unsigned_v<T> && static_cast<uint64_t>(vocab) > kLargest) return count;
  const uint64_t limit =
      std::is_signed_v<T> ? static_cast<uint64_t>(std::numeric_limits<T>::max()) + 1 : kLargest;
  const auto bound = static_cast<Unsigned>(std::min(static_cast<uint64_t>(vocab), limit));
  constexpr int64_t kBlock = 4096;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = std::min(begin + kBlock, count);
    unsigned bad = 0;
    for (int64_t i = begin; i < end; ++i)
      bad |= static_cast<Unsigned>(tokens[i]) >= bound ? 1u : 0u;
    if (bad == 0) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (static_cast<Unsigned>(tokens[i]) >= bound) return i;
    }
  }
  return count;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

}  // namespace

int64_t size_of(TokenType type) {
  return with_type(type, [](auto* p) { return static_cast<int64_t>(sizeof *p); });
}

std::string_view name_of(TokenType type) {
  switch (type) {
    case TokenType::kU8: return "u8";
    case TokenType::kI8: return "i8";
    case TokenType::kI16: return "i16";
    case TokenType::kI32: return "i32";
    case TokenType::kI64: return "i64";
    default: return "u16";
  }
}

TokenType token_type_for(int64_t vocab) {
  return vocab <= 65536 ? TokenType::kU16 : TokenType::kI32;
}

std::string dataset_prefix(const std::string& path) {
  if (std::filesystem::exists(path + ".idx")) return path;
  if (ends_with(path, ".bin") || ends_with(path, ".idx")) return path.substr(0, path.size() - 4);
  return path;
}

IndexedDataset::IndexedDataset(const std::string& path)
    : prefix_(dataset_prefix(path)), idx_(prefix_ + ".idx"), bin_(prefix_ + ".bin") {
  read_header();
  check_sequences();
  check_documents();
}

void IndexedDataset::read_header() {
  const std::string& file = idx_.path();
  if (idx_.size() < kHeaderBytes) {
    throw ConfigError("{}: truncated at byte {}, the header alone has {}", file, idx_.size(),
                      kHeaderBytes);
  }
  if (std::memcmp(idx_.data(), kMagic, kMagicBytes) != 0) {
    throw ConfigError(
        "{}: byte 0: not a Megatron index (no MMIDIDX); build one with `weft data build`", file);
  }
  const auto version = load<uint64_t>(idx_, kMagicBytes);
  if (version != 1) {
    throw ConfigError("{}: byte {}: version {}, known is 1", file, kMagicBytes, version);
  }
  const auto code = load<uint8_t>(idx_, kMagicBytes + 8);
  if (code == 0 || code == 6 || code == 7 || code > 8) {
    throw ConfigError(
        "{}: byte {}: type code {}; tokens are 1 u8, 2 i8, 3 i16, 4 i32, 5 i64 or 8 u16", file,
        kMagicBytes + 8, code);
  }
  type_ = static_cast<TokenType>(code);
  const auto sequences = load<uint64_t>(idx_, kMagicBytes + 9);
  const auto entries = load<uint64_t>(idx_, kMagicBytes + 17);
  const auto rest = static_cast<uint64_t>(idx_.size() - kHeaderBytes);
  if (entries == 0) throw ConfigError("{}: byte {}: no document index", file, kMagicBytes + 17);
  if (sequences > rest / 12 || entries > rest / 8 || 12 * sequences + 8 * entries != rest) {
    throw ConfigError(
        "{}: bytes {}: {} sequences and {} document entries do not make a file of {} "
        "bytes; truncated or damaged",
        file, kMagicBytes + 9, sequences, entries, idx_.size());
  }
  sequences_ = static_cast<int64_t>(sequences);
  documents_ = static_cast<int64_t>(entries) - 1;
  lengths_at_ = kHeaderBytes;
  offsets_at_ = lengths_at_ + 4 * sequences_;
  documents_at_ = offsets_at_ + 8 * sequences_;
}

void IndexedDataset::check_sequences() {
  const int64_t element = size_of(type_);
  int64_t at = 0;  // where the sequence before this one ends
  for (int64_t s = 0; s < sequences_; ++s) {
    const int64_t count = length(s), begin = offset(s);
    if (count < 0) {
      throw ConfigError("{}: byte {}: sequence {} has length {}", idx_.path(), lengths_at_ + 4 * s,
                        s, count);
    }
    const bool ordered = begin >= at && begin % element == 0;
    if (!ordered || begin > bin_.size() || count > (bin_.size() - begin) / element) {
      throw ConfigError(
          "{}: byte {}: sequence {} ({} tokens of {} bytes) starts at byte {} of {}, {}",
          idx_.path(), offsets_at_ + 8 * s, s, count, element, begin, bin_.path(),
          ordered ? fmt::format("which has {}; truncated?", bin_.size())
                  : fmt::format("not behind the one before it, which ends at {}", at));
    }
    dense_ = dense_ && begin == at;
    at = begin + count * element;
    tokens_ += count;
  }
}

void IndexedDataset::check_documents() const {
  int64_t before = 0;
  for (int64_t d = 0; d <= documents_; ++d) {
    const int64_t first = first_sequence(d);
    const bool fits = d == 0 ? first == 0 : first >= before && first <= sequences_;
    if (!fits || (d == documents_ && first != sequences_)) {
      throw ConfigError(
          "{}: byte {}: document entry {} of {} is {}; entries rise from 0 to the {} sequences",
          idx_.path(), documents_at_ + 8 * d, d, documents_ + 1, first, sequences_);
    }
    before = first;
  }
}

int64_t IndexedDataset::length(int64_t sequence) const {
  return load<int32_t>(idx_, lengths_at_ + 4 * sequence);
}

int64_t IndexedDataset::offset(int64_t sequence) const {
  return load<int64_t>(idx_, offsets_at_ + 8 * sequence);
}

int64_t IndexedDataset::first_sequence(int64_t document) const {
  return load<int64_t>(idx_, documents_at_ + 8 * document);
}

int64_t IndexedDataset::unused_bytes() const { return bin_.size() - tokens_ * size_of(type_); }

int64_t IndexedDataset::document_tokens(int64_t document) const {
  WEFT_CHECK(document >= 0 && document < documents_, "document {} of {}", document, documents_);
  int64_t tokens = 0;
  const int64_t end = first_sequence(document + 1);
  for (int64_t s = first_sequence(document); s < end; ++s) tokens += length(s);
  return tokens;
}

void IndexedDataset::read(int64_t document, int64_t begin, int64_t count, int32_t* out) const {
  WEFT_CHECK(document >= 0 && document < documents_, "document {} of {}", document, documents_);
  const int64_t end = first_sequence(document + 1);
  for (int64_t s = first_sequence(document); s < end && count > 0; ++s) {
    const int64_t here = length(s);
    if (begin >= here) {
      begin -= here;
      continue;
    }
    const int64_t take = std::min(count, here - begin);
    with_type(type_, [&](auto* type) {
      using T = std::remove_cvref_t<decltype(*type)>;
      const T* from = reinterpret_cast<const T*>(bin_.data() + offset(s)) + begin;
      for (int64_t i = 0; i < take; ++i) out[i] = static_cast<int32_t>(from[i]);
    });
    out += take;
    count -= take;
    begin = 0;
  }
  WEFT_CHECK(count == 0, "{} tokens beyond the end of document {} of {}", count, document, prefix_);
}

std::vector<int32_t> IndexedDataset::read(int64_t document) const {
  std::vector<int32_t> tokens(static_cast<size_t>(document_tokens(document)));
  read(document, 0, static_cast<int64_t>(tokens.size()), tokens.data());
  return tokens;
}

int64_t IndexedDataset::document_of_byte(int64_t byte) const {
  for (int64_t d = 0; d < documents_; ++d) {
    for (int64_t s = first_sequence(d); s < first_sequence(d + 1); ++s) {
      if (byte < offset(s) + length(s) * size_of(type_)) return d;
    }
  }
  return documents_;
}

std::optional<int64_t> IndexedDataset::find_byte_beyond(int64_t vocab, int64_t begin,
                                                        int64_t end) const {
  WEFT_CHECK(vocab > 0, "a vocabulary of {}", vocab);
  return with_type(type_, [&](auto* type) -> std::optional<int64_t> {
    using T = std::remove_cvref_t<decltype(*type)>;
    constexpr auto kElement = static_cast<int64_t>(sizeof(T));
    // Of the tokens in [first, last): those that start between begin and end.
    const auto search = [&](int64_t first, int64_t last) -> std::optional<int64_t> {
      first = std::max(first, begin), last = std::min(last, end);
      const int64_t count = std::max<int64_t>(0, (last - first + kElement - 1) / kElement);
      const int64_t i = first_beyond(reinterpret_cast<const T*>(bin_.data() + first), count, vocab);
      return i == count ? std::nullopt : std::optional(first + i * kElement);
    };
    if (dense_) return search(0, tokens_ * kElement);
    const auto end_of = [&](int64_t s) { return offset(s) + length(s) * kElement; };
    int64_t from = 0;  // the first sequence that ends behind `begin`, by halving
    for (int64_t behind = sequences_; from < behind;) {
      const int64_t middle = from + (behind - from) / 2;
      if (end_of(middle) <= begin) {
        from = middle + 1;
      } else {
        behind = middle;
      }
    }
    for (int64_t s = from; s < sequences_ && offset(s) < end; ++s) {
      if (const auto byte = search(offset(s), end_of(s))) return byte;
    }
    return std::nullopt;
  });
}

IndexedDataset::BadToken IndexedDataset::token_at(int64_t byte) const {
  return with_type(type_, [&](auto* type) {
    using T = std::remove_cvref_t<decltype(*type)>;
    return BadToken{static_cast<int64_t>(load<T>(bin_, byte)), document_of_byte(byte), byte};
  });
}

std::optional<IndexedDataset::BadToken> IndexedDataset::find_token_beyond(int64_t vocab) const {
  const auto byte = find_byte_beyond(vocab, 0, bin_.size());
  return byte ? std::optional(token_at(*byte)) : std::nullopt;
}

void IndexedDataset::check_tokens(int64_t vocab) const {
  if (const auto byte = find_byte_beyond(vocab, 0, bin_.size())) refuse_token(*byte, vocab);
}

void IndexedDataset::refuse_token(int64_t byte, int64_t vocab) const {
  const BadToken bad = token_at(byte);
  throw ConfigError(
      "{}: byte {}: token {} in document {} is outside the vocabulary of {}; was the "
      "dataset built with another tokenizer?",
      bin_.path(), byte, bad.value, bad.document, vocab);
}

IndexedDatasetWriter::IndexedDatasetWriter(const std::string& prefix, TokenType type)
    : type_(type), bin_(prefix + ".bin"), idx_(prefix + ".idx") {}

void append_tokens(TokenType type, std::span<const int32_t> tokens, std::vector<char>& out) {
  WEFT_CHECK(tokens.size() <= static_cast<size_t>(std::numeric_limits<int32_t>::max()),
             "a sequence of {} tokens; the format counts with 31 bits", tokens.size());
  const size_t before = out.size();
  out.resize(before + tokens.size() * static_cast<size_t>(size_of(type)));
  with_type(type, [&](auto* null) {
    using T = std::remove_cvref_t<decltype(*null)>;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const T token = static_cast<T>(tokens[i]);
      WEFT_CHECK(static_cast<int64_t>(token) == tokens[i], "token {} does not fit into {}",
                 tokens[i], name_of(type));
      std::memcpy(out.data() + before + i * sizeof token, &token, sizeof token);
    }
  });
}

void write_index(NewFile& idx, TokenType type, std::span<const int32_t> lengths,
                 std::span<const int64_t> first_sequence) {
  const auto put = [&](auto value) { idx.write(&value, sizeof value); };
  idx.write(kMagic, kMagicBytes);
  put(uint64_t{1});
  put(static_cast<uint8_t>(type));
  put(static_cast<uint64_t>(lengths.size()));
  put(static_cast<uint64_t>(first_sequence.size()));
  for (const int32_t length : lengths) put(length);
  int64_t at = 0;
  for (const int32_t length : lengths) {
    put(at);
    at += length * size_of(type);
  }
  for (const int64_t first : first_sequence) put(first);
}

void IndexedDatasetWriter::add_sequence(std::span<const int32_t> tokens) {
  encoded_.clear();
  append_tokens(type_, tokens, encoded_);
  bin_.write(encoded_.data(), static_cast<int64_t>(encoded_.size()));
  lengths_.push_back(static_cast<int32_t>(tokens.size()));
  tokens_ += static_cast<int64_t>(tokens.size());
}

void IndexedDatasetWriter::end_document() {
  first_sequence_.push_back(static_cast<int64_t>(lengths_.size()));
}

void IndexedDatasetWriter::finish() {
  WEFT_CHECK(first_sequence_.back() == static_cast<int64_t>(lengths_.size()),
             "the last document of {} is not ended", bin_.path());
  write_index(idx_, type_, lengths_, first_sequence_);
  // An index of older data must not meet the new .bin, whenever the machine stops.
  std::filesystem::remove(idx_.path());
  bin_.finish();
  idx_.finish();
}

}  // namespace weft
