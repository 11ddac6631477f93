#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layers/basic/linear.h"

namespace weft {

// Heads as tensor ranks share them: `unit` neighbouring ones stay together, `replicas` neighbouring
// ranks hold the same ones.
struct HeadGroup {
  int64_t count = 0;  // on this rank
  int64_t unit = 1;
  int replicas = 1;

  Linear::Part part(const std::string& name, int64_t width) const {
    return {.name = name, .rows = count * width, .unit = unit * width, .replicas = replicas};
  }
  Split split(int64_t width) const {
    return {.dim = 0, .axis = Axis::kTensor, .replicas = replicas, .unit = unit * width};
  }
};

// A gate: numbers per head and token that a recurrence reads beside q, k and v, from a projection
// of x. Computed in f32 from their projection on: decays are exponents, and their gradients sums
// over all tokens in which much cancels.
struct GateSpec {
  enum class Map : uint8_t {
    kPlain,
    kSigmoid,     // factor * sigmoid(z)
    kLogSigmoid,  // max(logsigmoid(z) / factor, floor)
    kHeadDecay,   // -e^{A_log} softplus(z + dt_bias), A_log per head
    kCapped,      // factor * tanh(z / factor)
  };
  enum class Bias : uint8_t {
    kNone,
    kOfProjection,
    kExact,  // gradient summed in f32: little is left of terms that cancel
  };
  std::string name;   // of the projection's weight
  size_t slot = 0;    // place among the gates of the core
  int64_t width = 1;  // numbers per head
  Map map = Map::kPlain;
  float factor = 1.0f;
  float floor = -3.0e38f;
  Init init = Init::normal(kInitDeviation);
  Bias bias = Bias::kNone;
  Init bias_init = Init::zeros();
  // Low rank: a first matrix `down` [rank, hidden] stands before `name` [.., rank].
  int64_t rank = 0;
  std::string down = {};
  Init down_init = Init::normal(kInitDeviation);
  // Columns of the mixer's own projection behind v, instead of a projection of its own.
  bool with_rows = false;
  double slowest = 0.0;  // kHeadDecay: e^{A_log} starts uniform between this and 16
};

// One number, or `width` numbers, per head: cut with the heads, f32, without weight decay.
Parameter& declare_head_vector(const Build& build, const std::string& name, const HeadGroup& heads,
                               int64_t width, const Init& init);

// From what a gate's projection gives to the gate, and back.
class GateMap {
 public:
  explicit GateMap(const GateSpec& spec) : spec_(spec) {}
  void declare(const Build& build, const HeadGroup& heads);

  // raw may change: backward gets it as forward left it.
  void forward(Exec& exec, View raw, View value) const;
  // d_value may be changed; adds to gradients of weights.
  void backward(Exec& exec, ConstView raw, View d_value, View d_raw) const;

 private:
  GateSpec spec_;
  Parameter* bias_ = nullptr;     // [heads * width]
  Parameter* a_log_ = nullptr;    // [heads]
  Parameter* dt_bias_ = nullptr;  // [heads * width]
};

// All gates of a mixer. Those of full rank share one projection.
class LinearGates {
 public:
  LinearGates(const Build& build, const HeadGroup& heads, std::vector<GateSpec> specs);
  // Biases and vectors that maps need, which are declared behind the projections.
  void declare_vectors(const Build& build);

  struct Saved {
    std::vector<Tensor> raw;    // by projection: [tokens, widths], f32
    std::vector<Tensor> value;  // by gate: [tokens, heads * width], f32
  };
  // with_rows: [tokens, the gates that are columns of the mixer's own projection], or empty.
  Saved forward(Exec& exec, const Tensor& x, View with_rows, SavedStack& saved) const;
  // Adds to dx (f32; undefined: zero), and to the gradients of weights.
  void backward(Exec& exec, const Saved& f, ConstView with_rows, const std::vector<Tensor>& d_value,
                View d_with_rows, SavedStack& saved, Tensor& dx) const;

  const std::vector<GateSpec>& specs() const { return specs_; }
  int64_t weights() const { return weights_; }  // elements of the projections here

 private:
  struct Projection {
    std::optional<Linear> down;
    Linear up;
    std::vector<size_t> gates;
    DType gradient;
  };
  void add_projection(const Build& build, std::vector<size_t> gates);

  HeadGroup heads_;
  DType compute_;
  std::vector<GateSpec> specs_;
  std::vector<GateMap> maps_;
  std::vector<Projection> projections_;
  int64_t weights_ = 0;
};

// dx += more, where an undefined dx is zero.
void add_to(Exec& exec, Tensor& dx, const Tensor& more);

}  // namespace weft
