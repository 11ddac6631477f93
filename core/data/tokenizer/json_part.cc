#include "core/data/tokenizer/json_part.h"

#include "core/base/error.h"

namespace weft {
namespace {

const nlohmann::json kNull;

}  // namespace

JsonPart JsonPart::operator[](const std::string& key) const {
  const std::string place = place_.empty() ? key : place_ + "." + key;
  if (!value_->is_object()) refuse("an object is expected");
  const auto found = value_->find(key);
  return {found == value_->end() ? kNull : *found, file_, place};
}

std::vector<JsonPart> JsonPart::list() const {
  if (!value_->is_array()) refuse("an array is expected");
  std::vector<JsonPart> parts;
  for (const auto& value : *value_) {
    parts.emplace_back(value, file_, fmt::format("{}[{}]", place_, parts.size()));
  }
  return parts;
}

std::string JsonPart::text() const {
  if (!value_->is_string()) refuse("a string is expected");
  return value_->get<std::string>();
}

std::string JsonPart::text_or(const std::string& when_absent) const {
  return null() ? when_absent : text();
}

int64_t JsonPart::whole(int64_t low, int64_t high) const {
  if (!value_->is_number_integer()) refuse("a whole number is expected");
  const bool huge = value_->is_number_unsigned() && value_->get<uint64_t>() > INT64_MAX;
  const int64_t number = huge ? INT64_MAX : value_->get<int64_t>();
  if (number < low || number > high) {
    refuse(fmt::format("{} is outside {} to {}", value_->dump(), low, high));
  }
  return number;
}

bool JsonPart::flag(bool when_absent) const {
  if (null()) return when_absent;
  if (!value_->is_boolean()) refuse("true or false is expected");
  return value_->get<bool>();
}

void JsonPart::refuse(const std::string& what) const {
  throw ConfigError("{}: {}: {}", file_, place_.empty() ? "top level" : place_, what);
}

JsonPart::Pattern JsonPart::pattern() const {
  const JsonPart plain = (*this)["String"], regex = (*this)["Regex"];
  if (plain.null() == regex.null()) refuse("either \"String\" or \"Regex\" is expected");
  return plain.null() ? Pattern{regex.text(), true} : Pattern{plain.text(), false};
}

}  // namespace weft
