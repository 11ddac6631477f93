#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/app/runtime.h"
#include "layers/context/mixer.h"

namespace weft {

// What to build, in words that all mixers share. A mixer that has no `dk` and `dv` gets what means
// the same there: channels heads x dv, a state of dk numbers, or a hidden width of heads x dk.
struct MixerChoice {
  std::string mixer;
  DType dtype = DType::kF32;
  int64_t heads = 8;
  int64_t dk = 0;  // 0: 128, or 16 for rebased, whose state has dk (dk + 1) / 2 rows
  int64_t dv = 128, hidden = 64;
  std::vector<std::string> set;  // further options, as TOML
};

// Documents of equal length, and what goes through a mixer forward and backward.
struct MixerInputs {
  int64_t length = 0;
  Sequence sequence;
  Tensor x, dy;
};

// One token mixer by itself: what `weft bench mixer` measures.
class MixerRig {
 public:
  MixerRig(Runtime& runtime, MixerChoice choice);

  const std::string& name() const { return choice_.mixer; }
  nlohmann::json widths() const;  // heads, dk, dv as they are in this mixer, and hidden
  MixerInputs inputs(int64_t length, int64_t documents) const;

  struct Sample {
    double forward = 0, backward = 0;  // seconds of the core, without projections
    double layer = 0;                  // and of everything
    double flops = 0;                  // of the core's forward
    int64_t bytes_saved = 0;           // from forward to backward
    std::string programs;
    std::vector<PruningReport> pruning;

    double both() const { return forward + backward; }
    // What pruning left out, of the blocks that causality leaves; `out` gets `pruned` and
    // `pruned_by_head` where something prunes.
    double pruned_share(nlohmann::json& out) const;
  };
  Sample run(const MixerInputs& inputs, ChunkStates states) const;

  // Seconds of each of `tokens` tokens after `length` of them, and the bytes carried for them.
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
