#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/parameter.h"

namespace weft {

// What a checkpoint folder holds. Readers trust the manifest, which carries its own hash, and
// nothing else: files are compared with it before anything of them is used.
struct Manifest {
  struct File {
    std::string name;  // inside the folder
    int64_t bytes = 0;
    std::string blocks;  // the hashes of its blocks, one after the other (core/files/hash.h)
  };
  struct Piece {         // one box of one tensor
    std::string tensor;  // "parameters/embed.weight", "adam/m/embed.weight"
    std::string file, dataset;
    Shape global;
    Slice slice;
    int64_t position = 0;   // of its first byte in the file
    std::string hash = {};  // of its bytes: f32, little endian, row by row
  };

  std::string run = {};  // of which run it is (core/report/run_record.h); empty: not known
  int64_t step = 0;      // steps taken
  int64_t samples = 0;   // sequences consumed
  int64_t updates = 0;   // optimizer updates (steps that were not skipped)
  int64_t skipped = 0;   // steps in a row, up to this one, that were
  int64_t seed = 0;
  std::string config = {};                       // resolved, as TOML
  std::map<std::string, std::string> data = {};  // file -> hash
  std::map<std::string, int64_t> layout = {};    // of the run that wrote it
  std::vector<File> files = {};
  std::vector<Piece> pieces = {};
  std::vector<File> others = {};  // what goes with the model: tokenizer.json
  File index = {};                // the same tensors joined for readers with HDF5; we never open it
};

int64_t bytes_of(const Manifest::Piece& piece);
std::string hash_of(const Manifest::File& file);  // of the whole file
const Manifest::File* other_file(const Manifest& manifest, const std::string& name);

// A checkpoint that is not what was written: bytes are missing or others. The one before it may be
// used instead, which other failures (no right to read, no memory) are no reason for.
class Damage : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

// A manifest that is whole, and of a version that this program does not read: no damage, and no
// reason to take an older checkpoint instead.
class OtherVersion : public ConfigError {
 public:
  using ConfigError::ConfigError;
};

std::string to_json(const Manifest& manifest);

// Throws OtherVersion, and Damage for text that is not a whole manifest: damaged, with names that
// lead out of the folder, boxes outside their tensor or their file, tensors that the boxes do not
// cover exactly once, or boxes that claim more bytes than their files have (so that memory is
// bounded by the files' sizes).
Manifest manifest_from_json(const std::string& text, const std::string& path);

}  // namespace weft
