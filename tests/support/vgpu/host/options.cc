#include "tests/support/vgpu/host/options.h"

#include <dlfcn.h>

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "tests/support/vgpu/wire/layout.h"

namespace vgpu {
namespace {

// From the tables of the CUDA programming guide and NVIDIA's data sheets.
constexpr std::array<Architecture, 6> kArchitectures{{
    {80, "virtual A100", 108, 163 << 10, 164 << 10, 2048, 40 << 20},
    {86, "virtual RTX 3090", 82, 99 << 10, 100 << 10, 1536, 6 << 20},
    {89, "virtual RTX 4090", 128, 99 << 10, 100 << 10, 1536, 72 << 20},
    {90, "virtual H100", 132, 227 << 10, 228 << 10, 2048, 50 << 20},
    {100, "virtual B200", 148, 227 << 10, 228 << 10, 2048, 126 << 20},
    {120, "virtual RTX 5090", 170, 99 << 10, 100 << 10, 1536, 96 << 20},
}};

std::string text_of(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

// A whole number, with K, M or G behind it where `units` says so.
int64_t number_of(const char* name, int64_t otherwise, bool units = false) {
  const std::string text = text_of(name, "");
  if (text.empty()) return otherwise;
  int64_t x = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
  const std::string_view rest(end, text.data() + text.size());
  if (error == std::errc() && x >= 0) {
    if (rest.empty()) return x;
    if (units && rest == "K") return x << 10;
    if (units && rest == "M") return x << 20;
    if (units && rest == "G") return x << 30;
  }
  refuse(fmt::format("{}={}: not a number{}", name, text, units ? " (units: K, M, G)" : ""));
}

std::vector<std::string> parts_of(const std::string& text, char between) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(between, at), text.size());
    if (end > at) parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// The folder of this library: the device program is beside it.
std::string own_folder() {
  Dl_info info{};
  dladdr(reinterpret_cast<const void*>(&own_folder), &info);
  const std::string path = info.dli_fname == nullptr ? "." : info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

}  // namespace

const Architecture* find_architecture(int number) {
  for (const Architecture& a : kArchitectures) {
    if (a.number == number) return &a;
  }
  return nullptr;
}

void refuse(const std::string& text) {
  std::fprintf(stderr, "vgpu: %s\n", text.c_str());
  std::_Exit(2);
}

Options Options::from_environment() {
  Options o;
  o.devices = static_cast<int>(number_of("VGPU_DEVICES", 1));
  if (o.devices > kMaxDevices) {
    refuse(fmt::format("VGPU_DEVICES={}: at most {}", o.devices, kMaxDevices));
  }
  const int arch = static_cast<int>(number_of("VGPU_ARCH", 90));
  o.architecture = find_architecture(arch);
  if (o.architecture == nullptr) {
    refuse(fmt::format("VGPU_ARCH={}: known are 80, 86, 89, 90, 100, 120", arch));
  }
  o.memory_bytes = static_cast<uint64_t>(number_of("VGPU_MEMORY", int64_t{8} << 30, true));
  o.order = static_cast<uint32_t>(number_of("VGPU_ORDER", 1));
  o.check = number_of("VGPU_CHECK", 1) != 0;
  o.fault = text_of("VGPU_FAULT", "");
  o.report = text_of("VGPU_REPORT", "");
  o.resources = text_of("VGPU_RESOURCES", "");
  o.run = text_of("VGPU_RUN", "");
  o.longest_delay_us = number_of("VGPU_DELAY", 200);
  o.driver_version = static_cast<int>(number_of("VGPU_DRIVER", 13000));
  o.twins = parts_of(text_of("VGPU_TWIN", ""), ':');
  o.device_program = own_folder() + "/vgpu_device";
  return o;
}

}  // namespace vgpu
