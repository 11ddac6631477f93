#include "core/data/roff.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft {
namespace {

using Words = std::vector<std::string>;

template <size_t N>
bool one_of(std::string_view word, const std::string_view (&list)[N]) {
  return std::find(std::begin(list), std::end(list), word) != std::end(list);
}

// Arguments of a request: separated by spaces, "quoted ones" may contain them, "" inside is a
// quote.
Words arguments(std::string_view line) {
  Words words;
  size_t at = 0;
  while (true) {
    while (at < line.size() && (line[at] == ' ' || line[at] == '\t')) ++at;
    if (at == line.size() || line.substr(at).starts_with("\\\"")) return words;
    std::string word;
    const bool quoted = line[at] == '"';
    for (at += quoted ? 1 : 0; at < line.size(); ++at) {
      if (quoted && line[at] == '"') {
        if (!line.substr(at).starts_with("\"\"")) break;
        ++at;
      } else if (!quoted && (line[at] == ' ' || line[at] == '\t')) {
        break;
      } else if (line[at] == '\\' && at + 1 < line.size()) {
        word += line[at++];  // an escaped space does not separate
      }
      word += line[at];
    }
    at += at < line.size() ? 1 : 0;
    words.push_back(without_roff_escapes(word));
  }
}

std::string joined(const Words& words, std::string_view between) {
  std::string text;
  for (const std::string& word : words) {
    if (&word != &words.front()) text += between;
    text += word;
  }
  return text;
}

// The words of an mdoc macro. Macro names among them are dropped; flags get their dash, optional
// parts their brackets, punctuation no space before it.
std::string mdoc_words(std::string_view macro, Words words) {
  words.insert(words.begin(), std::string(macro));
  std::string text, closing;
  bool glue = true, dash = false;
  const auto add = [&](const std::string& word) {
    const bool punctuation =
        word.size() == 1 && one_of(word, {".", ",", ":", ";", ")", "]", "?", "!"});
    if (!glue && !punctuation && !text.empty()) text += ' ';
    if (dash) text += '-';
    text += word;
    dash = false;
    glue = word == "(" || word == "[";
  };
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "Fl") {
      dash = true;
      if (i + 1 == words.size()) add("");
    } else if (word == "Op" || word == "Oo") {
      add("[");
      if (word == "Op") closing += ']';
    } else if (word == "Oc") {
      text += "]";
    } else if (word == "Ns" || word == "No") {
      glue = glue || word == "Ns";
    } else if (word == "Xr" && i + 2 < words.size()) {
      add(fmt::format("{}({})", words[i + 1], words[i + 2]));
      i += 2;
    } else if (!(word.size() == 2 && word[0] >= 'A' && word[0] <= 'Z' && word[1] >= 'a' &&
                 word[1] <= 'z')) {
      add(word);
    }
  }
  return text + closing;
}

class Stripper {
 public:
  std::string run(std::string_view source) {
    while (!source.empty()) {
      const size_t end = std::min(source.find('\n'), source.size());
      std::string_view line = source.substr(0, end);
      source.remove_prefix(std::min(end + 1, source.size()));
      if (line.ends_with('\r')) line.remove_suffix(1);
      take(line);
    }
    end_line();
    while (out_.ends_with("\n\n")) out_.pop_back();
    return std::move(out_);
  }

 private:
  void take(std::string_view line) {
    if (skipping(line)) return;
    if (!line.empty() && (line[0] == '.' || line[0] == '\'')) {
      line.remove_prefix(1);
      const size_t word = std::min(line.find_first_not_of(" \t"), line.size());
      line.remove_prefix(word);
      size_t end = std::min(line.find_first_of(" \t"), line.size());
      end = std::min(end, line.find('\\'));  // .if\{, .\" and .TP\" alike
      request(line.substr(0, end), line.substr(end));
    } else if (in_table_) {
      table_row(line);
    } else if (line.empty()) {
      no_fill_ ? end_line() : paragraph();
      if (no_fill_) out_ += '\n';
    } else {
      if (line[0] == ' ') end_line();
      text(without_roff_escapes(line));
    }
  }

  // Inside definitions, equations and conditional blocks, which are dropped.
  bool skipping(std::string_view line) {
    if (!skip_until_.empty()) {
      if (line.starts_with(skip_until_)) skip_until_.clear();
      return true;
    }
    if (braces_ > 0) {
      count_braces(line);
      return true;
    }
    if (in_format_) {  // of a table: ends with a period
      const size_t last = line.find_last_not_of(" \t");
      in_format_ = last == std::string_view::npos || line[last] != '.';
      return true;
    }
    return false;
  }

  void count_braces(std::string_view line) {
    for (size_t i = 0; i + 1 < line.size(); ++i) {
      if (line[i] != '\\') continue;
      if (line[i + 1] == '{') ++braces_;
      if (line[i + 1] == '}' && braces_ > 0) --braces_;
      ++i;
    }
  }

