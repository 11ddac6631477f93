#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "core/files/safetensors.h"
#include "launcher/hf/hf_config.h"
#include "launcher/hf/tensor_map.h"

namespace weft {

// A Hugging Face folder: config.json and tensors, in one safetensors file or in several with an
// index. Files are mapped and checked completely (core/files/safetensors.h); nothing is executed,
// files outside the folder are not touched.
class HfFolder {
 public:
  struct Found {
    const SafetensorsFile* file;
    const FileTensor* tensor;
  };

  explicit HfFolder(std::string path);

  const std::string& path() const { return path_; }
  const HfConfig& config() const { return config_; }
  bool has_tensors() const { return !files_.empty(); }
  const std::map<std::string, Found>& tensors() const { return tensors_; }

  // Gives tensors that stand under another name the map's.
  void rename(const TensorMap& map);
  // ConfigError that lists what the map asks for and the folder does not hold, what it holds
  // beyond, and shapes that disagree.
  void check_against(const TensorMap& map) const;

  // The rows of a link, as f32, in the shape of the link's box.
  Tensor read(Pool& pool, const TensorLink& link) const;

 private:
  void open(const std::string& name);

  std::string path_;
  HfConfig config_;
  std::deque<SafetensorsFile> files_;
  std::map<std::string, Found> tensors_;
};

// Files beside the weights that go with a model (tokenizer, generation settings, licence): copied
// from one folder to another.
void carry_files(const std::string& from, const std::string& to);

}  // namespace weft
