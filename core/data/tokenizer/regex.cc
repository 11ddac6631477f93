#include "core/data/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/base/error.h"
#include "core/base/utf8.h"

namespace weft {
namespace {

// White_Space, as Oniguruma's \s; PCRE2's has U+180E too, which Unicode took out.
constexpr std::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kWord = R"(\p{L}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kDigit = R"(\p{Nd})";

// Translates in one pass; knows whether it stands inside a class.
class Translation {
 public:
  Translation(const std::string& pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string run() {
    while (at_ < in_.size()) {
      const char c = in_[at_++];
      if (c == '\\')
        escape();
      else if (in_class_)
        inside(c);
      else
        outside(c);
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError(
        "{}: in the pattern {}: {}; supported: literals, classes, groups, (?i:), "
        "lookahead, repetitions, \\p{{..}}, \\s \\S \\d \\D \\w \\W, \\r \\n"
        " \\t \\f \\v, \\xHH, \\uHHHH, \\A \\z",
        where_, in_, what);
  }

  void escape() {
    if (at_ == in_.size()) refuse("it ends with a backslash");
    const char c = in_[at_++];
    switch (c) {
      case 's': return set(kSpace, false);
      case 'w': return set(kWord, false);
      case 'd': return set(kDigit, false);
      case 'S': return set(kSpace, true);
      case 'W': return set(kWord, true);
      case 'D': return set(kDigit, true);
      case 'v': out_ += "\\x{b}"; return;
      case 'u': return unicode();
      default: break;
    }
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    const bool anchor = !in_class_ && (c == 'A' || c == 'z');
    if (letter && !anchor && std::string_view("rntfpPx").find(c) == std::string_view::npos) {
      refuse(fmt::format("\\{} means something else, or nothing, here", c));
    }
    out_ += '\\';
    out_ += c;
  }

  void set(std::string_view members, bool negated) {
    if (in_class_ && negated) refuse("a negated set inside [...]");
    if (!in_class_) out_ += negated ? "[^" : "[";
    out_ += members;
    if (!in_class_) out_ += ']';
  }

  void unicode() {
    const std::string digits = in_.substr(at_, 4);
    if (digits.size() != 4 ||
        digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
      refuse("\\u needs four hex digits");
    }
    at_ += 4;
    out_ += "\\x{" + digits + "}";
  }

  void inside(char c) {
    if (c == ']' && at_ - 1 > class_begin_) in_class_ = false;
    if (c == '[' && at_ < in_.size() && in_[at_] != ':') refuse("a class inside a class");
    if (c == '[') return posix_class();
    if (c == '&' && at_ < in_.size() && in_[at_] == '&') refuse("&& (intersection) in a class");
    out_ += c;
  }

  void posix_class() {
    const size_t end = in_.find(":]", at_);
    if (end == std::string::npos) refuse("a class inside a class");
    refuse(in_.substr(at_ - 1, end + 3 - at_) + " (write it as \\p{..})");
  }

  void outside(char c) {
    out_ += c;
    if (c == '[') {
      in_class_ = true;
      if (at_ < in_.size() && in_[at_] == '^') out_ += in_[at_++];
      class_begin_ = at_;
    } else if (c == '+' && out_.size() > 1 && out_[out_.size() - 2] == '}' && repeated()) {
      refuse("{..}+ (possessive in PCRE2, a repetition of a repetition in Oniguruma)");
    } else if (c == '(' && in_.compare(at_, 1, "?") == 0) {
      group();
    } else if (c == '(' && in_.compare(at_, 1, "*") == 0) {
      refuse("(* begins a command");
    }
  }

  // Whether the } before the last character closes {2,3} and not \p{L}.
  bool repeated() const {
    const size_t open = out_.rfind('{');
    return open != std::string::npos && open >= 1 && out_[open - 1] != 'p' &&
           out_[open - 1] != 'P' && out_[open - 1] != 'x';
  }

  void group() {
    for (const std::string_view known : {"?:", "?=", "?!", "?<=", "?<!", "?>", "?i:", "?i)"}) {
      if (in_.compare(at_, known.size(), known) != 0) continue;
      out_ += known;
      at_ += known.size();
      return;
    }
    refuse("the group (" + in_.substr(at_, 3));
  }

  const std::string& in_;
  const std::string& where_;
  std::string out_;
  size_t at_ = 0, class_begin_ = 0;
  bool in_class_ = false;
};

std::string message_of(int code) {
  PCRE2_UCHAR text[256] = {};
  pcre2_get_error_message(code, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

// What a thread needs to match; made once for each.
struct Workspace {
  Workspace()
      : match(pcre2_match_data_create(1, nullptr)),
        context(pcre2_match_context_create(nullptr)),
        stack(pcre2_jit_stack_create(32 << 10, 1 << 20, nullptr)) {
    WEFT_CHECK(match != nullptr && context != nullptr && stack != nullptr, "no memory to match");
    // A pattern that backtracks without end is stopped after some seconds, not hours.
    pcre2_set_match_limit(context, 10'000'000);
    pcre2_set_heap_limit(context, 64 << 10);  // KiB
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~Workspace() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(match);
  }
  pcre2_match_data* match;
  pcre2_match_context* context;
  pcre2_jit_stack* stack;
};

Workspace& workspace() {
  thread_local Workspace mine;
  return mine;
}

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool compiled = false;  // to machine code
  ~Code() { pcre2_code_free(code); }
};

std::string pcre2_pattern(const std::string& oniguruma, const std::string& where) {
  return Translation(oniguruma, where).run();
}

Regex::Regex(const std::string& pattern, const std::string& where) : where_(where) {
  if (pattern.size() > kLongestPattern) {
    throw ConfigError("{}: a pattern of {} bytes; at most {} are read", where, pattern.size(),
                      kLongestPattern);
  }
  const std::string text = pcre2_pattern(pattern, where);
  auto code = std::make_shared<Code>();
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  WEFT_CHECK(context != nullptr, "no memory to compile a pattern");
  pcre2_set_parens_nest_limit(context, 50);
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                             PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C,
                             &error, &at, context);
  pcre2_compile_context_free(context);
  if (code->code == nullptr) {
    throw ConfigError("{}: the pattern {} cannot be compiled: {} (at character {})", where, text,
                      message_of(error), at);
  }
  code->compiled = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  code_ = std::move(code);
}

void Regex::find_all(std::string_view text, std::vector<Match>& out) const {
  Workspace& work = workspace();
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* place = pcre2_get_ovector_pointer(work.match);
  size_t from = 0;
  size_t last_end = SIZE_MAX;
  while (from <= text.size()) {
    const int found = code_->compiled ? pcre2_jit_match(code_->code, subject, text.size(), from, 0,
                                                        work.match, work.context)
                                      : pcre2_match(code_->code, subject, text.size(), from,
                                                    PCRE2_NO_UTF_CHECK, work.match, work.context);
    if (found == PCRE2_ERROR_NOMATCH) return;
    if (found < 0) {
      throw ConfigError("{}: the pattern gives up on a text of {} bytes: {}", where_, text.size(),
                        message_of(found));
    }
    const size_t begin = place[0], end = place[1];
    if (begin == end && end == last_end) {
      if (from >= text.size()) return;
      next_code_point(text, from);
      continue;
    }
    out.push_back({begin, end});
    from = last_end = end;
  }
}

}  // namespace weft
