#include <cctype>
#include <cmath>

#include <fmt/format.h>

#include "core/config/config_tree.h"

namespace weft {
namespace {

std::string quoted(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\u{:04X}", byte);
    else
      out += c;
  }
  return out + "\"";
}

std::string key_text(const std::string& key) {
  for (const char c : key) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-') return quoted(key);
  }
  return key.empty() ? quoted(key) : key;
}

// The shortest text that reads back as the same number, and as a float.
std::string float_text(double x) {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  const std::string text = fmt::format("{}", x);
  return text.find_first_of(".e") == std::string::npos ? text + ".0" : text;
}

// Long lists get a line per entry.
std::string entry_text(const ConfigNode& node) {
  const std::string line = print_toml_value(node);
  const auto* list = std::get_if<ConfigNode::List>(&node.value);
  if (!list || line.size() < 80) return line;
  std::string out = "[\n";
  for (const ConfigNode& item : *list) out += fmt::format("  {},\n", print_toml_value(item));
  return out + "]";
}

void print_section(const ConfigNode::Table& table, const std::string& path, std::string& out) {
  bool plain = false;
  for (const ConfigEntry& e : table) plain = plain || !e.node.is_table();
  if (!path.empty() && (plain || table.empty())) {
    out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", path);
  }
  for (const ConfigEntry& e : table) {
    if (!e.node.is_table()) out += key_text(e.key) + " = " + entry_text(e.node) + "\n";
  }
  for (const ConfigEntry& e : table) {
    if (const auto* sub = std::get_if<ConfigNode::Table>(&e.node.value)) {
      print_section(*sub, path.empty() ? key_text(e.key) : path + "." + key_text(e.key), out);
    }
  }
}

}  // namespace

std::string print_toml_value(const ConfigNode& node) {
  if (const auto* b = std::get_if<bool>(&node.value)) return *b ? "true" : "false";
  if (const auto* i = std::get_if<int64_t>(&node.value)) return fmt::format("{}", *i);
  if (const auto* d = std::get_if<double>(&node.value)) return float_text(*d);
  if (const auto* s = std::get_if<std::string>(&node.value)) return quoted(*s);
  std::string out;
  if (const auto* list = std::get_if<ConfigNode::List>(&node.value)) {
    for (const ConfigNode& item : *list) {
      out += (out.empty() ? "" : ", ") + print_toml_value(item);
    }
    return "[" + out + "]";
  }
  for (const ConfigEntry& e : std::get<ConfigNode::Table>(node.value)) {
    out += (out.empty() ? "" : ", ") + key_text(e.key) + " = " + print_toml_value(e.node);
  }
  return "{" + out + "}";
}

std::string print_toml(const ConfigNode& root) {
  std::string out;
  print_section(std::get<ConfigNode::Table>(root.value), "", out);
  return out;
}

}  // namespace weft
