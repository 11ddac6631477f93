#pragma once

#include <string>

#include "launcher/app/runtime.h"
#include "launcher/checkpoint/checkpoint_lookup.h"
#include "launcher/hf/folder.h"

namespace weft {

// A Hugging Face folder seen as a Weft model; everything but the numbers is checked.
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
  FileDtype dtype = FileDtype::kAsImported;  // of a model that was not imported: as trained
  int64_t shard_bytes = int64_t{5} << 30;
};
struct ExportReport {
  std::string family;
  int64_t tensors = 0, files = 0;
};
// Writes a new folder, tensor by tensor. `asked` is the path the user gave: files that came with an
// imported model are looked for beside it and beside what the run started from.
ExportReport export_model(Runtime& runtime, const std::string& asked, const std::string& folder,
                          const ExportOptions& options);

// What an import keeps of a folder, in "hf" of the folder it wrote.
inline constexpr const char* kCarried = "hf";
inline constexpr const char* kTypesFile = "weft_tensor_types.json";

}  // namespace weft
