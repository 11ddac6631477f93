#include <filesystem>
#include <fstream>
#include <map>

#include "core/host_access.h"
#include "launcher/hf/convert.h"
#include "launcher/hf/family.h"
#include "layers/model_stage.h"
#include "parallel/checkpoint/checkpoint_reader.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

// The folder of files that accompany an imported model: next to the checkpoint, or next to the
// initial checkpoint of its run. Empty when there is none.
std::string carried_with(const std::string& path, const std::string& init) {
  for (const std::string& start : {path, init}) {
    if (start.empty()) continue;
    fs::path folder = fs::absolute(start).lexically_normal();
    for (int up = 0; up < 5 && !folder.empty(); ++up, folder = folder.parent_path()) {
      if (fs::exists(folder / kCarried / kTypesFile)) return (folder / kCarried).string();
    }
  }
  return "";
}

// Types of tensors in the imported folder.
class Types {
 public:
  Types(const std::string& carried, FileDtype asked, const std::string& precision)
      : usual_(precision == "f32" ? "F32" : "BF16") {
    if (asked != FileDtype::kAsImported) {
      usual_ = asked == FileDtype::kF32 ? "F32" : asked == FileDtype::kF16 ? "F16" : "BF16";
    } else if (!carried.empty()) {
      const HfConfig file = HfConfig::load(carried + "/" + kTypesFile);
      usual_ = file.text("usual", usual_);
      others_ = file.table("others").json();
    }
  }
  const std::string& usual() const { return usual_; }
  std::string of(const std::string& tensor) const { return others_.value(tensor, usual_); }

 private:
  std::string usual_;
  nlohmann::json others_ = nlohmann::json::object();
};

SafetensorsWriter::Entry entry_of(const std::string& name, const Shape& shape,
                                  const std::string& type) {
  return {name, type == "F32" ? DType::kF32 : DType::kBF16, shape, type == "F16"};
}

Tensor in_file_type(Pool& pool, const Tensor& f32, const SafetensorsWriter::Entry& entry) {
  if (entry.dtype == DType::kF32) return f32;
  const Tensor out = Tensor::empty(pool, f32.shape(), DType::kBF16, Label::kParameters);
  const float* from = host<float>(f32);
  bf16* to = host<bf16>(out);
  for (int64_t i = 0; i < f32.elements(); ++i) {
    to[i] = entry.half ? bf16{float_to_half(from[i])} : to_bf16(from[i]);
  }
  return out;
}

// Assembles a folder's tensors from a checkpoint's.
class Collector {
 public:
  Collector(Runtime& runtime, const FoundCheckpoint& from, const TensorMap& map)
      : pool_(runtime.pool()), reader_(from), map_(map) {
    for (const TensorLink& link : map.links()) links_[link.hf].push_back(&link);
  }

  Tensor collect(const std::string& name) {
    const Shape& shape = map_.tensors().at(name);
    const std::vector<const TensorLink*>& links = links_.at(name);
    if (links.size() == 1 && links[0]->rows.count == 1) return read(*links[0]).reshaped(shape);
    const Tensor out = Tensor::empty(pool_, shape, DType::kF32, Label::kParameters);
    const int64_t width = shape.elements() / shape[0];
    for (const TensorLink* link : links) {
      const Tensor box = read(*link);
      const RowRuns& rows = link->rows;
      for (int64_t i = 0; i < rows.count; ++i) {
        std::copy_n(host<float>(box) + i * rows.run * width, rows.run * width,
                    host<float>(out) + (rows.begin + i * rows.stride) * width);
      }
    }
    return out;
  }

 private:
  Tensor read(const TensorLink& link) {
    const Tensor box = Tensor::empty(pool_, link.box.extent, DType::kF32, Label::kParameters);
    reader_.read({"parameters/" + link.weft, map_.shape_of(link.weft), {link.box}, box});
    return box;
  }

  Pool& pool_;
  CheckpointReader reader_;
  const TensorMap& map_;
  std::map<std::string, std::vector<const TensorLink*>> links_;
};

