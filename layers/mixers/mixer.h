#pragma once

#include <vector>

#include "core/config.h"
#include "core/saved.h"
#include "layers/build.h"
#include "layers/feed_forward.h"
#include "layers/sequence.h"
#include "layers/state.h"

namespace weft {

// What a mixer sees beside its input.
struct MixerContext {
  const Sequence& sequence;
  // Forward: enters as before the tokens, leaves as after them. Backward: enters as the gradient of
  // the leaving state, leaves as that of the entering one. Null: documents start here and nobody
  // asks.
  MixerState* state = nullptr;
  StepContext* step = nullptr;  // null outside training

  State* part(std::string_view name) const { return part_of(state, name); }
};
// The part of a mixer's state that its recurrence carries, and that golden files hold.
inline constexpr std::string_view kRecurrence = "recurrence";

// The first half of a block: lets tokens see the tokens before them in their document.
//   x: [tokens, hidden] compute type  ->  [tokens, hidden] f32
class Mixer {
 public:
  virtual ~Mixer() = default;

  virtual Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                         SavedStack& saved) const = 0;
  // dy f32 -> dx f32; adds into the weights' gradients.
  virtual Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                          SavedStack& saved) const = 0;

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
