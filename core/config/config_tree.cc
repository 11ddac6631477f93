#include "core/config/config_tree.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include "core/base/error.h"
#include "core/base/nearest.h"

namespace weft {
namespace {

// Configs are written by hand; anything larger is the wrong file.
constexpr int64_t kMaxFileBytes = 1 << 20;
// The TOML library recurses once per dot of a key: a line of a hundred thousand dots would overflow
// the stack. Two thousand are safe.
constexpr int64_t kMaxDotsPerLine = 2000;
constexpr char kCommandLine[] = "command line";

Place place_of(const toml::source_region& source, const std::string& file) {
  return {file, source.begin.line, source.begin.column};
}

ConfigNode convert(const toml::node& node, const std::string& file);

ConfigNode::Table convert_table(const toml::table& table, const std::string& file) {
  ConfigNode::Table out;
  for (const auto& [key, value] : table) {
    out.push_back({std::string(key.str()), place_of(key.source(), file), convert(value, file)});
  }
  std::stable_sort(out.begin(), out.end(), [](const ConfigEntry& a, const ConfigEntry& b) {
    return std::pair(a.place.line, a.place.column) < std::pair(b.place.line, b.place.column);
  });
  return out;
}

ConfigNode convert(const toml::node& node, const std::string& file) {
  ConfigNode out{{}, place_of(node.source(), file), {}};
  if (const auto* table = node.as_table()) {
    out.value = convert_table(*table, file);
  } else if (const auto* array = node.as_array()) {
    ConfigNode::List list;
    for (const auto& item : *array) list.push_back(convert(item, file));
    out.value = std::move(list);
  } else if (const auto* b = node.as_boolean()) {
    out.value = b->get();
  } else if (const auto* i = node.as_integer()) {
    out.value = int64_t{i->get()};
  } else if (const auto* d = node.as_floating_point()) {
    out.value = d->get();
  } else if (const auto* s = node.as_string()) {
    out.value = s->get();
  } else {
    throw ConfigError("{}: dates and times are not supported; put the text in quotes",
                      out.place.text());
  }
  return out;
}

// Never fails: text that is not exactly one TOML value is a string.
ConfigNode parse_override_value(const std::string& text) {
  ConfigNode out{text, {kCommandLine, 0, 0}, text};
  if (text.find('\n') != std::string::npos) return out;
  try {
    const toml::table table = toml::parse("v = " + text);
    if (table.size() != 1) return out;
    out = convert(*table.get("v"), kCommandLine);
  } catch (const toml::parse_error&) {
    return out;
  }
  const auto forget_lines = [](auto&& self, ConfigNode& node) -> void {
    node.place = {kCommandLine, 0, 0};
    if (auto* list = std::get_if<ConfigNode::List>(&node.value)) {
      for (ConfigNode& item : *list) self(self, item);
    } else if (auto* table = std::get_if<ConfigNode::Table>(&node.value)) {
      for (ConfigEntry& e : *table) {
        e.place = node.place;
        self(self, e.node);
      }
    }
  };
  forget_lines(forget_lines, out);
  out.raw = text;
  return out;
}

std::vector<std::string> split_key(std::string_view path) {
  std::vector<std::string> parts(1);
  for (const char c : path) {
    if (c == '.')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

void check_nesting(std::string_view text, const std::string& file) {
  int64_t line = 1, dots = 0;
  for (const char c : text) {
    dots += c == '.';
    if (c == '\n') {
      ++line;
      dots = 0;
    }
    if (dots > kMaxDotsPerLine) {
      throw ConfigError(
          "{}:{}:1: more than {} dots on a line; break a long list over several lines", file, line,
          kMaxDotsPerLine);
    }
  }
}

[[noreturn]] void throw_unreadable(const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(path).has_parent_path() ? fs::path(path).parent_path() : ".";
  std::vector<std::string> names;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  const std::string hint = nearest_or_all(fs::path(path).filename().string(), names);
  throw ConfigError("{}: cannot read this config file{}{}", path, hint.empty() ? "" : "; ", hint);
}

}  // namespace

std::string Place::text() const {
  if (file.empty()) return "program";
  return line > 0 ? fmt::format("{}:{}:{}", file, line, column) : file;
}

ConfigNode* ConfigNode::find(std::string_view key) {
  auto* table = std::get_if<Table>(&value);
  if (!table) return nullptr;
  for (ConfigEntry& entry : *table) {
    if (entry.key == key) return &entry.node;
  }
  return nullptr;
}

const ConfigNode* ConfigNode::find(std::string_view key) const {
  return const_cast<ConfigNode*>(this)->find(key);
}

ConfigNode& ConfigNode::at_or_insert(std::string_view key, const Place& where) {
  if (ConfigNode* found = find(key)) return *found;
  auto& table = std::get<Table>(value);
  table.push_back({std::string(key), where, ConfigNode{Table{}, where, {}}});
  return table.back().node;
}

ConfigNode parse_toml(std::string_view text, const std::string& file) {
  check_nesting(text, file);
  try {
    const toml::table table = toml::parse(text);
    return convert(table, file);
  } catch (const toml::parse_error& e) {
    throw ConfigError("{}: not valid TOML: {}", place_of(e.source(), file).text(), e.description());
  }
}

ConfigNode parse_toml_file(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) throw_unreadable(path);
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(path, error));
  if (error) throw_unreadable(path);
  if (bytes > kMaxFileBytes) {
    throw ConfigError("{}: {} bytes are too many for a config file; at most {}", path, bytes,
                      kMaxFileBytes);
  }
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  if (!in) throw_unreadable(path);
  return parse_toml(text.str(), path);
}

void apply_override(ConfigNode& root, std::string_view text) {
  const size_t equals = text.find('=');
  if (equals == std::string_view::npos) {
    throw ConfigError(
        "command line: '{}' is not an override; write table.key=value, for example train.steps=100",
        text);
  }
  const std::vector<std::string> path = split_key(text.substr(0, equals));
  if (std::find(path.begin(), path.end(), "") != path.end()) {
    throw ConfigError(
        "command line: '{}' has an empty name; write table.key=value, for example train.steps=100",
        text);
  }
  const Place place{kCommandLine, 0, 0};
  ConfigNode* node = &root;
  for (size_t i = 0; i + 1 < path.size(); ++i) {
    node = &node->at_or_insert(path[i], place);
    if (!node->is_table()) {
      throw ConfigError("command line: '{}': {} is {}, not a table ({})", text,
                        fmt::join(path.begin(), path.begin() + static_cast<long>(i) + 1, "."),
                        kind_of(*node), node->place.text());
    }
  }
  node->at_or_insert(path.back(), place);
  for (ConfigEntry& entry : std::get<ConfigNode::Table>(node->value)) {
    if (entry.key != path.back()) continue;
    entry.place = place;
    entry.node = parse_override_value(std::string(text.substr(equals + 1)));
  }
}

std::string_view kind_of(const ConfigNode& node) {
  constexpr std::string_view kNames[] = {"a table",    "a list",  "true or false",
                                         "an integer", "a float", "a string"};
  return kNames[node.value.index()];
}

}  // namespace weft
