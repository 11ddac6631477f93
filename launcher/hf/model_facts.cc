// A model's config as facts that can be compared: every option of every layer with its default
// filled in, numbers in one notation, and widths of 0 replaced by the derived values.
#include <algorithm>
#include <cmath>
#include <set>

#include "core/config/config.h"
#include "launcher/hf/family.h"
#include "launcher/hf/layer_options.h"
#include "layers/mixers/registry.h"

namespace weft {
namespace {

using Facts = std::map<std::string, std::string>;

// Keys of [model.moe] that affect training or implementation of experts but not their function.
bool about_training(const std::string& key) {
  for (const char* one : {"aux_loss", "aux_scope", "z_loss", "capacity", "drop_policy", "bias_rate",
                          "force_balance", "compute"}) {
    if (key == one) return true;
  }
  return false;
}

void add_table(const std::string& prefix, const ConfigNode& table, Facts& facts) {
  for (const ConfigEntry& e : std::get<ConfigNode::Table>(table.value)) {
    if (!about_training(e.key)) facts[prefix + e.key] = print_toml_value(e.node);
  }
}

bool uses(const ModelConfig& model, const std::string& ffn) {
  for (int64_t i = 0; i < model.layers; ++i) {
    if (layer_config_of(model, i).ffn == ffn) return true;
  }
  return false;
}

void add_layer(const ModelConfig& model, int64_t index, Facts& facts) {
  LayerConfig layer = layer_config_of(model, index);
  const std::string prefix = fmt::format("layer.{}.", index);
  const LayerOptions options(model, layer);
  for (const auto& [key, value] : options.all()) facts[prefix + key] = value;
  layer.options = {};
  add_table(prefix, write_fields([&](FieldVisitor& f) { fields(f, layer); }), facts);
}

}  // namespace

LayerOptions::LayerOptions(const ModelConfig& model, const LayerConfig& layer)
    : hidden_(model.hidden) {
  std::set<std::string> integers;
  for (const MixerInfo& info : mixer_list()) {
    if (info.name != layer.mixer) continue;
    for (const FieldInfo& field : info.options) {
      const ConfigNode* set = layer.options.node().find(field.name);
      std::string value = set == nullptr ? field.default_value : print_toml_value(*set);
      if (field.type == "number") value = fmt::format("{}", std::stod(value));
      values_[field.name] = value;
      if (field.type == "integer") integers.insert(field.name);
    }
  }
  const auto fill = [&](const char* key, int64_t value) {
    if (integers.contains(key) && integer(key) == 0) values_[key] = fmt::format("{}", value);
  };
  fill("inner", 2 * hidden_);
  if (layer.mixer == "mamba2") fill("heads", std::max<int64_t>(1, integer("inner") / 64));
  if (has("heads") && integer("heads") > 0) {
    fill("kv_heads", integer("heads"));
    fill("value_heads", integer("heads"));
    fill("dk", hidden_ / integer("heads"));
    fill("dv", hidden_ / integer("heads"));
  }
  if (has("dk")) fill("gate_rank", integer("dk"));
  if (has("dk") && layer.mixer != "mla") fill("rope_width", integer("dk"));
  if (has("groups")) fill("norm_groups", integer("groups"));
  fill("kv_rank", std::max<int64_t>(1, hidden_ / 4));
  fill("dt_rank", (hidden_ + 15) / 16);
  if (layer.mixer == "softmax" && number("scale") == 0) {
    values_["scale"] = fmt::format("{}", 1.0 / std::sqrt(static_cast<double>(integer("dk"))));
  }
  if (has("rope_scaling")) fill_stretch();
  // Options without effect are not compared.
  if (has("rope") && !flag("rope")) {
    values_.erase("rope_base");
    values_.erase("rope_scaling");
    if (layer.mixer != "mla") values_.erase("rope_width");
  }
  if (has("qk_norm") && !flag("qk_norm")) {
    for (const char* key : {"qk_norm_eps", "qk_norm_joint", "qk_norm_offset"}) values_.erase(key);
  }
  if (has("select_norm") && !flag("select_norm")) values_.erase("norm_eps");
}

// Scaling of a rotation: options that its kind does not read are not compared, 0 means the default.
void LayerOptions::fill_stretch() {
  const std::string kind = has("rope") && !flag("rope") ? "" : text("rope_scaling");
  const bool llama3 = kind == "\"llama3\"", yarn = kind == "\"yarn\"";
  const auto usual = [&](const char* key, double value) {
    if (number(key) == 0) values_[key] = fmt::format("{}", value);
  };
  usual("rope_low", 1.0);
  usual("rope_high", llama3 ? 4.0 : 32.0);
  usual("rope_attention", 0.1 * std::log(std::max(1.0, number("rope_factor"))) + 1.0);
  if (!llama3 && !yarn) {
    for (const char* key : {"rope_length", "rope_low", "rope_high"}) values_.erase(key);
  }
  if (!yarn) {
    for (const char* key : {"rope_attention", "rope_truncate"}) values_.erase(key);
  }
  if (!llama3 && !yarn && kind != "\"linear\"") values_.erase("rope_factor");
}

int64_t LayerOptions::integer(const std::string& key) const { return std::stoll(text(key)); }
double LayerOptions::number(const std::string& key) const { return std::stod(text(key)); }
bool LayerOptions::flag(const std::string& key) const { return text(key) == "true"; }
std::string LayerOptions::text(const std::string& key) const {
  const auto found = values_.find(key);
  WEFT_CHECK(found != values_.end(), "no option {}", key);
  return found->second;
}

std::map<std::string, std::string> model_facts(const ModelConfig& original) {
  ModelConfig model = original;
  Facts facts;
  for (int64_t i = 0; i < model.layers; ++i) add_layer(model, i, facts);
  if (uses(model, "moe")) {
    if (model.moe.shared_ffn == 0) model.moe.shared_ffn = model.moe.shared * model.moe.ffn;
    model.moe.shared = 0;
    // Softmax over all experts, renormalized over the chosen ones, equals softmax over the chosen
    // ones.
    if (model.moe.router == "topk_softmax" && model.moe.n_group == 1) {
      model.moe.router = "softmax";
      model.moe.renormalize = true;
    }
    add_table("moe.", write_fields([&](FieldVisitor& f) { fields(f, model.moe); }), facts);
  }
  if (uses(model, "dense")) {
    model.dense.ffn = dense_width(model);
    add_table("dense.", write_fields([&](FieldVisitor& f) { fields(f, model.dense); }), facts);
  }
  const ConfigNode all = write_fields([&](FieldVisitor& f) { fields(f, model); });
  for (const ConfigEntry& e : std::get<ConfigNode::Table>(all.value)) {
    if (!e.node.is_table() && e.key != "pattern") facts[e.key] = print_toml_value(e.node);
  }
  return facts;
}

bool same_model(const ModelConfig& a, const ModelConfig& b) {
  return a.layers == b.layers && model_facts(a) == model_facts(b);
}

}  // namespace weft
