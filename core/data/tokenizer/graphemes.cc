#include "core/data/tokenizer/graphemes.h"

#include <unicode/uchar.h>

#include "core/base/utf8.h"

namespace weft {
namespace {

int break_class(uint32_t c) {
  return u_getIntPropertyValue(static_cast<UChar32>(c), UCHAR_GRAPHEME_CLUSTER_BREAK);
}

bool pictographic(uint32_t c) {
  return u_hasBinaryProperty(static_cast<UChar32>(c), UCHAR_EXTENDED_PICTOGRAPHIC) != 0;
}

bool line_control(int type) {
  return type == U_GCB_CR || type == U_GCB_LF || type == U_GCB_CONTROL;
}

bool hangul_continues(int before, int here) {
  if (before == U_GCB_L)
    return here == U_GCB_L || here == U_GCB_V || here == U_GCB_LV || here == U_GCB_LVT;
  if (before == U_GCB_LV || before == U_GCB_V) return here == U_GCB_V || here == U_GCB_T;
  return (before == U_GCB_LVT || before == U_GCB_T) && here == U_GCB_T;
}

}  // namespace

size_t grapheme_length(std::string_view text) {
  size_t at = 0;
  uint32_t c = next_code_point(text, at);
  int before = break_class(c);
  bool picture = pictographic(c), joined = false;  // a picture and marks; then a joiner
  int indicators = before == U_GCB_REGIONAL_INDICATOR ? 1 : 0;
  while (at < text.size()) {
    size_t next = at;
    c = next_code_point(text, next);
    const int here = break_class(c);
    if (before == U_GCB_CR && here == U_GCB_LF) return next;
    if (line_control(before) || line_control(here)) return at;
    const bool extends = here == U_GCB_EXTEND || here == U_GCB_ZWJ || here == U_GCB_SPACING_MARK;
    const bool pair = indicators == 1 && here == U_GCB_REGIONAL_INDICATOR;
    const bool continues = hangul_continues(before, here) || extends || before == U_GCB_PREPEND ||
                           (joined && pictographic(c)) || pair;
    if (!continues) return at;
    joined = picture && here == U_GCB_ZWJ;
    picture = pictographic(c) || (picture && here == U_GCB_EXTEND);
    indicators = here == U_GCB_REGIONAL_INDICATOR ? indicators + 1 : 0;
    before = here;
    at = next;
  }
  return at;
}

}  // namespace weft
