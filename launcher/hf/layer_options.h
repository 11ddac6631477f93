#pragma once

#include <map>
#include <string>

#include "core/config/run_config.h"

namespace weft {

// The mixer's options of a layer, those that are not set with their defaults, and widths that 0
// leaves to the mixer worked out.
class LayerOptions {
 public:
  LayerOptions(const ModelConfig& model, const LayerConfig& layer);

  bool has(const std::string& key) const { return values_.contains(key); }
  int64_t integer(const std::string& key) const;
  double number(const std::string& key) const;
  bool flag(const std::string& key) const;
  std::string text(const std::string& key) const;  // as TOML
  const std::map<std::string, std::string>& all() const { return values_; }

 private:
  void fill_stretch();

  int64_t hidden_;
  std::map<std::string, std::string> values_;
};

}  // namespace weft
