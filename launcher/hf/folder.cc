#include "launcher/hf/folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/files/safetensors_header.h"
#include "core/host_access.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
constexpr const char* kIndex = "model.safetensors.index.json";

// "3 tensors: a, b, c" with at most ten names.
std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kMost = 10;
  const std::vector<std::string> some(
      names.begin(), names.begin() + static_cast<int64_t>(std::min(kMost, names.size())));
  return fmt::format("{} tensor{}: {}{}", names.size(), names.size() == 1 ? "" : "s",
                     fmt::join(some, ", "), names.size() > kMost ? ", ..." : "");
}

// Allows only plain file names, inside the folder.
void check_plain(const std::string& index, const std::string& name) {
  if (name.find('/') == std::string::npos && name.ends_with(".safetensors")) return;
  throw ConfigError(
      "{}: names the file {}; files of an index need plain names that end in .safetensors", index,
      printable(name));
}

std::vector<std::string> safetensors_in(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.ends_with(".safetensors")) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string config_in(const std::string& folder) {
  if (!fs::is_directory(folder)) {
    throw ConfigError("{}: is not a folder; name one with config.json and *.safetensors", folder);
  }
  if (!fs::exists(folder + "/config.json")) {
    throw ConfigError("{}: contains no config.json; name a Hugging Face folder", folder);
  }
  return folder + "/config.json";
}

}  // namespace

HfFolder::HfFolder(std::string path)
    : path_(std::move(path)), config_(HfConfig::load(config_in(path_))) {
  const std::string index_path = path_ + "/" + kIndex;
  if (!fs::exists(index_path)) {
    const std::vector<std::string> names = safetensors_in(path_);
    if (names.size() > 1) {
      throw ConfigError(
          "{}: contains {} safetensors files but no {}, which lists those of the model", path_,
          names.size(), kIndex);
    }
    for (const std::string& name : names) open(name);
    return;
  }
  const HfConfig index = HfConfig::load(index_path);
  const HfConfig map = index.table("weight_map");
  std::set<std::string> names;
  for (const auto& [tensor, ignored] : map.json().items()) {
    const std::string file = map.text(tensor, "");
    check_plain(index_path, file);
    names.insert(file);
  }
  for (const std::string& name : names) open(name);
  for (const auto& [tensor, found] : tensors_) {
    const std::string file = fs::path(found.file->path()).filename().string();
    if (map.text(tensor, "") == file) continue;
    throw ConfigError("{}: tensor {} is in {}, but the index names {}", index_path,
                      printable(tensor), file, map.has(tensor) ? map.text(tensor, "") : "no file");
  }
  std::vector<std::string> absent;
  for (const auto& [tensor, ignored] : map.json().items()) {
    if (!tensors_.contains(tensor)) absent.push_back(tensor);
  }
  if (!absent.empty()) throw ConfigError("{}: no file contains {}", index_path, listed(absent));
}

void HfFolder::open(const std::string& name) {
  if (!fs::exists(path_ + "/" + name)) {
    throw ConfigError("{}/{}: names the file {}, which does not exist", path_, kIndex, name);
  }
  const SafetensorsFile& file = files_.emplace_back(path_ + "/" + name);
  for (const FileTensor& tensor : file.tensors()) {
    if (tensors_.emplace(tensor.name, Found{&file, &tensor}).second) continue;
    throw ConfigError("{}: tensor {} is in two files; the second is {}", path_,
                      printable(tensor.name), name);
  }
}

void HfFolder::rename(const TensorMap& map) {
  for (const auto& [name, other] : map.other_names()) {
    const auto found = tensors_.find(other);
    if (found == tensors_.end() || tensors_.contains(name)) continue;
    tensors_.emplace(name, found->second);
    tensors_.erase(other);
  }
}

void HfFolder::check_against(const TensorMap& map) const {
  std::vector<std::string> missing, unexpected, wrong;
  for (const std::string& name : map.order()) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      missing.push_back(name);
    } else if (!(found->second.tensor->shape == map.tensors().at(name))) {
      wrong.push_back(fmt::format("{} is {}, {} requires {}", name, found->second.tensor->shape,
                                  "config.json", map.tensors().at(name)));
    }
  }
  for (const auto& [name, found] : tensors_) {
    if (!map.tensors().contains(name) && !map.ignores(name)) unexpected.push_back(name);
  }
  std::string problem;
  if (!missing.empty()) problem += fmt::format("\n  missing {}", listed(missing));
  if (!unexpected.empty()) problem += fmt::format("\n  not of this model {}", listed(unexpected));
  if (!wrong.empty()) problem += fmt::format("\n  of another shape {}", listed(wrong));
  if (!problem.empty()) {
    throw ConfigError("{}: tensors do not match config.json:{}", path_, problem);
  }
}

Tensor HfFolder::read(Pool& pool, const TensorLink& link) const {
  const auto& [file, tensor] = tensors_.at(link.hf);
  const Tensor out = Tensor::empty(pool, link.box.extent, DType::kF32, Label::kParameters);
  const int64_t rows = tensor->shape.dims() == 0 ? 1 : tensor->shape[0];
  if (link.rows.rows() == rows && link.rows.count == 1) {
    file->read_into(*tensor, out);
    return out;
  }
  const Tensor all = file->read(pool, *tensor, DType::kF32);
  const int64_t width = tensor->shape.elements() / rows, run = link.rows.run * width;
  for (int64_t i = 0; i < link.rows.count; ++i) {
    std::copy_n(host<float>(all) + (link.rows.begin + i * link.rows.stride) * width, run,
                host<float>(out) + i * run);
  }
  return out;
}

void carry_files(const std::string& from, const std::string& to) {
  constexpr uintmax_t kLargest = 256 << 20;
  fs::create_directories(to);
  for (const auto& entry : fs::directory_iterator(from)) {
    const std::string name = entry.path().filename().string();
    const std::string end = entry.path().extension().string();
    const bool text = end == ".json" || end == ".txt" || end == ".model" || end == ".jinja" ||
                      end == ".md" || name == "LICENSE" || name == "NOTICE";
    if (!text || name == kIndex || !entry.is_regular_file() || entry.file_size() > kLargest)
      continue;
    fs::copy_file(entry.path(), to + "/" + name, fs::copy_options::overwrite_existing);
  }
}

}  // namespace weft
