#include "core/data/tokenizer/vocabulary.h"

namespace weft {

Vocabulary::Vocabulary(const JsonPart& json) {
  if (!json.value().is_object()) json.refuse("an object of tokens and ids is expected");
  // Ids index a table: they must not make it much larger than the file.
  const int64_t largest = 4 * static_cast<int64_t>(json.value().size()) + (1 << 16);
  for (const auto& [token, value] : json.value().items()) {
    add(token, static_cast<int32_t>(json[token].whole(0, largest)));
  }
}

void Vocabulary::add(std::string token, int32_t id) {
  const auto at = static_cast<size_t>(id);
  if (at >= names_.size()) {
    names_.resize(at + 1);
    named_.resize(at + 1);
  }
  names_[at] = token;
  named_[at] = true;
  ids_.insert_or_assign(std::move(token), id);
  ++tokens_;
}

int32_t Vocabulary::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

const std::string* Vocabulary::name_of(int32_t id) const {
  const auto at = static_cast<size_t>(id);
  return id >= 0 && at < names_.size() && named_[at] ? &names_[at] : nullptr;
}

}  // namespace weft
