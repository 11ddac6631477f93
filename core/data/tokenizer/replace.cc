#include "core/data/tokenizer/replace.h"

namespace weft {

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t at = 0;
  for (;;) {
    const size_t found = text.find(from, at);
    out += text.substr(at, found - at);
    if (found == std::string_view::npos) return out;
    out += to;
    at = found + from.size();
  }
}

Replacement::Replacement(const JsonPart& json, const std::string& where)
    : content_(json["content"].text()) {
  const JsonPart::Pattern pattern = json["pattern"].pattern();
  if (pattern.text.empty()) json.refuse("an empty pattern");
  if (pattern.regex)
    regex_.emplace(pattern.text, where);
  else
    plain_ = pattern.text;
}

std::string Replacement::apply(const std::string& text) const {
  if (!regex_) return replace_all(text, plain_, content_);
  std::vector<Regex::Match> matches;
  regex_->find_all(text, matches);
  std::string out;
  size_t at = 0;
  for (const Regex::Match& m : matches) {
    out += text.substr(at, m.begin - at);
    out += content_;
    at = m.end;
  }
  return out + text.substr(at);
}

}  // namespace weft
