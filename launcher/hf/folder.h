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
// index. Files are mapped and fully checked (core/files/safetensors.h); no code is executed and no
// file outside the folder is read.
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

  // Renames tensors with alternative names to the map's names.
  void rename(const TensorMap& map);
  // ConfigError that lists missing tensors, unexpected tensors and shapes that differ from the map.
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

// Copies the accompanying files of a model (tokenizer, generation settings, licence).
void carry_files(const std::string& from, const std::string& to);

}  // namespace weft
