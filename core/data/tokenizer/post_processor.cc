#include "core/data/tokenizer/post_processor.h"

#include "core/base/error.h"

namespace weft {

PostProcessor::PostProcessor(const JsonPart& json, const std::function<bool(int64_t)>& exists) {
  if (!json.null()) add(json, 0, exists);
}

void PostProcessor::add(const JsonPart& json, int depth,
                        const std::function<bool(int64_t)>& exists) {
  const std::string type = json.type();
  if (type == "ByteLevel") return;
  if (type == "TemplateProcessing") return read_template(json, exists);
  if (type == "BertProcessing" || type == "RobertaProcessing") return read_pair(json, exists);
  if (type != "Sequence" || depth == 8) {
    json.refuse(fmt::format(
        "the post-processor {} is not supported; supported "
        "are TemplateProcessing, BertProcessing, RobertaProcessing, ByteLevel and Sequence",
        type));
  }
  for (const JsonPart& part : json["processors"].list()) add(part, depth + 1, exists);
}

// "cls" before the text and "sep" behind it, each [token, id].
void PostProcessor::read_pair(const JsonPart& json, const std::function<bool(int64_t)>& exists) {
  const auto id_of = [&](const char* key) {
    const std::vector<JsonPart> pair = json[key].list();
    if (pair.size() != 2) json[key].refuse("[token, id] is expected");
    const int64_t id = pair[1].whole(0, INT32_MAX);
    if (!exists(id)) pair[1].refuse(fmt::format("{} is no token's id", id));
    return static_cast<int32_t>(id);
  };
  before_.insert(before_.begin(), id_of("cls"));
  behind_.push_back(id_of("sep"));
}

// "single": special tokens, the text once, special tokens. A template around a template adds to its
// outside.
void PostProcessor::read_template(const JsonPart& json,
                                  const std::function<bool(int64_t)>& exists) {
  const JsonPart known = json["special_tokens"];
  std::vector<int32_t> before, behind;
  int texts = 0;
  for (const JsonPart& part : json["single"].list()) {
    if (part.value().contains("Sequence")) {
      if (part["Sequence"]["id"].text() != "A" || ++texts > 1)
        part.refuse("the text A is expected, once");
      continue;
    }
    const std::string name = part["SpecialToken"]["id"].text();
    const JsonPart ids = known[name]["ids"];
    if (known[name].null()) part.refuse(fmt::format("\"{}\" is not among special_tokens", name));
    for (const JsonPart& id : ids.list()) {
      const int64_t value = id.whole(0, INT32_MAX);
      if (!exists(value)) id.refuse(fmt::format("{} is no token's id", value));
      (texts == 0 ? before : behind).push_back(static_cast<int32_t>(value));
    }
  }
  if (texts != 1) json["single"].refuse("the text A is expected, once");
  before_.insert(before_.begin(), before.begin(), before.end());
  behind_.insert(behind_.end(), behind.begin(), behind.end());
}

}  // namespace weft
