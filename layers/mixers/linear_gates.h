#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layers/basic/linear.h"
#include "layers/mixers/linear_rule.h"

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
  // kApart: gates have projections of their own. kAmongRows: they are columns of the mixer's
  // projection, behind q, k and v.
  enum class Projected : uint8_t { kApart, kAmongRows };
  LinearGates(const Build& build, const HeadGroup& heads, std::vector<GateSpec> specs,
              Projected projected);
  // Biases and vectors that maps need, which are declared behind the projections.
  void declare_vectors(const Build& build);

  struct Saved {
    std::vector<Tensor> raw;    // by projection: [tokens, widths], f32
    std::vector<Tensor> value;  // by gate: [tokens, heads * width], f32
  };
  // among_rows: [tokens, the gates that are columns of the mixer's own projection], or empty.
  Saved forward(Exec& exec, const Tensor& x, View among_rows, SavedStack& saved) const;
  // Adds to dx (f32; undefined: zero), and to the gradients of weights.
  void backward(Exec& exec, const Saved& f, ConstView among_rows,
                const std::vector<Tensor>& d_value, View d_among_rows, SavedStack& saved,
                Tensor& dx) const;

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
  Projected projected_;
  std::vector<GateMap> maps_;
  std::vector<Projection> projections_;
  int64_t weights_ = 0;
};

// dx += more, where an undefined dx is zero.
void add_to(Exec& exec, Tensor& dx, const Tensor& more);

}  // namespace weft
