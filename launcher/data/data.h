#pragma once

#include <CLI/CLI.hpp>

namespace weft {

// weft data build | inspect | check | recall
void add_data(CLI::App& app);
void add_data_recall(CLI::App& data);  // launcher/eval/eval_recall.cc

}  // namespace weft
