#include "core/data/tokenizer/normalizer.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/data/tokenizer/normalizer_steps.h"
#include "core/data/tokenizer/replace.h"
#include "core/data/tokenizer/unicode.h"

namespace weft {
namespace {

class Form final : public TextNormalizer::Step {
 public:
  explicit Form(NormalForm form) : form_(form) {}
  void apply(std::string& text) const override {
    const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return c >= 0; });
    if (!ascii) text = normalized(form_, text);
  }

 private:
  NormalForm form_;
};

class Prepend final : public TextNormalizer::Step {
 public:
  explicit Prepend(std::string text) : text_(std::move(text)) {}
  void apply(std::string& text) const override { text.insert(0, text_); }

 private:
  std::string text_;
};

class Replace final : public TextNormalizer::Step {
 public:
  explicit Replace(Replacement r) : replacement_(std::move(r)) {}
  void apply(std::string& text) const override { text = replacement_.apply(text); }

 private:
  Replacement replacement_;
};

}  // namespace

TextNormalizer::TextNormalizer(const JsonPart& json) {
  if (!json.null()) add(json, 0);
}

void TextNormalizer::add(const JsonPart& json, int depth) {
  static const std::map<std::string, NormalForm> forms = {{"NFC", NormalForm::kNfc},
                                                          {"NFD", NormalForm::kNfd},
                                                          {"NFKC", NormalForm::kNfkc},
                                                          {"NFKD", NormalForm::kNfkd}};
  const std::string type = json.type();
  if (const auto form = forms.find(type); form != forms.end()) {
    steps_.push_back(std::make_unique<Form>(form->second));
  } else if (type == "Prepend") {
    steps_.push_back(std::make_unique<Prepend>(json["prepend"].text()));
  } else if (type == "Replace") {
    steps_.push_back(std::make_unique<Replace>(Replacement(json, "normalizer Replace")));
  } else if (type == "Sequence") {
    if (depth == kDeepestSequence) json.refuse("Sequences nested too deeply");
    for (const JsonPart& part : json["normalizers"].list()) add(part, depth + 1);
  } else if (auto step = normalizer_step(json)) {
    steps_.push_back(std::move(step));
  } else {
    json.refuse(
        fmt::format("the normalizer {} is not supported; supported are NFC, NFD, NFKC, NFKD, "
                    "Prepend, Replace, Precompiled, Strip, StripAccents, Lowercase, Nmt, "
                    "BertNormalizer and Sequence",
                    type));
  }
}

std::string TextNormalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const auto& step : steps_) {
    if (!out.empty()) step->apply(out);
  }
  return out;
}

}  // namespace weft