// Tensors of each file; files exceed the limit only for a single larger tensor.
std::vector<std::vector<SafetensorsWriter::Entry>> shards_of(const TensorMap& map,
                                                             const Types& types, int64_t limit) {
  std::vector<std::vector<SafetensorsWriter::Entry>> shards(1);
  int64_t filled = 0;
  for (const std::string& name : map.order()) {
    const auto entry = entry_of(name, map.tensors().at(name), types.of(name));
    const int64_t bytes = entry.shape.elements() * size_of(entry.dtype);
    if (filled > 0 && filled + bytes > limit) {
      shards.emplace_back();
      filled = 0;
    }
    shards.back().push_back(entry);
    filled += bytes;
  }
  return shards;
}

void write_text_file(const std::string& path, const std::string& text) {
  NewFile file(path);
  file.write(text.data(), static_cast<int64_t>(text.size()));
  file.finish();
}

void write_tensors(Pool& pool, Collector& from, const std::string& folder,
                   const std::vector<std::vector<SafetensorsWriter::Entry>>& shards) {
  nlohmann::json index = {{"metadata", {}}, {"weight_map", nlohmann::json::object()}};
  int64_t bytes = 0;
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name =
        shards.size() == 1 ? "model.safetensors"
                           : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
    SafetensorsWriter writer(folder + "/" + name, {{"format", "pt"}}, shards[i]);
    for (const auto& entry : writer.order()) {
      writer.write(in_file_type(pool, from.collect(entry.name), entry));
      index["weight_map"][entry.name] = name;
      bytes += entry.shape.elements() * size_of(entry.dtype);
    }
    writer.finish();
  }
  if (shards.size() == 1) return;
  index["metadata"]["total_size"] = bytes;
  write_text_file(folder + "/model.safetensors.index.json", index.dump(2) + "\n");
}

// The imported config.json if it still describes the model, else one of a class that represents it
// completely.
Exported describe(const ModelConfig& model, const std::string& carried) {
  if (!carried.empty() && fs::exists(carried + "/config.json")) {
    const HfConfig before = HfConfig::load(carried + "/config.json");
    const Family& family = family_of(before);
    if (same_model(family.read(before), model)) {
      const MappedFile file(before.path());
      return {&family,
              before.json(),
              {reinterpret_cast<const char*>(file.data()), static_cast<size_t>(file.size())}};
    }
  }
  return family_for(model);
}

void name_type(nlohmann::json& config, const std::string& type) {
  const char* name = type == "F32" ? "float32" : type == "F16" ? "float16" : "bfloat16";
  if (config.contains("dtype")) config["dtype"] = name;
  if (config.contains("torch_dtype") || !config.contains("dtype")) config["torch_dtype"] = name;
}

ExportReport export_from(Runtime& runtime, const FoundCheckpoint& from, const std::string& folder,
                         const ExportOptions& options) {
  const Config config = config_from_text(from.manifest.config, from.path);
  const std::string carried = carried_with(from.path, config.run.init);
  Exported as = describe(config.model, carried);
  const Types types(carried, options.dtype, config.train.precision);

  ParameterStore weights;
  const ModelStage model(config.model, Recompute::kNone, DType::kF32, weights);
  TensorMap map(weights);
  as.family->map(config.model, map);
  map.check();

  fs::create_directories(folder);
  if (!carried.empty()) {
    carry_files(carried, folder);
    fs::remove(folder + "/config.json");
    fs::remove(folder + "/" + kTypesFile);
  }
  Collector collector(runtime, from, map);
  const auto shards = shards_of(map, types, options.shard_bytes);
  write_tensors(runtime.pool(), collector, folder, shards);
  if (as.text.empty() || options.dtype != FileDtype::kAsImported) {
    name_type(as.config, types.usual());
    as.text = as.config.dump(2) + "\n";
  }
  write_text_file(folder + "/config.json", as.text);  // last: its presence marks a complete folder
  return {as.family->name, static_cast<int64_t>(map.order().size()),
          static_cast<int64_t>(shards.size())};
}

}  // namespace

ExportReport export_model(Runtime& runtime, const std::string& asked, const std::string& folder,
                          const ExportOptions& options) {
  if (fs::exists(folder) && (!fs::is_directory(folder) || !fs::is_empty(folder))) {
    throw ConfigError("{}: is not empty; name a new folder", folder);
  }
  ExportReport report;
  const FoundCheckpoint used = use_checkpoint(asked, [&](const FoundCheckpoint& from) {
    try {
      report = export_from(runtime, from, folder, options);
    } catch (...) {  // removes an incomplete folder, which would block the next export
      fs::remove_all(folder);
      throw;
    }
  });
  say_taken(used);
  return report;
}

}  // namespace weft
