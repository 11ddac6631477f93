#include "launcher/hf/hf_config.h"

#include <cmath>
#include <fstream>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/files/mapped_file.h"

namespace weft {
namespace {

constexpr int64_t kLargestConfig = 16 << 20;  // bytes; published ones have a few thousand

std::string shortened(const nlohmann::json& value) {
  const std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() <= 80 ? text : text.substr(0, 77) + "...";
}

// Python writes Infinity and NaN, which JSON lacks; here they become null.
std::string plain_json(const char* text, int64_t size) {
  std::string out(text, text + size);
  bool quoted = false;
  for (size_t i = 0; i < out.size(); ++i) {
    if (quoted && out[i] == '\\') {
      ++i;
    } else if (out[i] == '"') {
      quoted = !quoted;
    } else if (!quoted) {
      for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
        if (out.compare(i, word.size(), word) != 0) continue;
        out.replace(i, word.size(), "null");
        break;
      }
    }
  }
  return out;
}

}  // namespace

HfConfig::HfConfig(nlohmann::json object, std::string path)
    : json_(std::move(object)), path_(std::move(path)) {
  if (!json_.is_object()) throw ConfigError("{}: is not a JSON object", path_);
}

HfConfig HfConfig::load(const std::string& path) {
  const MappedFile file(path);
  if (file.size() > kLargestConfig) {
    throw ConfigError("{}: {} bytes are too many for a config.json; at most {}", path, file.size(),
                      kLargestConfig);
  }
  const std::string text = plain_json(reinterpret_cast<const char*>(file.data()), file.size());
  try {
    return {nlohmann::json::parse(text), path};
  } catch (const nlohmann::json::parse_error& problem) {
    throw ConfigError("{}: is not JSON at byte {}", path, problem.byte);
  }
}

const nlohmann::json* HfConfig::find(const std::string& key) const {
  const auto found = json_.find(key);
  return found == json_.end() || found->is_null() ? nullptr : &*found;
}

bool HfConfig::has(const std::string& key) const { return find(key) != nullptr; }

void HfConfig::refuse(const std::string& key, const std::string& rule) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) {
    std::vector<std::string> keys;
    for (const auto& [name, ignored] : json_.items()) keys.push_back(name);
    const auto near = nearest(key, keys);
    throw ConfigError("{}: {} is missing; {}{}", path_, key, rule,
                      near ? fmt::format(" (nearest key there: {})", *near) : "");
  }
  throw ConfigError("{}: {} = {}: {}", path_, key, shortened(*value), rule);
}

int64_t HfConfig::integer(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value != nullptr && value->is_number_integer()) {
    const auto n = value->get<int64_t>();
    if (n >= 0 && n < int64_t{1} << 40) return n;
  }
  refuse(key, "must be an integer from 0 to 2^40");
}
int64_t HfConfig::integer(const std::string& key, int64_t otherwise) const {
  return has(key) ? integer(key) : otherwise;
}

double HfConfig::number(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value != nullptr && value->is_number() && std::isfinite(value->get<double>())) {
    return value->get<double>();
  }
  refuse(key, "must be a number");
}
double HfConfig::number(const std::string& key, double otherwise) const {
  return has(key) ? number(key) : otherwise;
}

bool HfConfig::flag(const std::string& key, bool otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(key, "must be true or false");
  return value->get<bool>();
}

std::string HfConfig::text(const std::string& key, const std::string& otherwise) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_string()) refuse(key, "must be a string");
  return value->get<std::string>();
}

std::vector<int64_t> HfConfig::integers(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return {};
  std::vector<int64_t> out;
  if (!value->is_array()) refuse(key, "must be a list of integers");
  for (const nlohmann::json& item : *value) {
    if (!item.is_number_integer()) refuse(key, "must be a list of integers");
    out.push_back(item.get<int64_t>());
  }
  return out;
}

std::vector<std::string> HfConfig::texts(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return {};
  std::vector<std::string> out;
  if (!value->is_array()) refuse(key, "must be a list of strings");
  for (const nlohmann::json& item : *value) {
    if (!item.is_string()) refuse(key, "must be a list of strings");
    out.push_back(item.get<std::string>());
  }
  return out;
}

HfConfig HfConfig::table(const std::string& key) const {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return {nlohmann::json::object(), path_ + ": " + key};
  if (!value->is_object()) refuse(key, "must be an object");
  return {*value, path_ + ": " + key};
}

void HfConfig::only(const std::string& key, const nlohmann::json& value) const {
  const nlohmann::json* mine = find(key);
  if (mine == nullptr || *mine == value) return;
  refuse(key, fmt::format("Weft does not support this variant; supported: {}", shortened(value)));
}

}  // namespace weft
