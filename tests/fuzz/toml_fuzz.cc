// Any bytes as a config: refused, or a config that prints and reads back.
//
// sources: core/files/system_calls.cc core/files/regular_file.cc
// sources: core/config/config.cc core/config/config_print.cc core/config/config_read.cc
// sources: core/config/config_tree.cc core/config/run_config.cc core/config/run_config_check.cc
// sources: core/base/nearest.cc core/base/error.cc core/report/trace.cc core/files/new_file.cc
// libraries: -ltomlplusplus -lfmt
// seeds: configs
#include <cstdlib>

#include "core/base/error.h"
#include "core/config/run_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const std::string printed = weft::resolved(weft::config_from_text(text, "fuzz.toml"));
    if (weft::resolved(weft::config_from_text(printed, "printed.toml")) != printed) std::abort();
  } catch (const weft::ConfigError&) {
  }
  return 0;
}
