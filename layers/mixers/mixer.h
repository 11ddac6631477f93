#pragma once

#include <vector>

#include "core/config.h"
#include "core/saved.h"
#include "layers/build.h"
#include "layers/sequence.h"

namespace weft {

// What the tokens before a span leave for it, one entry per document: f32 tensors [documents, heads, ...]
// whose number and shapes are the mixer's own. No tensors: the state at the start of a document.
struct MixerState {
  std::vector<Tensor> tensors;
};

// The first half of a block: lets tokens see the tokens before them in their document.
//   x: [tokens, hidden] compute type  ->  [tokens, hidden] f32
class Mixer {
 public:
  virtual ~Mixer() = default;

  // `state`, where given, enters as before the tokens and leaves as after them.
  virtual Tensor forward(Exec& exec, const Tensor& x, const Sequence& sequence, MixerState* state,
                         SavedStack& saved) const = 0;
  // dy f32 -> dx f32; adds into the weights' gradients. `d_state`, where given, enters as the gradient of
  // the leaving state and leaves as that of the entering one.
  virtual Tensor backward(Exec& exec, const Tensor& dy, const Sequence& sequence,
                          MixerState* d_state, SavedStack& saved) const = 0;

  // Forward, multiply and add counted apart, for documents of `length` tokens.
  virtual double flops_per_token(int64_t length) const = 0;
};

struct MixerBuild : Build {
  const OptionTable& options;
};

// Options that every mixer with heads takes.
struct HeadOptions {
  int64_t heads = 0;     // must be given
  int64_t kv_heads = 0;  // 0: heads
  int64_t dk = 0;        // key width per head; 0: hidden / heads
  int64_t dv = 0;        // value width per head; 0: hidden / heads
};
void fields(FieldVisitor& f, HeadOptions& c);

// Where an option was written, for messages: "tiny.toml:12:9: model.layer.L.heads".
std::string place_of(const OptionTable& options, std::string_view key);

// Fills in the defaults and refuses what does not divide, naming the nearest thing that does.
HeadOptions resolve(const MixerBuild& build, HeadOptions options);

// Refuses a rotary width that is odd or wider than the head.
void check_rotary(const MixerBuild& build, int64_t rotary_width, int64_t head_width);

}  // namespace weft
