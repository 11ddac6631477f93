#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/config/config_tree.h"

// Config structs are plain data with working defaults. Each lists its fields once, in a plain
// function
//
//   void fields(FieldVisitor& f, OptimizerConfig& c) {
//     f("lr", c.lr, "peak, reached after warmup", at_least(0));
//     f.choice("schedule", c.schedule, {"cosine", "wsd", "constant"}, "shape of the learning
//     rate");
//   }
//
// beside the struct (found by argument-dependent lookup). The TOML reader, the printer of the
// resolved config and --explain all walk that list; the reader refuses any key that is not on it.
namespace weft {

// Allowed values of a number, integer or float; never infinite, never NaN.
struct Range {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool open_min = false;  // min itself is refused
  bool open_max = false;
};
inline Range at_least(double min) { return {.min = min}; }
inline Range above(double min) { return {.min = min, .open_min = true}; }
inline Range between(double min, double max) { return {.min = min, .max = max}; }
inline Range from_below(double min, double max) {  // min <= x < max
  return {.min = min, .max = max, .open_max = true};
}

// One file (or prefix) of a blend. Written "file" or [weight, "file"]; in a table of named sets,
// NAME = one of these or a list of them.
struct DataSource {
  double weight = 1.0;
  std::string path = {};
  std::string set = {};  // the key in such a table; empty: in none
  bool operator==(const DataSource&) const = default;
};

// Keys of a table that are interpreted later (a mixer reads the options in its letter's table).
// Copyable; stores where each key was written.
class OptionTable {
 public:
  OptionTable() = default;
  OptionTable(ConfigNode::Table entries, std::string path);
  static OptionTable parse(
      std::string_view toml);  // "heads = 4\nrope = false", for tests and tools

  bool has(std::string_view key) const;
  void set(std::string_view key, std::variant<bool, int64_t, double, std::string> value);
  const ConfigNode& node() const { return node_; }   // always a table
  const std::string& path() const { return path_; }  // "model.layer.L"
  bool operator==(const OptionTable& other) const;   // same keys, same values

 private:
  ConfigNode node_;
  std::string path_;
};

using FieldRef = std::variant<bool*, int*, int64_t*, double*, std::string*, std::array<double, 2>*,
                              std::vector<std::string>*, std::vector<DataSource>*>;

struct FieldRule {
  Range range;
  std::vector<std::string> choices;  // of a string; empty: any value
};

class FieldVisitor {
 public:
  virtual ~FieldVisitor() = default;

  template <class T>
  requires std::constructible_from<FieldRef, T*>
  void operator()(std::string_view key, T& value, std::string_view doc, Range range = {}) {
    visit_field(key, &value, doc, {range, {}});
  }

  void choice(std::string_view key, std::string& value, std::initializer_list<std::string> choices,
              std::string_view doc) {
    visit_field(key, &value, doc, {{}, choices});
  }

  template <class T>
  void table(std::string_view key, T& value, std::string_view doc) {
    enter_table(key, doc);
    fields(*this, value);
    leave_table();
  }

  // Tables named by one letter: [model.layer.L], [model.layer.N], ...
  template <class T>
  void letters(std::string_view key, std::map<char, T>& values, std::string_view doc) {
    std::string present;
    for (const auto& [letter, value] : values) present += letter;
    enter_table(key, doc);
    for (const char letter : visit_letters(present)) {
      table(std::string(1, letter), values[letter], doc);
    }
    leave_table();
  }

  // All keys of this table that were not listed before; call it last.
  virtual void rest(OptionTable& options, std::string_view doc) = 0;

 protected:
  virtual void visit_field(std::string_view key, FieldRef value, std::string_view doc,
                           const FieldRule& rule) = 0;
  virtual void enter_table(std::string_view key, std::string_view doc) = 0;
  virtual void leave_table() = 0;
  virtual std::string visit_letters(const std::string& present) = 0;  // the letters to visit
};

using FieldList = std::function<void(FieldVisitor&)>;

// Reads a tree into the fields of `list`. Unknown keys, wrong types and values outside their rule
// throw ConfigError: "file:line:column: what, the rule, the nearest thing that works". Returns
// where each key that was present was written, by its full name.
std::map<std::string, Place> read_fields(const ConfigNode& root, const FieldList& list);

// Reads a mixer's options like read_fields; `owner` names the mixer in messages.
void read_option_fields(const OptionTable& table, std::string_view owner, const FieldList& list);

template <class T>
T read_options(const OptionTable& table, std::string_view owner) {
  T options{};
  read_option_fields(table, owner, [&](FieldVisitor& f) { fields(f, options); });
  return options;
}

// The current values of the fields as TOML that reads back the same.
ConfigNode write_fields(const FieldList& list);

// One line of --explain and of `weft info --mixers NAME`.
struct FieldInfo {
  std::string name;           // full name: "model.moe.experts"
  std::string type;           // "integer", "number", "string", ...
  std::string default_value;  // as TOML
  std::string rule;           // "at least 1", "one of "a", "b""; empty: anything of that type
  std::string doc;
  std::vector<std::string> choices;  // of a string with a fixed set of values
};
std::vector<FieldInfo> list_fields(const FieldList& list);

template <class T>
std::vector<FieldInfo> describe() {
  T defaults{};
  return list_fields([&](FieldVisitor& f) { fields(f, defaults); });
}

std::string describe_rule(const FieldRef& value,
                          const FieldRule& rule);  // "an integer of at least 1"

}  // namespace weft
