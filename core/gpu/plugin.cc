#include "core/gpu/plugin.h"

#include <dlfcn.h>

#include <filesystem>

#include "core/base/error.h"

namespace weft {

Plugin::Plugin(const std::string& name) : name_("libweft_" + name + ".so") {
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  // Tests are one folder below the program.
  for (const fs::path& folder : {program.parent_path(), program.parent_path().parent_path()}) {
    if (!fs::exists(folder / name_, error)) continue;
    handle_ = dlopen((folder / name_).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) why_not_ = fmt::format("built in, but not usable here: {}", dlerror());
    return;
  }
  why_not_ = "not built in";
}

void* Plugin::symbol(const char* name) const {
  void* const found = handle_ == nullptr ? nullptr : dlsym(handle_, name);
  WEFT_CHECK(found != nullptr, "{} has no function {}", name_, name);
  return found;
}

}  // namespace weft
