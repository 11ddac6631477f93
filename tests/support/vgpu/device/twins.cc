#include "tests/support/vgpu/device/twins.h"

#include <dlfcn.h>
#include <link.h>

#include <fmt/format.h>

#include <stdexcept>

extern "C" void* __tls_get_addr(void*);  // of the loader

namespace vgpu {
namespace {

// Kernels that the library being loaded has registered.
std::vector<TwinKernel>& newcomers() {
  static std::vector<TwinKernel> kernels;
  return kernels;
}

struct Search {
  ElfW(Addr) base;
  TwinImage* image;
};

// Segments of the library at a base address. Its thread-local block holds the __shared__ variables
// of its kernels; it is made here so that its place is known before a kernel runs.
int find_segments(dl_phdr_info* info, size_t, void* data) {
  auto* search = static_cast<Search*>(data);
  if (info->dlpi_addr != search->base) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    const auto* begin = reinterpret_cast<const std::byte*>(info->dlpi_addr + segment.p_vaddr);
    if (segment.p_type == PT_LOAD) search->image->segments.push_back({begin, segment.p_memsz});
    if (segment.p_type == PT_TLS) {
      size_t index[2] = {info->dlpi_tls_modid, 0};
      search->image->static_shared = {static_cast<std::byte*>(__tls_get_addr(index)),
                                      segment.p_memsz};
    }
  }
  return 1;
}

}  // namespace

void add_twin_kernel(const TwinKernel& kernel) { newcomers().push_back(kernel); }

Twins::Twins(const std::vector<std::string>& paths) {
  for (const std::string& path : paths) load(path);
}

void Twins::load(const std::string& path) {
  newcomers().clear();
  // Lazily: launching code of the host is in the twins too, and what it calls is not here.
  void* library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(fmt::format("twin library: {}", dlerror()));
  images_.push_back(std::make_unique<TwinImage>());
  const link_map* map = nullptr;
  dlinfo(library, RTLD_DI_LINKMAP, &map);
  Search search{map->l_addr, images_.back().get()};
  dl_iterate_phdr(find_segments, &search);
  for (const TwinKernel& kernel : newcomers()) {
    Dl_info info{};
    dladdr(kernel.function, &info);
    if (info.dli_saddr != kernel.function) continue;  // it has no name outside its file
    kernels_.push_back({info.dli_sname, kernel, search.image});
  }
}

}  // namespace vgpu
