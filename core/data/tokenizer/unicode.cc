#include "core/data/tokenizer/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include "core/base/error.h"
#include "core/base/utf8.h"

namespace weft {
namespace {

void check_icu(UErrorCode code, const char* what) {
  if (U_FAILURE(code)) throw Error("ICU cannot {}: {}", what, u_errorName(code));
}

const icu::Normalizer2& normalizer_of(NormalForm form) {
  UErrorCode code = U_ZERO_ERROR;
  const icu::Normalizer2* found = nullptr;
  switch (form) {
    case NormalForm::kNfc: found = icu::Normalizer2::getNFCInstance(code); break;
    case NormalForm::kNfd: found = icu::Normalizer2::getNFDInstance(code); break;
    case NormalForm::kNfkc: found = icu::Normalizer2::getNFKCInstance(code); break;
    case NormalForm::kNfkd: found = icu::Normalizer2::getNFKDInstance(code); break;
  }
  check_icu(code, "load its normalization data");
  return *found;
}

bool has_category(uint32_t c, uint32_t mask, int newest) {
  const auto point = static_cast<UChar32>(c);
  if ((U_GET_GC_MASK(point) & mask) == 0) return false;
  UVersionInfo age{};
  u_charAge(point, age);
  return age[0] <= newest;
}

}  // namespace

std::string normalized(NormalForm form, std::string_view text) {
  UErrorCode code = U_ZERO_ERROR;
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  WEFT_CHECK(text.size() <= INT32_MAX, "a text of {} bytes", text.size());
  std::string out;
  out.reserve(text.size());
  icu::StringByteSink<std::string> sink(&out);
  normalizer_of(form).normalizeUTF8(0, piece, sink, nullptr, code);
  check_icu(code, "normalize");
  return out;
}

bool is_white_space(uint32_t c) { return u_isUWhiteSpace(static_cast<UChar32>(c)) != 0; }

bool is_word_character(uint32_t c) {
  const auto point = static_cast<UChar32>(c);
  return u_isUAlphabetic(point) ||
         (U_GET_GC_MASK(point) & (U_GC_M_MASK | U_GC_ND_MASK | U_GC_PC_MASK)) != 0 ||
         u_hasBinaryProperty(point, UCHAR_JOIN_CONTROL);
}

bool is_number(uint32_t c) { return (U_GET_GC_MASK(static_cast<UChar32>(c)) & U_GC_N_MASK) != 0; }

size_t last_character(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

size_t white_space_begin(std::string_view text) {  // of the white space at the end
  while (!text.empty()) {
    const size_t last = last_character(text);
    size_t at = last;
    if (!is_white_space(next_code_point(text, at))) break;
    text = text.substr(0, last);
  }
  return text.size();
}

size_t white_space_end(std::string_view text) {  // of the white space at the beginning
  size_t end = 0;
  for (size_t at = 0; at < text.size(); end = at) {
    if (!is_white_space(next_code_point(text, at))) break;
  }
  return end;
}

uint32_t lower_case(uint32_t c) {
  return static_cast<uint32_t>(u_tolower(static_cast<UChar32>(c)));
}

bool is_control(uint32_t c) {
  return has_category(c, U_GC_CC_MASK | U_GC_CF_MASK | U_GC_CO_MASK, 8);
}

// The characters that are named here have other categories since.
bool is_nonspacing_mark(uint32_t c) {
  if (c == 0x1885 || c == 0x1886 || c == 0xA9BD) return false;
  return has_category(c, U_GC_MN_MASK, 8) || c == 0x1734;
}

bool is_mark(uint32_t c) { return has_category(c, U_GC_M_MASK, 9) || c == 0x1CF2 || c == 0x1CF3; }

bool is_punctuation(uint32_t c) {
  if (c < 0x80) return c == '_' || (c > ' ' && c < 0x7F && !is_word_character(c));
  return has_category(c, U_GC_P_MASK, 8) || c == 0x166D || c == 0x111C9;
}

}  // namespace weft
