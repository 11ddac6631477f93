#include <algorithm>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/config/config.h"

namespace weft {
namespace {

std::string joined(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

// Keeps messages short for any content of the file.
std::string shortened(const std::string& text) {
  return text.size() <= 100 ? text : text.substr(0, 97) + "...";
}

template <class T>
std::string toml_text(const T& value) {
  return print_toml_value({value, {}, {}});
}

// Converts one value of the tree into a field.
struct Taking {
  const ConfigNode& node;
  std::string name;
  const FieldRef& field;
  const FieldRule& rule;

  [[noreturn]] void refuse(std::string_view what, const std::string& nearest_value = "",
                           std::string_view kind = "nearest") const {
    throw ConfigError("{}: {} = {} {}; it must be {}{}", node.place.text(), name,
                      shortened(print_toml_value(node)), what, describe_rule(field, rule),
                      nearest_value.empty() ? "" : fmt::format("; {}: {}", kind, nearest_value));
  }
  [[noreturn]] void refuse_kind(const std::string& nearest_value = "") const {
    refuse(fmt::format("is {}", kind_of(node)), nearest_value);
  }

  bool too_small(double x) const {
    return x < rule.range.min || (rule.range.open_min && x == rule.range.min);
  }
  bool too_large(double x) const {
    return x > rule.range.max || (rule.range.open_max && x == rule.range.max);
  }

  void check_range(int64_t x) const {
    const Range& r = rule.range;
    const auto text = [](double v) { return fmt::format("{}", static_cast<int64_t>(v)); };
    const auto wide = static_cast<double>(x);
    if (too_small(wide)) refuse("is too small", text(r.open_min ? r.min + 1 : r.min));
    if (too_large(wide)) refuse("is too large", text(r.open_max ? r.max - 1 : r.max));
  }

  // An open end has no nearest number: suggests the default instead, if that is in range.
  void check_range(double x, double standard) const {
    const bool small = too_small(x);
    if (!std::isfinite(x)) refuse("is not a finite number");
    if (!small && !too_large(x)) return;
    const char* what = small ? "is too small" : "is too large";
    const Range& r = rule.range;
    if (!(small ? r.open_min : r.open_max)) refuse(what, toml_text(small ? r.min : r.max));
    const bool works = std::isfinite(standard) && !too_small(standard) && !too_large(standard);
    refuse(what, works ? toml_text(standard) : "", "default");
  }

  void operator()(bool* out) const {
    const auto* b = std::get_if<bool>(&node.value);
    if (!b) refuse_kind();
    *out = *b;
  }

  void operator()(int64_t* out) const {
    const auto* i = std::get_if<int64_t>(&node.value);
    if (!i) {
      const auto* d = std::get_if<double>(&node.value);
      const bool near = d && std::abs(*d) < 9e15;
      refuse_kind(near ? fmt::format("{}", std::llround(*d)) : "");
    }
    check_range(*i);
    *out = *i;
  }

  void operator()(int* out) const {
    int64_t wide = 0;
    (*this)(&wide);
    if (wide != static_cast<int>(wide)) refuse("is too large for any machine");
    *out = static_cast<int>(wide);
  }

  void operator()(double* out) const {
    const double standard = *out;
    if (const auto* d = std::get_if<double>(&node.value))
      *out = *d;
    else if (const auto* i = std::get_if<int64_t>(&node.value))
      *out = static_cast<double>(*i);
    else
      refuse_kind();
    check_range(*out, standard);
  }

  void operator()(std::string* out) const {
    const auto* s = std::get_if<std::string>(&node.value);
    if (!s && node.raw.empty()) refuse_kind();
    const std::string text = s ? *s : node.raw;
    const auto& choices = rule.choices;
    if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end()) {
      const auto close = nearest(text, choices);
      refuse("is not known", close ? toml_text(*close) : "");
    }
    *out = text;
  }

  void operator()(std::array<double, 2>* out) const {
    const auto* list = std::get_if<ConfigNode::List>(&node.value);
    if (!list) refuse_kind();
    if (list->size() != 2) refuse(fmt::format("has {} entries", list->size()));
    const FieldRef any = &(*out)[0];
    for (size_t i = 0; i < 2; ++i) {
      Taking{(*list)[i], fmt::format("{}[{}]", name, i), any, rule}(&(*out)[i]);
    }
  }

  void operator()(std::vector<std::string>* out) const {
    out->clear();
    if (const auto* one = std::get_if<std::string>(&node.value)) {
      out->push_back(*one);
      return;
    }
    const auto* list = std::get_if<ConfigNode::List>(&node.value);
    if (!list) refuse_kind();
    for (const ConfigNode& item : *list) {
      const auto* s = std::get_if<std::string>(&item.value);
      if (!s) refuse(fmt::format("holds {}", kind_of(item)));
      out->push_back(*s);
    }
  }

  void operator()(std::vector<DataSource>* out) const {
    out->clear();
    if (const auto* sets = std::get_if<ConfigNode::Table>(&node.value)) {
      for (const ConfigEntry& entry : *sets) add_sources(entry.node, entry.key, *out);
    } else {
      add_sources(node, "", *out);
    }
  }

  void add_sources(const ConfigNode& item, const std::string& set,
                   std::vector<DataSource>& out) const {
    const size_t before = out.size();
    if (const auto* one = std::get_if<std::string>(&item.value)) {
      out.push_back({1.0, *one, {}});
    } else {
      const auto* list = std::get_if<ConfigNode::List>(&item.value);
      if (!list && !set.empty()) refuse(fmt::format("holds {} under {}", kind_of(item), set));
      if (!list) refuse_kind();
      for (const ConfigNode& entry : *list) out.push_back(source(entry));
    }
    if (!set.empty() && out.size() == before) refuse(fmt::format("names no file under {}", set));
    for (size_t i = before; i < out.size(); ++i) out[i].set = set;
  }

  DataSource source(const ConfigNode& item) const {
    if (const auto* s = std::get_if<std::string>(&item.value)) return {1.0, *s, {}};
    const auto* pair = std::get_if<ConfigNode::List>(&item.value);
    if (!pair) refuse(fmt::format("holds {}", kind_of(item)));
    if (pair->size() != 2) refuse(fmt::format("holds a list of {} entries", pair->size()));
    DataSource out;
    const auto* path = std::get_if<std::string>(&(*pair)[1].value);
    if (const auto* d = std::get_if<double>(&(*pair)[0].value))
      out.weight = *d;
    else if (const auto* i = std::get_if<int64_t>(&(*pair)[0].value)) {
      out.weight = static_cast<double>(*i);
    } else
      path = nullptr;
    if (!path) refuse("holds a pair that is not [weight, \"file\"]");
    if (!(out.weight > 0) || !std::isfinite(out.weight)) {
      refuse(fmt::format("gives {} the weight {}; weights are above 0", *path, out.weight));
    }
    out.path = *path;
    return out;
  }
};

class Reader final : public FieldVisitor {
 public:
  Reader(const ConfigNode& root, std::string path) { stack_.push_back({&root, path, {}}); }

