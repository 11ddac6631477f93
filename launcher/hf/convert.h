#pragma once

#include <string>

#include "launcher/app/runtime.h"
#include "launcher/checkpoint/checkpoint_lookup.h"
#include "launcher/hf/folder.h"

namespace weft {

// A Hugging Face folder read as a Weft model; checked except for the values of weights.
struct ImportPlan {
  std::string family;
  Config config;
  ParameterStore weights;  // declared, not allocated
  int64_t parameters = 0, active = 0;
  std::vector<TensorLink> links;
};
std::unique_ptr<ImportPlan> plan_import(HfFolder& from);

// Writes step 0 of a folder of checkpoints, a config that trains it, and a folder "hf" with the
// files that go with the model; returns the checkpoint's path. Reads tensor by tensor.
std::string import_model(Runtime& runtime, HfFolder& from, const std::string& folder);

enum class FileDtype : uint8_t { kAsImported, kF32, kF16, kBF16 };
struct ExportOptions {
  FileDtype dtype = FileDtype::kAsImported;  // for a model that was not imported: as trained
  int64_t shard_bytes = int64_t{5} << 30;
};
struct ExportReport {
  std::string family;
  int64_t tensors = 0, files = 0;
};
// Writes a new folder, tensor by tensor. `asked` is the user's path: files that accompany an
// imported model are searched in its folder and in that of the run's initial checkpoint.
ExportReport export_model(Runtime& runtime, const std::string& asked, const std::string& folder,
                          const ExportOptions& options);

// Subfolder in which an import stores accompanying files.
inline constexpr const char* kCarried = "hf";
inline constexpr const char* kTypesFile = "weft_tensor_types.json";

}  // namespace weft
