#include <filesystem>
#include <fstream>
#include <map>

#include "launcher/data/tokenizer_files.h"
#include "launcher/hf/convert.h"
#include "launcher/hf/family.h"
#include "layers/model_stage.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_write.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

void count(ImportPlan& plan) {
  const MoeConfig& moe = plan.config.model.moe;
  for (const Parameter& p : plan.weights.all()) {
    if (p.spec.buffer) continue;
    const int64_t elements = p.spec.global.elements();
    plan.parameters += elements;
    plan.active += p.spec.expert ? elements / moe.experts * moe.active : elements;
  }
}

// Stores the type of each tensor, so that an export gives the same bits: the most frequent type,
// and the tensors with another one.
void write_types(const HfFolder& from, const std::string& path) {
  std::map<std::string, int64_t> counts;
  for (const auto& [name, found] : from.tensors()) ++counts[found.tensor->type_name];
  std::string usual = "F32";
  for (const auto& [type, n] : counts) {
    if (!counts.contains(usual) || n > counts[usual]) usual = type;
  }
  nlohmann::json types = {{"usual", usual}, {"others", nlohmann::json::object()}};
  for (const auto& [name, found] : from.tensors()) {
    if (found.tensor->type_name != usual) types["others"][name] = found.tensor->type_name;
  }
  std::ofstream file(path);
  file << types.dump(1) << "\n";
  if (!file.flush()) throw Error("{}: cannot be written", path);
}

void check_types(const HfFolder& from, const std::vector<TensorLink>& links) {
  for (const TensorLink& link : links) {
    const FileTensor& tensor = *from.tensors().at(link.hf).tensor;
    if (tensor.type == FileType::kF32 || tensor.type == FileType::kBF16 ||
        tensor.type == FileType::kF16) {
      continue;
    }
    throw ConfigError(
        "{}: tensor {} is {}; Weft reads F32, F16 and BF16 "
        "(a quantized model must be saved unquantized first)",
        from.path(), link.hf, tensor.type_name);
  }
}

// Reads tensors on demand, one in memory at a time.
std::string write_checkpoint(Pool& pool, const HfFolder& from, ImportPlan& plan,
                             const std::string& checkpoints, Manifest manifest,
                             const OtherFiles& others) {
  std::vector<SavedTensor> tensors;
  int64_t bytes = 0;
  for (const TensorLink& link : plan.links) {
    const Shape& global = plan.weights.find(link.weft)->spec.global;
    tensors.push_back({"parameters/" + link.weft, global, {link.box}, {}});
    bytes += link.box.extent.elements() * size_of(DType::kF32);
  }
  auto next = plan.links.begin();
  const BringTensor bring = [&](SavedTensor& t) { t.local = from.read(pool, *next++); };
  const std::string beside = begin_writing(checkpoints, manifest.step, bytes);
  try {
    const Manifest written = write_part(beside, 0, manifest.step, tensors, {.bring = bring});
    manifest.files = written.files;
    manifest.pieces = written.pieces;
    write_others(beside, others, manifest);
    return publish_checkpoint(checkpoints, manifest, 0).path;
  } catch (...) {
    abandon_writing(checkpoints, manifest.step);
    throw;
  }
}

}  // namespace

std::unique_ptr<ImportPlan> plan_import(HfFolder& from) {
  const Family& family = family_of(from.config());
  auto plan = std::make_unique<ImportPlan>();
  plan->family = family.name;
  plan->config.model = family.read(from.config());
  validate(plan->config);
  const ModelStage model(plan->config.model, Recompute::kNone, DType::kF32, plan->weights);
  TensorMap map(plan->weights);
  family.map(plan->config.model, map);
  map.check();
  count(*plan);
  if (from.has_tensors()) {
    from.rename(map);
    from.check_against(map);
    check_types(from, map.links());
  }
  plan->links = map.links();
  return plan;
}

std::string import_model(Runtime& runtime, HfFolder& from, const std::string& folder) {
  const std::unique_ptr<ImportPlan> plan = plan_import(from);
  if (!from.has_tensors()) {
    throw ConfigError("{}: contains no *.safetensors; Weft reads no other format of weights",
                      from.path());
  }
  if (fs::exists(folder) && !fs::is_empty(folder)) {
    throw ConfigError("{}: is not empty; name a new folder", folder);
  }
  Config& config = plan->config;
  const std::string carried = folder + "/" + kCarried;
  carry_files(from.path(), carried);
  write_types(from, carried + "/" + kTypesFile);
  if (fs::exists(carried + "/tokenizer.json")) config.data.tokenizer = carried + "/tokenizer.json";
  Manifest manifest;
  manifest.config = resolved(config);
  const std::string path =
      write_checkpoint(runtime.pool(), from, *plan, checkpoint_folder(folder), std::move(manifest),
                       tokenizer_file(config.data.tokenizer));
  config.run.init = folder;
  config.run.dir = folder + "/run";
  std::ofstream file(folder + "/config.toml");
  file << resolved(config);
  if (!file.flush()) throw Error("{}/config.toml: cannot be written", folder);
  return path;
}

}  // namespace weft