  void request(std::string_view name, std::string_view rest) {
    if (name.empty()) return;  // a comment, or an empty line of control
    if (one_of(name, {"de", "de1", "am", "ig"})) {
      skip_until_ = "..";
    } else if (name == "EQ") {
      skip_until_ = ".EN";
    } else if (one_of(name, {"if", "ie", "el", "while"})) {
      count_braces(rest);
    } else if (name == "TS") {
      end_line();
      in_table_ = in_format_ = true;
    } else if (name == "TE") {
      in_table_ = false;
    } else if (one_of(name, {"SH", "SS", "Sh", "Ss"})) {
      const std::string heading = joined(arguments(rest), " ");
      under_heading_ = false;
      paragraph();
      tag_ = heading.empty();
      if (!heading.empty()) line_of_its_own(heading);
      under_heading_ = true;
    } else if (!layout(name, rest)) {
      words(name, rest);
    }
  }

  // Requests that place text; true when it was one.
  bool layout(std::string_view name, std::string_view rest) {
    if (one_of(name, {"PP", "P", "LP", "Pp", "sp", "HP", "Bd", "Bl", "Ed", "El"})) {
      paragraph();
      if (name == "Bd")
        no_fill_ = rest.find("-literal") != rest.npos || rest.find("-unfilled") != rest.npos;
      if (name == "Ed") no_fill_ = false;
    } else if (name == "TP" || name == "TQ") {
      paragraph();
      tag_ = true;
    } else if (name == "IP") {
      const Words args = arguments(rest);
      paragraph();
      if (args.empty()) return true;
      if (args[0].size() > 3) tag_ = true;  // longer than a bullet
      text(args[0]);
    } else if (name == "br") {
      end_line();
    } else if (one_of(name, {"nf", "EX", "Vb"})) {
      end_line();
      no_fill_ = true;
    } else if (one_of(name, {"fi", "EE", "Ve"})) {
      end_line();
      no_fill_ = false;
    } else {
      static constexpr std::string_view kDropped[] = {
          "TH", "Dd", "Dt", "Os",  "RS",  "RE",   "ft",    "ad",    "hy", "in", "ti", "na",
          "nh", "ne", "PD", "tr",  "so",  "ds",   "nr",    "rm",    "rr", "ll", "pl", "ta",
          "UE", "ME", "YS", "bp",  "cs",  "lf",   "do",    "ev",    "rn", "as", "di", "cc",
          "ec", "eo", "hw", "ps",  "vs",  "ss",   "hc",    "Bk",    "Ek", "Rs", "Re", "AT",
          "UC", "DT", "IX", "fam", "mso", "evc",  "als",   "warn",  "pc", "sy", "ab", "ex",
          "pm", "fp", "ns", "rs",  "tkf", "char", "shift", "return"};
      return one_of(name, kDropped);
    }
    return true;
  }

  // Everything else has words to keep.
  void words(std::string_view name, std::string_view rest) {
    const Words args = arguments(rest);
    if (one_of(name, {"BR", "BI", "IB", "IR", "RB", "RI"})) {
      if (!args.empty()) text(joined(args, ""));
    } else if (name == "UR" || name == "MT") {
      if (!args.empty()) text(fmt::format("<{}>", args[0]));
    } else if (name == "OP") {
      text(fmt::format("[{}]", joined(args, " ")));
    } else if (name == "It") {
      paragraph();
      text(mdoc_words(name, args));
    } else if (name.size() == 2 && name[1] >= 'a' && name[1] <= 'z') {
      if (name == "Nm" && args.empty()) return text(page_);
      if (name == "Nm" && page_.empty()) page_ = args[0];
      if (name == "Nd") return text(fmt::format("- {}", joined(args, " ")));
      text(mdoc_words(name, args));
    } else if (!args.empty()) {
      text(joined(args, " "));
    }
  }

  void table_row(std::string_view line) {
    if (line == "_" || line == "=" || line.empty()) return;
    std::string row = without_roff_escapes(line);
    std::replace(row.begin(), row.end(), '\t', ' ');
    for (const char* mark : {"T{", "T}"}) {
      for (size_t at; (at = row.find(mark)) != std::string::npos;) row.erase(at, 2);
    }
    row.erase(0, row.find_first_not_of(' '));
    if (!row.empty()) line_of_its_own(row);
  }

  void text(const std::string& words) {
    if (words.empty()) return;
    under_heading_ = under_heading_ && tag_;  // its own words may come on the next line
    if (no_fill_ || tag_) {
      tag_ = false;
      line_of_its_own(words);
      return;
    }
    const size_t begin = open_ ? words.find_first_not_of(' ') : 0;
    if (begin == std::string::npos) return;
    if (open_) out_ += ' ';
    out_.append(words, begin);
    open_ = true;
  }

  void line_of_its_own(const std::string& words) {
    end_line();
    out_ += words;
    open_ = true;
    end_line();
  }

  void end_line() {
    if (!open_) return;
    while (out_.ends_with(' ')) out_.pop_back();
    out_ += '\n';
    open_ = false;
  }

  void paragraph() {
    end_line();
    if (!out_.empty() && !under_heading_ && !out_.ends_with("\n\n")) out_ += '\n';
  }

  std::string out_;
  bool open_ = false;     // the last line goes on
  bool no_fill_ = false;  // lines stay as they are
  bool tag_ = false;      // the next text stands on a line of its own
  bool under_heading_ = false;
  bool in_table_ = false, in_format_ = false;
  int braces_ = 0;
  std::string skip_until_;
  std::string page_;  // the name that a bare .Nm stands for
};

}  // namespace

std::string text_of_roff(std::string_view source) { return Stripper().run(source); }

}  // namespace weft