  void rest(OptionTable& options, std::string_view) override {
    Frame& frame = stack_.back();
    ConfigNode::Table left;
    if (frame.node) {
      for (const ConfigEntry& e : std::get<ConfigNode::Table>(frame.node->value)) {
        if (!frame.knows(e.key)) left.push_back(e);
      }
    }
    for (const ConfigEntry& e : left) {
      frame.known.push_back(e.key);
      places_[joined(frame.path, e.key)] = e.place;
    }
    options = OptionTable(std::move(left), frame.path);
  }

  std::map<std::string, Place> finish(std::string_view owner) {
    collect_unknown();
    if (!unknown_.empty()) throw_unknown(unknown_.front(), owner);
    return std::move(places_);
  }

 private:
  struct Frame {
    const ConfigNode* node;  // null if the file has no such table
    std::string path;
    std::vector<std::string> known;
    bool knows(const std::string& key) const {
      return std::find(known.begin(), known.end(), key) != known.end();
    }
  };
  struct Unknown {
    std::string path, key;
    Place place;
    std::vector<std::string> siblings;
  };

  // Marks the key as known; returns its entry in the file.
  const ConfigEntry* seek(std::string_view key) {
    Frame& frame = stack_.back();
    frame.known.emplace_back(key);
    all_.push_back(joined(frame.path, key));
    if (!frame.node) return nullptr;
    for (const ConfigEntry& e : std::get<ConfigNode::Table>(frame.node->value)) {
      if (e.key == key) return &e;
    }
    return nullptr;
  }

