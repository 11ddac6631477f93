// The rotation of softmax attention in config.json: rope_parameters, or rope_scaling and rope_theta
// of older folders (which the transformers package prefers if both are present).
#include <cmath>

#include "launcher/hf/parts.h"

namespace weft {
namespace {

constexpr const char* kNone = "default";

std::string kind_of(const HfConfig& config, const char* key, const HfConfig& rope) {
  const std::string kind = rope.text("rope_type", rope.text("type", kNone));
  for (const char* known : {kNone, "linear", "llama3", "yarn"}) {
    if (kind == known) return kind;
  }
  config.refuse(key, fmt::format("Weft has no frequencies of the kind \"{}\"; what works: "
                                 "\"default\", \"linear\", \"llama3\", \"yarn\"",
                                 kind));
}

// Training length before the rotation was scaled.
int64_t first_length(const HfConfig& config, const HfConfig& rope) {
  constexpr const char* kKey = "original_max_position_embeddings";
  if (config.has(kKey)) return config.integer(kKey);
  return rope.has(kKey) ? rope.integer(kKey) : config.integer("max_position_embeddings");
}

// 0 and a missing key mean the default.
double number_or(const HfConfig& rope, const char* key, double usual) {
  const double value = rope.number(key, 0.0);
  return value == 0 ? usual : value;
}

double growth(double factor, double share) {
  return factor <= 1 ? 1.0 : 0.1 * share * std::log(factor) + 1.0;
}

// Factor by which yarn scales q and k.
double attention_factor(const HfConfig& rope, double factor) {
  if (rope.has("attention_factor")) return rope.number("attention_factor");
  const double one = rope.number("mscale", 0.0), all = rope.number("mscale_all_dim", 0.0);
  return one != 0 && all != 0 ? growth(factor, one) / growth(factor, all) : growth(factor, 1.0);
}

void read_stretch(const HfConfig& config, const HfConfig& rope, const std::string& kind,
                  OptionTable& options) {
  options.set("rope_scaling", kind);
  const bool yarn = kind == "yarn";
  const int64_t length = kind == "linear" ? 1 : first_length(config, rope);
  if (length < 1) rope.refuse("original_max_position_embeddings", "must be at least 1");
  const double factor = yarn && !rope.has("factor")
                            ? static_cast<double>(config.integer("max_position_embeddings")) /
                                  static_cast<double>(length)
                            : rope.number("factor");
  if (factor <= 0) rope.refuse("factor", "must be above 0");
  options.set("rope_factor", factor);
  if (kind == "linear") return;
  options.set("rope_length", length);
  const double low = yarn ? number_or(rope, "beta_slow", 1.0) : rope.number("low_freq_factor"),
               high = yarn ? number_or(rope, "beta_fast", 32.0) : rope.number("high_freq_factor");
  if (low <= 0 || high <= low) {
    rope.refuse(yarn ? "beta_fast" : "high_freq_factor",
                fmt::format("must be above {} = {}, and that above 0",
                            yarn ? "beta_slow" : "low_freq_factor", low));
  }
  options.set("rope_low", low);
  options.set("rope_high", high);
  if (!yarn) return;
  options.set("rope_attention", attention_factor(rope, factor));
  options.set("rope_truncate", rope.flag("truncate", true));
}

nlohmann::json stretch_of(const LayerOptions& a, const std::string& kind) {
  nlohmann::json rope = {{"rope_type", kind}, {"rope_theta", a.number("rope_base")}};
  if (kind == kNone) return rope;
  rope["factor"] = a.number("rope_factor");
  if (kind == "linear") return rope;
  rope["original_max_position_embeddings"] = a.integer("rope_length");
  const bool yarn = kind == "yarn";
  rope[yarn ? "beta_slow" : "low_freq_factor"] = a.number("rope_low");
  rope[yarn ? "beta_fast" : "high_freq_factor"] = a.number("rope_high");
  if (!yarn) return rope;
  rope["attention_factor"] = a.number("rope_attention");
  rope["truncate"] = a.flag("rope_truncate");
  return rope;
}

}  // namespace

void read_rotation(const HfConfig& config, LayerConfig& attention, RotatedShare rotated) {
  const char* key = config.has("rope_scaling") ? "rope_scaling" : "rope_parameters";
  const HfConfig rope = config.table(key);
  const std::string kind = kind_of(config, key, rope);
  OptionTable& options = attention.options;
  options.set("rope_base", rope.number("rope_theta", config.number("rope_theta", 10000.0)));
  if (kind != kNone) read_stretch(config, rope, kind, options);
  constexpr const char* kShare = "partial_rotary_factor";
  const double share =
      rope.number(kShare, config.number(kShare, rotated == RotatedShare::kQuarter ? 0.25 : 1.0));
  if (rotated == RotatedShare::kAll && share != 1.0) {
    (rope.has(kShare) ? rope : config).refuse(kShare, "this class rotates all channels: 1");
  }
  if (rotated == RotatedShare::kAll) return;
  const auto width = std::get<int64_t>(options.node().find("dk")->value);
  options.set("rope_width", static_cast<int64_t>(static_cast<double>(width) * share));
}

void write_rotation(const LayerOptions& a, nlohmann::json& config) {
  std::string kind = a.text("rope_scaling");
  kind = kind.substr(1, kind.size() - 2);  // a string of TOML
  if (kind == "none") kind = kNone;
  nlohmann::json rope = stretch_of(a, kind);
  if (a.integer("rope_width") != a.integer("dk")) {
    const double share =
        static_cast<double>(a.integer("rope_width")) / static_cast<double>(a.integer("dk"));
    config["partial_rotary_factor"] = rope["partial_rotary_factor"] = share;
  }
  config["rope_theta"] = rope["rope_theta"];
  if (kind != kNone) config["rope_scaling"] = rope;
  config["rope_parameters"] = std::move(rope);
}

}  // namespace weft
