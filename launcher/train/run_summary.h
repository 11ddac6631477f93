#pragma once

#include <string>

#include "launcher/app/runtime.h"
#include "launcher/train/run_data.h"
#include "launcher/train/trainer.h"

namespace weft {

// Parameters of a model by part, for the start page and run.json.
struct ParameterCount {
  int64_t embedding = 0, mixers = 0, experts = 0, shared = 0, routers = 0, dense = 0, norms = 0;
  int64_t total = 0;
  int64_t active = 0;  // that touch one token
};
ParameterCount count_parameters(const Config& config, const std::vector<ParameterSpec>& model);

// What a person wants to see before the first step: config, model, layout, memory, where the run
// writes.
std::string start_page(const Config& config, const ModelOutline& model, Runtime& runtime,
                       const RunData& data, double flops_per_step);

}  // namespace weft
