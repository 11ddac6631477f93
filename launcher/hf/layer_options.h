#pragma once

#include <map>
#include <string>

#include "core/config/run_config.h"

namespace weft {

// The mixer options of a layer, with defaults filled in and widths of 0 replaced by the values that
// the mixer derives.
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
