#include "core/config/config.h"

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"

namespace weft {
namespace {

ConfigNode node_of(const FieldRef& field) {
  struct Write {
    ConfigNode operator()(const bool* v) const { return {*v, {}, {}}; }
    ConfigNode operator()(const int* v) const { return {int64_t{*v}, {}, {}}; }
    ConfigNode operator()(const int64_t* v) const { return {*v, {}, {}}; }
    ConfigNode operator()(const double* v) const { return {*v, {}, {}}; }
    ConfigNode operator()(const std::string* v) const { return {*v, {}, {}}; }
    ConfigNode operator()(const std::array<double, 2>* v) const {
      return {ConfigNode::List{{(*v)[0], {}, {}}, {(*v)[1], {}, {}}}, {}, {}};
    }
    ConfigNode operator()(const std::vector<std::string>* v) const {
      ConfigNode::List list;
      for (const std::string& s : *v) list.push_back({s, {}, {}});
      return {list, {}, {}};
    }
    ConfigNode operator()(const std::vector<DataSource>* v) const {
      ConfigNode::List list;
      ConfigNode::Table sets;
      for (const DataSource& s : *v) {
        const ConfigNode path{s.path, {}, {}};
        const ConfigNode source =
            s.weight == 1.0 ? path : ConfigNode{ConfigNode::List{{s.weight, {}, {}}, path}, {}, {}};
        if (s.set.empty()) {
          list.push_back(source);
          continue;
        }
        if (sets.empty() || sets.back().key != s.set)
          sets.push_back({s.set, {}, {ConfigNode::List{}, {}, {}}});
        std::get<ConfigNode::List>(sets.back().node.value).push_back(source);
      }
      if (!sets.empty()) return {sets, {}, {}};
      return {list, {}, {}};
    }
  };
  return std::visit(Write{}, field);
}

std::string_view type_name(const FieldRef& field) {
  constexpr std::string_view kNames[] = {
      "true or false", "integer",     "integer",         "number",
      "string",        "two numbers", "list of strings", "list of files or [weight, file] pairs"};
  return kNames[field.index()];
}

std::string number_text(double x, bool integer) {
  return integer ? fmt::format("{:.0f}", x) : fmt::format("{}", x);
}

std::string range_text(const Range& r, bool integer) {
  const std::string low = number_text(r.min, integer), high = number_text(r.max, integer);
  constexpr double kSanity = 1 << 20;  // larger bounds only prevent overflow of products
  if (std::isfinite(r.min) && r.max < kSanity) {
    if (!r.open_min && !r.open_max) return fmt::format("from {} to {}", low, high);
    return fmt::format("{} {} and {} {}", r.open_min ? "above" : "at least", low,
                       r.open_max ? "below" : "at most", high);
  }
  if (std::isfinite(r.min)) return fmt::format("{} {}", r.open_min ? "above" : "at least", low);
  if (std::isfinite(r.max)) return fmt::format("{} {}", r.open_max ? "below" : "at most", high);
  return "";
}

std::string rule_text(const FieldRef& field, const FieldRule& rule) {
  if (!rule.choices.empty()) return fmt::format("one of \"{}\"", fmt::join(rule.choices, "\", \""));
  const bool integer =
      std::holds_alternative<int*>(field) || std::holds_alternative<int64_t*>(field);
  return range_text(rule.range, integer);
}

class Writer final : public FieldVisitor {
 public:
  ConfigNode take() { return std::move(stack_.front().node); }

  void rest(OptionTable& options, std::string_view) override {
    auto& table = top();
    for (const ConfigEntry& e : std::get<ConfigNode::Table>(options.node().value)) {
      table.push_back(e);
    }
  }

 private:
  ConfigNode::Table& top() { return std::get<ConfigNode::Table>(stack_.back().node.value); }

  void visit_field(std::string_view key, FieldRef value, std::string_view,
                   const FieldRule&) override {
    top().emplace_back();
    top().back().key = key;
    top().back().node = node_of(value);
  }
  void enter_table(std::string_view key, std::string_view) override {
    stack_.emplace_back();
    stack_.back().key = key;
  }
  void leave_table() override {
    ConfigEntry done = std::move(stack_.back());
    stack_.pop_back();
    top().push_back(std::move(done));
  }
  std::string visit_letters(const std::string& present) override { return present; }

  std::vector<ConfigEntry> stack_ = std::vector<ConfigEntry>(1);
};

class Lister final : public FieldVisitor {
 public:
  std::vector<FieldInfo> take() { return std::move(infos_); }

  void rest(OptionTable&, std::string_view doc) override {
    infos_.push_back({name("..."), "options", "", "", std::string(doc), {}});
  }

 private:
  std::string name(std::string_view key) const {
    return path_.empty() ? std::string(key) : fmt::format("{}.{}", fmt::join(path_, "."), key);
  }
  void visit_field(std::string_view key, FieldRef value, std::string_view doc,
                   const FieldRule& rule) override {
    infos_.push_back({name(key), std::string(type_name(value)), print_toml_value(node_of(value)),
                      rule_text(value, rule), std::string(doc), rule.choices});
  }
  void enter_table(std::string_view key, std::string_view) override { path_.emplace_back(key); }
  void leave_table() override { path_.pop_back(); }
  std::string visit_letters(const std::string&) override { return "X"; }  // stands for any letter

  std::vector<std::string> path_;
  std::vector<FieldInfo> infos_;
};

}  // namespace

OptionTable::OptionTable(ConfigNode::Table entries, std::string path)
    : node_{std::move(entries), {}, {}}, path_(std::move(path)) {}

OptionTable OptionTable::parse(std::string_view toml) {
  OptionTable out;
  out.node_ = parse_toml(toml, "options");
  out.path_ = "options";
  return out;
}

bool OptionTable::has(std::string_view key) const { return node_.find(key) != nullptr; }

void OptionTable::set(std::string_view key,
                      std::variant<bool, int64_t, double, std::string> value) {
  ConfigNode& node = node_.at_or_insert(key, {});
  std::visit([&](auto& v) { node.value = v; }, value);
}

bool OptionTable::operator==(const OptionTable& other) const {
  return print_toml(node_) == print_toml(other.node_);
}

ConfigNode write_fields(const FieldList& list) {
  Writer writer;
  list(writer);
  return writer.take();
}

std::vector<FieldInfo> list_fields(const FieldList& list) {
  Lister lister;
  list(lister);
  return lister.take();
}

std::string describe_rule(const FieldRef& value, const FieldRule& rule) {
  const std::string text = rule_text(value, rule);
  if (!rule.choices.empty()) return text;
  std::string type(type_name(value));
  if (type == "integer")
    type = "an integer";
  else if (type == "number" || type == "string")
    type = "a " + type;
  else if (type.starts_with("list"))
    type = "a " + type;
  if (text.empty()) return type;
  return fmt::format("{}{}{}", type, text.starts_with("at least") ? " of " : " ", text);
}

}  // namespace weft
