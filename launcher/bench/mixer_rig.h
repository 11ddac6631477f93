#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/app/runtime.h"
#include "layers/context/mixer.h"

namespace weft {

// Size of a mixer in terms common to all. A mixer without `dk` and `dv` gets the equivalent:
// channels heads x dv, a state of dk numbers, or a hidden width of heads x dk.
struct MixerChoice {
  std::string mixer;
  DType dtype = DType::kF32;
  int64_t heads = 8;
  int64_t dk = 0;  // 0: 128, or 16 for rebased, whose state has dk (dk + 1) / 2 rows
  int64_t dv = 128, hidden = 64;
  std::vector<std::string> set;  // further options, as TOML
};

// Documents of equal length, with inputs and output gradients of a mixer.
struct MixerInputs {
  int64_t length = 0;
  Sequence sequence;
  Tensor x, dy;
};

// A single token mixer, as measured by `weft bench mixer`.
class MixerRig {
 public:
  MixerRig(Runtime& runtime, MixerChoice choice);

  const std::string& name() const { return choice_.mixer; }
  nlohmann::json widths() const;  // heads, dk and dv of this mixer, and hidden
  MixerInputs inputs(int64_t length, int64_t documents) const;

  struct Sample {
    double forward = 0, backward = 0;  // seconds of the core, without projections
    double layer = 0;                  // seconds of the whole layer
    double flops = 0;                  // FLOPs of the core's forward
    int64_t bytes_saved = 0;           // from forward to backward
    std::string programs;
    std::vector<PruningReport> pruning;

    double both() const { return forward + backward; }
    // Pruned share of the causal blocks; `out` gets `pruned` and `pruned_by_head` if the mixer
    // prunes.
    double pruned_share(nlohmann::json& out) const;
  };
  Sample run(const MixerInputs& inputs, ChunkStates states) const;

  // Seconds of each of `tokens` tokens after `length` of them, and the bytes of their states.
  struct Decoded {
    std::vector<double> seconds;
    int64_t state_bytes = 0;
  };
  Decoded decode(int64_t length, int64_t tokens) const;

 private:
  Tensor normal(std::string_view name, Shape shape, DType dtype) const;

  Runtime& runtime_;
  MixerChoice choice_;
  ParameterStore store_;
  std::unique_ptr<Mixer> mixer_;
};

bool mixer_takes(const std::string& mixer, const std::string& option);
int64_t default_key_width(const std::string& mixer);

}  // namespace weft
