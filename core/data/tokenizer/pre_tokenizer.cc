#include "core/data/tokenizer/pre_tokenizer.h"

#include <map>
#include <optional>

#include "core/base/error.h"
#include "core/base/utf8.h"
#include "core/data/tokenizer/metaspace.h"
#include "core/data/tokenizer/regex.h"
#include "core/data/tokenizer/replace.h"
#include "core/data/tokenizer/unicode.h"

namespace weft {

const char* const kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const char* const kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
const char* const kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";

const char* const kO200kPattern =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

namespace {

enum class Behavior : uint8_t { kRemoved, kIsolated, kWithPrevious, kWithNext, kContiguous };

// A stretch of a piece: a match of the pattern or what lies between matches.
struct Stretch {
  size_t begin, end;
  bool match;
};

std::vector<Stretch> stretches(const std::vector<Regex::Match>& matches, size_t size, bool invert) {
  std::vector<Stretch> all;
  size_t at = 0;
  for (const Regex::Match& m : matches) {
    if (at != m.begin) all.push_back({at, m.begin, invert});
    all.push_back({m.begin, m.end, !invert});
    at = m.end;
  }
  if (at != size) all.push_back({at, size, invert});
  return all;
}

// A match joins the stretch before it, unless that is a match too.
std::vector<Stretch> with_previous(const std::vector<Stretch>& in) {
  std::vector<Stretch> out;
  bool match_before = false;
  for (const Stretch& s : in) {
    if (s.match && !match_before && !out.empty())
      out.back().end = s.end;
    else
      out.push_back(s);
    match_before = s.match;
  }
  return out;
}

std::vector<Stretch> with_next(const std::vector<Stretch>& in) {
  std::vector<Stretch> out;
  bool match_behind = false;
  for (auto s = in.rbegin(); s != in.rend(); ++s) {
    if (s->match && !match_behind && !out.empty())
      out.back().begin = s->begin;
    else
      out.push_back(*s);
    match_behind = s->match;
  }
  return {out.rbegin(), out.rend()};
}

std::vector<Stretch> contiguous(const std::vector<Stretch>& in) {
  std::vector<Stretch> out;
  bool match_before = false;
  for (const Stretch& s : in) {
    if (s.match == match_before && !out.empty())
      out.back().end = s.end;
    else
      out.push_back(s);
    match_before = s.match;
  }
  return out;
}

std::vector<Stretch> behave(Behavior behavior, std::vector<Stretch> in) {
  switch (behavior) {
    case Behavior::kWithPrevious: return with_previous(in);
    case Behavior::kWithNext: return with_next(in);
    case Behavior::kContiguous: return contiguous(in);
    case Behavior::kRemoved: std::erase_if(in, [](const Stretch& s) { return s.match; }); return in;
    default: return in;
  }
}

void plain_matches(std::string_view text, std::string_view what, std::vector<Regex::Match>& out) {
  for (size_t at = text.find(what); at != std::string_view::npos;
       at = text.find(what, at + what.size())) {
    out.push_back({at, at + what.size()});
  }
}

class Split final : public PreTokenizer::Step {
 public:
  Split(Regex regex, Behavior behavior, bool invert)
      : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  Split(std::string plain, Behavior behavior, bool invert)
      : plain_(std::move(plain)), behavior_(behavior), invert_(invert) {}

  void apply(Pieces& pieces) const override {
    std::vector<Regex::Match> matches;
    pieces.each([&](const Piece& piece, const auto& emit) {
      matches.clear();
      if (regex_)
        regex_->find_all(piece.text, matches);
      else
        plain_matches(piece.text, plain_, matches);
      if (behavior_ == Behavior::kIsolated) return isolate(piece.text, matches, emit);
      for (const Stretch& s : behave(behavior_, stretches(matches, piece.text.size(), invert_))) {
        emit(piece.text.substr(s.begin, s.end - s.begin));
      }
    });
  }

 private:
  // What almost every tokenizer asks for, without the list of stretches.
  template <class Emit>
  static void isolate(std::string_view text, const std::vector<Regex::Match>& matches,
                      const Emit& emit) {
    size_t at = 0;
    for (const Regex::Match& m : matches) {
      emit(text.substr(at, m.begin - at));
      emit(text.substr(m.begin, m.end - m.begin));
      at = m.end;
    }
    emit(text.substr(at));
  }

  std::optional<Regex> regex_;
  std::string plain_;
  Behavior behavior_;
  bool invert_;
};

// Characters of a kind are matches, each one its own.
class CharacterSplit final : public PreTokenizer::Step {
 public:
  using Kind = bool (*)(uint32_t);
  CharacterSplit(Kind kind, Behavior behavior) : kind_(kind), behavior_(behavior) {}
  void apply(Pieces& pieces) const override {
    std::vector<Regex::Match> matches;
    pieces.each([&](const Piece& piece, const auto& emit) {
      matches.clear();
      for (size_t at = 0; at < piece.text.size();) {
        const size_t begin = at;
        if (kind_(next_code_point(piece.text, at))) matches.push_back({begin, at});
      }
      for (const Stretch& s : behave(behavior_, stretches(matches, piece.text.size(), false))) {
        emit(piece.text.substr(s.begin, s.end - s.begin));
      }
    });
  }

