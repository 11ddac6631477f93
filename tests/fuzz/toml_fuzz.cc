// Any bytes as a config: refused, or a config that prints and reads back.
//
// sources: core/config.cc core/config_print.cc core/config_read.cc core/config_tree.cc
// sources: core/run_config.cc core/run_config_check.cc core/nearest.cc core/error.cc core/trace.cc core/new_file.cc
// libraries: -ltomlplusplus -lfmt
// seeds: configs
#include <cstdlib>

#include "core/error.h"
#include "core/run_config.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const std::string printed = weft::resolved(weft::config_from_text(text, "fuzz.toml"));
    if (weft::resolved(weft::config_from_text(printed, "printed.toml")) != printed) std::abort();
  } catch (const weft::ConfigError&) {
  }
  return 0;
}
