#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// A config.json, read key by key. A missing key or a wrong type is a ConfigError that names file,
// key and rule. null counts as missing.
class HfConfig {
 public:
  HfConfig(nlohmann::json object, std::string path);
  static HfConfig load(const std::string& path);

  const nlohmann::json& json() const { return json_; }
  const std::string& path() const { return path_; }

  bool has(const std::string& key) const;
  int64_t integer(const std::string& key) const;  // required
  int64_t integer(const std::string& key, int64_t otherwise) const;
  double number(const std::string& key) const;
  double number(const std::string& key, double otherwise) const;
  bool flag(const std::string& key, bool otherwise) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  std::vector<int64_t> integers(const std::string& key) const;   // empty when missing
  std::vector<std::string> texts(const std::string& key) const;  // empty when missing
  HfConfig table(const std::string& key) const;                  // empty when missing

  // Refuses all other values of the key as unsupported.
  void only(const std::string& key, const nlohmann::json& value) const;
  [[noreturn]] void refuse(const std::string& key, const std::string& rule) const;

 private:
  const nlohmann::json* find(const std::string& key) const;

  nlohmann::json json_;
  std::string path_;
};

}  // namespace weft