 private:
  Kind kind_;
  Behavior behavior_;
};

class PrefixSpace final : public PreTokenizer::Step {
 public:
  void apply(Pieces& pieces) const override {
    pieces.each([&](const Piece& piece, const auto& emit) {
      emit(piece.text.starts_with(' ') ? piece.text : pieces.keep(fmt::format(" {}", piece.text)));
    });
  }
};

class MetaspaceStep final : public PreTokenizer::Step {
 public:
  MetaspaceStep(const Metaspace& metaspace, bool split) : metaspace_(metaspace), split_(split) {}
  void apply(Pieces& pieces) const override {
    const std::string& mark = metaspace_.replacement;
    pieces.each([&](const Piece& piece, const auto& emit) {
      std::string text = replace_all(piece.text, " ", mark);
      const bool here = metaspace_.scheme == Metaspace::Scheme::kAlways ||
                        (metaspace_.scheme == Metaspace::Scheme::kFirst && piece.first);
      if (here && !text.starts_with(mark)) text.insert(0, mark);
      const std::string_view kept = pieces.keep(std::move(text));
      if (!split_) return emit(kept);
      std::vector<Regex::Match> matches;
      plain_matches(kept, mark, matches);
      for (const Stretch& s : with_next(stretches(matches, kept.size(), false))) {
        emit(kept.substr(s.begin, s.end - s.begin));
      }
    });
  }

 private:
  Metaspace metaspace_;
  bool split_;
};

Behavior behavior_of(const JsonPart& json) {
  static const std::map<std::string, Behavior> all = {
      {"Removed", Behavior::kRemoved},
      {"Isolated", Behavior::kIsolated},
      {"MergedWithPrevious", Behavior::kWithPrevious},
      {"MergedWithNext", Behavior::kWithNext},
      {"Contiguous", Behavior::kContiguous}};
  const auto found = all.find(json.text());
  if (found == all.end()) {
    json.refuse(
        "one of Removed, Isolated, MergedWithPrevious, MergedWithNext and Contiguous is expected");
  }
  return found->second;
}

std::unique_ptr<PreTokenizer::Step> split_of(const JsonPart& json) {
  const JsonPart::Pattern pattern = json["pattern"].pattern();
  const Behavior behavior = behavior_of(json["behavior"]);
  const bool invert = json["invert"].flag(false);
  if (pattern.text.empty()) json.refuse("an empty pattern");
  if (!pattern.regex) return std::make_unique<Split>(pattern.text, behavior, invert);
  return std::make_unique<Split>(Regex(pattern.text, "pre_tokenizer Split"), behavior, invert);
}

}  // namespace

Metaspace::Metaspace(const JsonPart& json) : replacement(json["replacement"].text()) {
  size_t end = 0;
  if (!replacement.empty()) next_code_point(replacement, end);
  if (end == 0 || end != replacement.size())
    json["replacement"].refuse("one character is expected");
  const std::string text =
      json["prepend_scheme"].text_or(json["add_prefix_space"].flag(true) ? "always" : "never");
  if (text == "always")
    scheme = Scheme::kAlways;
  else if (text == "first")
    scheme = Scheme::kFirst;
  else if (text == "never")
    scheme = Scheme::kNever;
  else
    json["prepend_scheme"].refuse("one of always, first and never is expected");
}

PreTokenizer::PreTokenizer(const JsonPart& json) {
  if (!json.null()) add(json, 0);
}

void PreTokenizer::add(const JsonPart& json, int depth) {
  const std::string type = json.type();
  const auto cut_at = [&](CharacterSplit::Kind kind, Behavior behavior) {
    steps_.push_back(std::make_unique<CharacterSplit>(kind, behavior));
  };
  if (bytes_) json.refuse(fmt::format("{} behind ByteLevel, which must be the last", type));
  if (type == "ByteLevel") {
    if (json["add_prefix_space"].flag(true)) steps_.push_back(std::make_unique<PrefixSpace>());
    if (json["use_regex"].flag(true)) {
      steps_.push_back(
          std::make_unique<Split>(Regex(kGpt2Pattern, "ByteLevel"), Behavior::kIsolated, false));
    }
    bytes_ = true;
  } else if (type == "Split") {
    steps_.push_back(split_of(json));
  } else if (type == "Digits") {
    cut_at(is_number,
           json["individual_digits"].flag(false) ? Behavior::kIsolated : Behavior::kContiguous);
  } else if (type == "BertPreTokenizer") {
    cut_at(is_white_space, Behavior::kRemoved);
    cut_at(is_punctuation, Behavior::kIsolated);
  } else if (type == "WhitespaceSplit") {
    cut_at(is_white_space, Behavior::kRemoved);
  } else if (type == "Whitespace") {
    cut_at(is_white_space, Behavior::kRemoved);
    cut_at(is_word_character, Behavior::kContiguous);
  } else if (type == "Punctuation") {
    const JsonPart behavior = json["behavior"];
    cut_at(is_punctuation, behavior.null() ? Behavior::kIsolated : behavior_of(behavior));
  } else if (type == "Metaspace") {
    steps_.push_back(std::make_unique<MetaspaceStep>(Metaspace(json), json["split"].flag(true)));
  } else if (type == "Sequence") {
    if (depth == kDeepestSequence) json.refuse("Sequences nested too deeply");
    for (const JsonPart& part : json["pretokenizers"].list()) add(part, depth + 1);
  } else {
    json.refuse(
        fmt::format("the pre-tokenizer {} is not supported; supported "
                    "are ByteLevel, Split, Digits, Metaspace, BertPreTokenizer, WhitespaceSplit, "
                    "Whitespace, Punctuation and Sequence",
                    type));
  }
}

}  // namespace weft
