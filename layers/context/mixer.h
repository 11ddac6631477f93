#pragma once

#include <vector>

#include "core/config/config.h"
#include "core/memory/saved.h"
#include "layers/context/build.h"
#include "layers/context/feed_forward.h"
#include "layers/context/sequence.h"
#include "layers/context/state.h"

namespace weft {

// Everything that a mixer reads beside its input.
struct MixerContext {
  const Sequence& sequence;
  // Forward: enters as before the tokens, leaves as after them. Backward: enters as the gradient of
  // the leaving state, leaves as that of the entering one. Null: documents start here, and the
  // leaving state is not wanted.
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
  // dy f32, or rounded to the compute type, -> dx f32; adds into the weights' gradients.
  virtual Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                          SavedStack& saved) const = 0;

  // After the last backward of a step and the sums over stages, before all others: once for what
  // layers share.
  virtual void finish_gradients(Exec&) const {}

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

  // Once resolved, heads and kv_heads are those of this tensor rank.
  int64_t first_head = 0;  // among the layer's
  int64_t all_heads = 0;   // of the layer
  int kv_replicas =
      1;  // neighbouring ranks with the same kv heads, when those are fewer than ranks

  // Slice of a per-head vector for the heads on this rank.
  std::vector<float> here(const std::vector<float>& all) const {
    return {all.begin() + first_head, all.begin() + first_head + heads};
  }
};
void fields(FieldVisitor& f, HeadOptions& c);
// As above without kv_heads: every head has keys and values of its own.
void head_fields(FieldVisitor& f, int64_t& heads, int64_t& dk, int64_t& dv);
// Limit of heads, widths, ranks: products of two such numbers are far from overflow.
inline constexpr double kLargestExtent = 1 << 20;

// Where an option was written, for messages: "tiny.toml:12:9: model.layer.L.heads".
std::string place_of(const OptionTable& options, std::string_view key);

// Fills in the defaults, refuses what does not divide, naming the nearest thing that does, and cuts
// the heads over the tensor ranks. kFromHidden: the mixer has no dk and dv to set.
enum class HeadWidths : uint8_t { kOptions, kFromHidden };
HeadOptions resolve(const MixerBuild& build, HeadOptions options,
                    HeadWidths widths = HeadWidths::kOptions);

// This tensor rank's part of `count` things (channels, heads) that the option `key` sets: all ranks
// hold as many.
int64_t cut_evenly(const MixerBuild& build, std::string_view key, int64_t count);

// Refuses a rotary width that is odd or wider than the head. kAlways: the mixer has no rope to
// switch off.
enum class Rotates : uint8_t { kOption, kAlways };
void check_rotary(const MixerBuild& build, int64_t rotary_width, int64_t head_width,
                  Rotates rotates = Rotates::kOption);

}  // namespace weft
