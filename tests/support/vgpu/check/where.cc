#include "tests/support/vgpu/check/where.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>

namespace vgpu {
namespace {

// The first answer of addr2line, if the machine has it and it knows.
std::string source_line(const char* library, uint64_t offset) {
  const std::string command =
      fmt::format("addr2line -s -e '{}' {:#x} 2>/dev/null", library, offset);
  FILE* answer = popen(command.c_str(), "r");
  if (answer == nullptr) return {};
  char line[512] = {};
  const bool any = fgets(line, sizeof line, answer) != nullptr;
  pclose(answer);
  std::string text = any ? line : "";
  text = text.substr(0, text.find_first_of(" \n"));
  return text.find('?') == std::string::npos ? text : "";
}

}  // namespace

std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

std::string kernel_name(const std::string& mangled) {
  const std::string full = demangled(mangled.c_str());
  int depth = 0;  // of < >
  size_t begin = 0;
  for (size_t i = 0; i < full.size(); ++i) {
    if (full[i] == '<') ++depth;
    if (full[i] == '>') --depth;
    if (depth > 0) continue;
    if (full[i] == ' ') begin = i + 1;  // a result stands before the names of templates
    if (full[i] == '(' && full.compare(i, 11, "(anonymous ") != 0) {
      return full.substr(begin, i - begin);
    }
  }
  return full;
}

std::string place_of(const void* instruction) {
  Dl_info info{};
  if (instruction == nullptr || dladdr(instruction, &info) == 0) return "";
  const auto at = reinterpret_cast<uint64_t>(instruction) - 1;  // return addresses: the call before
  const std::string line =
      source_line(info.dli_fname, at - reinterpret_cast<uint64_t>(info.dli_fbase));
  if (!line.empty()) return line;
  if (info.dli_sname == nullptr) return "";
  return fmt::format("{}+{:#x}", demangled(info.dli_sname),
                     at - reinterpret_cast<uint64_t>(info.dli_saddr));
}

}  // namespace vgpu
