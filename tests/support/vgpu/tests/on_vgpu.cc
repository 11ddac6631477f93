#include "tests/support/vgpu/tests/on_vgpu.h"

#include <filesystem>

namespace weft::test {
namespace {

std::filesystem::path build_folder() { return std::filesystem::path(weft_program()).parent_path(); }

}  // namespace

std::string vgpu_program(const std::string& name) { return build_folder() / "vgpu" / name; }

Outcome on_vgpu(const std::vector<std::string>& command,
                const std::vector<std::string>& environment) {
  std::vector<std::string> words{"VGPU_BUILD=" + build_folder().string(),
                                 "VGPU_TWIN=" + vgpu_program("tests/checked/libapp.so") + ":" +
                                     vgpu_program("checked/libweft.so")};
  words.insert(words.end(), environment.begin(), environment.end());
  words.push_back(in_project("tests/support/vgpu/run"));
  words.insert(words.end(), command.begin(), command.end());
  return Program("/usr/bin/env", words).wait();
}

Outcome run_case(const std::string& name, const std::vector<std::string>& environment) {
  return on_vgpu({vgpu_program("vgpu_app"), name}, environment);
}

}  // namespace weft::test
