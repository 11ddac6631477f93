#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/memory/host_table.h"
#include "kernels/rows/rope.h"
#include "layers/context/mixer.h"
#include "layers/mixers/linear_convs.h"
#include "layers/mixers/linear_core.h"
#include "layers/mixers/linear_finish.h"
#include "layers/mixers/linear_gates.h"

namespace weft {

// Heads of each kind of rows. Gates belong to v's heads.
struct LinearHeads {
  // Groups of query heads may share keys and values.
  explicit LinearHeads(const HeadOptions& h);
  // Groups of value heads share a query and a key.
  LinearHeads(const HeadOptions& h, int64_t value_heads);

  HeadGroup q, k, v, out;
  int64_t dk, dv;
  int64_t q_width() const { return q.count * dk; }
  int64_t k_width() const { return k.count * dk; }
  int64_t v_width() const { return v.count * dv; }
  int64_t out_width() const { return out.count * dv; }
};

// Place of optional weights in the order of declaration.
enum class Weights : uint8_t { kNone, kBeforeNorm, kLast };

struct OutputGate {
  std::string name = "g_proj";
  kernels::GateActivation kind = kernels::GateActivation::kNone;
  // Not 0: low rank, a first matrix `down` [rank, hidden] before `name` [.., rank].
  int64_t rank = 0;
  std::string down = {};
};
// silu of a projection g_proj, or none.
OutputGate silu_gate(bool output_gate);

inline Weights last_if(bool wanted) { return wanted ? Weights::kLast : Weights::kNone; }
// A mixer around a linear recurrence, as data.
struct LinearSpec {
  LinearHeads heads;
  std::array<const char*, 3> rows = {"q_proj", "k_proj", "v_proj"};
  Weights convs = Weights::kNone;  // short convolutions with silu on q, k and v
  std::optional<double> rope_base = {};
  // Behind convolution and rotation, of the first kinds of rows.
  kernels::Activation map = kernels::Activation::kIdentity;
  enum class Mapped : uint8_t { kQ, kQK, kQKV } mapped = Mapped::kQK;
  LinearRule rule = {};
  LinearGates::Projected gates = LinearGates::Projected::kApart;
  Weights core_weights = Weights::kNone;
  OutputGate gate = {};
  FinishSpec finish = {};
  // Type of the gradient of the core's output: f32 where terms of it cancel.
  DType output_gradient = DType::kF32;
};

// The layer around a linear recurrence:
//   q, k, v, gate = projections of x;   q, k, v -> short convolutions -> rotation -> map
//   o = core(q, k, v, gates(x))
//   y = o_proj( norm(o) * act(gate) )
// Keys, values and gates come first, because summaries of spans depend on them; queries and the
// output gate are computed while states are exchanged between sequence ranks. The state is that of
// the recurrence and the last inputs of each convolution.
class LinearMixer final : public Mixer {
 public:
  LinearMixer(const MixerBuild& build, LinearSpec spec);

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override;
  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override;
  void finish_gradients(Exec& exec) const override { core_->finish_gradients(exec); }
  double flops_per_token(int64_t length) const override;

 private:
  struct Saved {
    Tensor x;          // the layer's input
    Tensor projected;  // [tokens, q | k | v | gates | output gate]
    Tensor rows;       // [tokens, q | k | v] after convolution and rotation; without
                       // convolutions `projected` itself
    Tensor mapped;     // the first columns of these after the map; undefined for the identity
    Tensor gate;       // output gate of low rank
    LinearGates::Saved gates;
    LinearFinish::Saved finish;
  };
  enum Kind { kQ, kK, kV, kGates };
  struct LowRankGate {
    Linear down, up;
  };

  void declare_optional(const Build& build, Weights place);
  int64_t begin(Kind kind) const;  // its columns; of kGates the end of q, k and v
  int64_t width(Kind kind) const { return begin(static_cast<Kind>(kind + 1)) - begin(kind); }
  int64_t mapped_width() const;
  View columns(const Tensor& rows, Kind kind) const {
    return rows.view().columns(begin(kind), width(kind));
  }
  View among_rows(const Tensor& projected) const;   // the gates among the projection's columns
  View output_gate(const Tensor& projected) const;  // empty where it has no columns
  CoreInputs inputs(Exec& exec, const Saved& f) const;
  // Rotation and map of queries, or of keys and values.
  void prepare(Exec& exec, const Sequence& sequence, const Saved& f, Kind first, Kind last) const;
  void rotate(Exec& exec, const Sequence& sequence, const Tensor& rows, Kind kind,
              kernels::Rope::Direction direction) const;

  LinearSpec spec_;
  DType compute_;
  int64_t hidden_;
  HostTable<float> log_decay_;
  Linear project_;
  LinearGates gates_;
  std::optional<LowRankGate> low_rank_gate_;
  LinearConvs convs_;
  std::unique_ptr<LinearCore> core_;
  std::optional<LinearFinish> finish_;
  std::optional<Linear> out_;
};

}  // namespace weft
