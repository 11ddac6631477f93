#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace weft {

// Origin of a value: line and column of a file, or the command line.
struct Place {
  std::string file;  // "command line" for overrides; empty for values made by the program
  int64_t line = 0;  // from 1; 0: no line
  int64_t column = 0;
  std::string text() const;  // "tiny.toml:12:9"
};

// A config file as a plain tree, so that only config_tree.cc depends on the TOML library.
struct ConfigEntry;
struct ConfigNode {
  using List = std::vector<ConfigNode>;
  using Table = std::vector<ConfigEntry>;  // in the order of the file, keys unique

  std::variant<Table, List, bool, int64_t, double, std::string> value;
  Place place;
  std::string raw;  // overrides only: the text as typed, so that run.dir=2025 can be a string

  ConfigNode* find(std::string_view key);  // null when absent or when this is no table
  const ConfigNode* find(std::string_view key) const;
  ConfigNode& at_or_insert(std::string_view key, const Place& place);  // this must be a table
  bool is_table() const { return std::holds_alternative<Table>(value); }
};

struct ConfigEntry {
  std::string key;
  Place place;  // of the key
  ConfigNode node;
};

// Throws ConfigError with file, line and column.
ConfigNode parse_toml(std::string_view text, const std::string& file);
ConfigNode parse_toml_file(const std::string& path);

// Puts "table.key=value" into the tree. The value is TOML; text that is not valid TOML becomes a
// string.
void apply_override(ConfigNode& root, std::string_view text);

// "an integer", "a list", ... for messages.
std::string_view kind_of(const ConfigNode& node);

std::string print_toml(const ConfigNode& root);         // a whole file
std::string print_toml_value(const ConfigNode& value);  // one value on one line

}  // namespace weft