  void visit_field(std::string_view key, FieldRef value, std::string_view,
                   const FieldRule& rule) override {
    const ConfigEntry* entry = seek(key);
    if (!entry) return;
    places_[all_.back()] = entry->place;
    std::visit(Taking{entry->node, all_.back(), value, rule}, value);
  }

  void enter_table(std::string_view key, std::string_view) override {
    const ConfigEntry* entry = seek(key);
    if (entry && !entry->node.is_table()) {
      throw ConfigError("{}: {} is {}; it must be a table: a line [{}] with keys below it",
                        entry->place.text(), all_.back(), kind_of(entry->node), all_.back());
    }
    stack_.push_back({entry ? &entry->node : nullptr, all_.back(), {}});
  }

  void leave_table() override {
    collect_unknown();
    stack_.pop_back();
  }

  std::string visit_letters(const std::string&) override {
    const Frame& frame = stack_.back();
    std::string letters;
    if (!frame.node) return letters;
    for (const ConfigEntry& e : std::get<ConfigNode::Table>(frame.node->value)) {
      if (e.key.size() != 1 || !std::isalpha(static_cast<unsigned char>(e.key[0]))) {
        throw ConfigError("{}: [{}.{}]: a layer is named by one letter, for example [{}.{}]",
                          e.place.text(), frame.path, e.key, frame.path,
                          e.key.empty() ? 'L' : static_cast<char>(std::toupper(e.key[0])));
      }
      letters += e.key;
    }
    return letters;
  }

  void collect_unknown() {
    const Frame& frame = stack_.back();
    if (!frame.node) return;
    for (const ConfigEntry& e : std::get<ConfigNode::Table>(frame.node->value)) {
      if (!frame.knows(e.key)) unknown_.push_back({frame.path, e.key, e.place, frame.known});
    }
  }

  [[noreturn]] void throw_unknown(const Unknown& u, std::string_view owner) const {
    if (!owner.empty()) {
      throw ConfigError("{}: {}: mixer \"{}\" has no option '{}'; {} (weft info --mixers {})",
                        u.place.text(), u.path, owner, shortened(u.key),
                        nearest_or_all(u.key, u.siblings), owner);
    }
    const std::string where = u.path.empty() ? "a config" : fmt::format("[{}]", u.path);
    std::string hint;
    if (const auto close = nearest(u.key, u.siblings)) {
      hint = fmt::format("nearest: {}", joined(u.path, *close));
    } else if (const auto elsewhere = in_another_table(u.key)) {
      hint = fmt::format("nearest: {}", *elsewhere);
    } else {
      hint = nearest_or_all(u.key, u.siblings);
    }
    throw ConfigError("{}: {} has no key '{}'; {} (weft train --explain all)", u.place.text(),
                      where, shortened(u.key), hint);
  }

  // `steps=10` on the command line for train.steps.
  std::optional<std::string> in_another_table(const std::string& key) const {
    for (const std::string& name : all_) {
      if (name.size() > key.size() && name.ends_with("." + key)) return name;
    }
    std::vector<std::string> last;
    for (const std::string& name : all_) last.push_back(name.substr(name.rfind('.') + 1));
    const auto close = nearest(key, last);
    if (!close || *close == key) return std::nullopt;  // a table of that name is no help
    return all_[static_cast<size_t>(std::find(last.begin(), last.end(), *close) - last.begin())];
  }

  std::vector<Frame> stack_;
  std::vector<std::string> all_;  // full names of every field and table seen
  std::vector<Unknown> unknown_;
  std::map<std::string, Place> places_;
};

}  // namespace

std::map<std::string, Place> read_fields(const ConfigNode& root, const FieldList& list) {
  Reader reader(root, "");
  list(reader);
  return reader.finish("");
}

void read_option_fields(const OptionTable& table, std::string_view owner, const FieldList& list) {
  Reader reader(table.node(), table.path());
  list(reader);
  reader.finish(owner);
}

}  // namespace weft
