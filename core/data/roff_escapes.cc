#include <charconv>
#include <utility>

#include "core/base/utf8.h"
#include "core/data/roff.h"

namespace weft {
namespace {

// Characters named by two or more letters: \(bu, \[bu].
std::string_view named_character(std::string_view name) {
  static constexpr std::pair<std::string_view, std::string_view> kNames[] = {
      {"bu", "•"},  {"em", "—"}, {"en", "–"}, {"hy", "-"}, {"mi", "-"}, {"aq", "'"}, {"dq", "\""},
      {"oq", "‘"},  {"cq", "’"}, {"lq", "“"}, {"rq", "”"}, {"co", "©"}, {"rg", "®"}, {"tm", "™"},
      {"rs", "\\"}, {"ga", "`"}, {"ha", "^"}, {"ti", "~"}, {"la", "<"}, {"ra", ">"}, {"lB", "["},
      {"rB", "]"},  {"lC", "{"}, {"rC", "}"}, {"ba", "|"}, {"at", "@"}, {"sh", "#"}, {"Do", "$"},
      {"mu", "×"},  {"->", "→"}, {"<-", "←"}, {"<=", "≤"}, {">=", "≥"}, {"!=", "≠"}, {"+-", "±"},
      {"pl", "+"},  {"eq", "="}, {"sl", "/"}, {"ul", "_"}, {"de", "°"}, {"sc", "§"}, {"aa", "´"},
      {"Fo", "«"},  {"Fc", "»"}, {":a", "ä"}, {":o", "ö"}, {":u", "ü"}, {"ss", "ß"}, {"'e", "é"},
      {"`e", "è"},  {",c", "ç"}, {"~n", "ñ"}, {"'a", "á"}, {"'i", "í"}, {"'o", "ó"}, {"/o", "ø"}};
  for (const auto& [known, character] : kNames) {
    if (known == name) return character;
  }
  return "";
}

// Strings that macro packages define: \*(lq, and the ones of pages made from Perl's documentation.
std::string_view named_string(std::string_view name) {
  if (name == "lq" || name == "rq" || name == "L\"" || name == "R\"" || name == "q") return "\"";
  if (name == "Aq" || name == "C'") return "'";
  if (name == "C`") return "`";
  if (name == "--") return "--";
  if (name == "R") return "®";
  if (name == "Tm") return "™";
  if (name == "Lt") return "<";
  if (name == "Gt") return ">";
  return "";
}

// Walks one line. Reading beyond its end yields nothing.
class Unescaper {
 public:
  explicit Unescaper(std::string_view line) : line_(line) {}

  std::string run() {
    while (at_ < line_.size()) {
      const char c = line_[at_++];
      if (c != '\\') {
        out_ += c;
      } else if (!escape(next())) {
        break;
      }
    }
    return std::move(out_);
  }

 private:
  // A whole character, so that what is dropped leaves valid UTF-8.
  std::string_view next() {
    const std::string_view rest = line_.substr(at_);
    const size_t length = rest.empty() ? 0 : static_cast<size_t>(std::max(1, utf8_length(rest)));
    at_ += length;
    return rest.substr(0, length);
  }

  // A name as x, (xx or [long].
  std::string_view name() {
    const size_t begin = at_;
    const std::string_view first = next();
    if (first == "(") {
      next();
      next();
      return line_.substr(begin + 1, at_ - begin - 1);
    }
    if (first == "[") {
      const size_t end = std::min(line_.find(']', at_), line_.size());
      const std::string_view inside = line_.substr(at_, end - at_);
      at_ = std::min(end + 1, line_.size());
      return inside;
    }
    return line_.substr(begin, at_ - begin);
  }

  void character(std::string_view name) {
    unsigned code = 0;
    if (name.size() > 4 && name[0] == 'u' &&
        std::from_chars(name.data() + 1, name.data() + name.size(), code, 16).ec == std::errc{}) {
      append_utf8(out_, code);
    } else {
      out_ += named_character(name);
    }
  }

  void quoted() {  // 'anything', with whatever delimiter
    const std::string_view delimiter = next();
    at_ = std::min(line_.find(delimiter, at_), line_.size());
    next();
  }

  void size() {  // \s0, \s-1, \s+2, \s(12, \s[12]
    if (at_ < line_.size() && (line_[at_] == '+' || line_[at_] == '-')) ++at_;
    const std::string_view first = name();
    const bool tens = first.size() == 1 && first[0] >= '1' && first[0] <= '3';
    if (tens && at_ < line_.size() && line_[at_] >= '0' && line_[at_] <= '9') ++at_;
  }

  // False when the rest of the line is a comment.
  bool escape(std::string_view character_behind) {
    const char c = character_behind.empty() ? '\0' : character_behind[0];
    switch (c) {
      case '"':
      case '#': return false;
      case '-':
      case '.':
      case '\'':
      case '`':
      case '_': out_ += c; break;
      case 'e':
      case '\\':
      case 'E': out_ += '\\'; break;
      case ' ':
      case '~':
      case '0':
      case 't': out_ += ' '; break;
      case '(':
      case '[':
        --at_;
        character(name());
        break;
      case '*': out_ += named_string(name()); break;
      case 'f':
      case 'F':
      case 'n':
      case 'm':
      case 'M':
      case 'g':
      case 'k':
      case 'Y':
      case 'V':
        if (at_ < line_.size() && c == 'n' && (line_[at_] == '+' || line_[at_] == '-')) ++at_;
        name();
        break;
      case 's': size(); break;
      case 'h':
      case 'v':
      case 'w':
      case 'o':
      case 'X':
      case 'Z':
      case 'l':
      case 'L':
      case 'D':
      case 'N':
      case 'b':
      case 'x':
      case 'A':
      case 'B':
      case 'C':
      case 'H':
      case 'R':
      case 'S': quoted(); break;
      default:  // zero width: \& \| \^ \/ \, \% \: \c \) \u \d \z \{ \} and the unknown
        if (character_behind.size() > 1) out_ += character_behind;
        break;
    }
    return true;
  }

  std::string_view line_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

std::string without_roff_escapes(std::string_view line) { return Unescaper(line).run(); }

}  // namespace weft
