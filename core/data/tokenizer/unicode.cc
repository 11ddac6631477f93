#include "core/data/tokenizer/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>
#include <unicode/uchar.h>

#include "core/base/error.h"

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

}  // namespace weft
