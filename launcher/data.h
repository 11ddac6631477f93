#pragma once

#include <CLI/CLI.hpp>

namespace weft {

// weft data build | inspect | check
void add_data(CLI::App& app);

}  // namespace weft
