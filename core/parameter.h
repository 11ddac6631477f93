#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/shape.h"
#include "core/memory/arena.h"
#include "core/memory/exec.h"
#include "core/memory/tensor.h"

namespace weft {

// The axes over which ranks are arranged. Dense parameters live on the first four, expert
// parameters on pipe and the last three, which factor the same ranks another way.
enum class Axis : uint8_t {
  kPipe,
  kData,
  kSequence,
  kTensor,
  kExpertData,
  kExpert,
  kExpertTensor,
  kCount,
};
std::string_view name_of(Axis axis);

// This rank's coordinate on every axis. Plain numbers: core has no notion of ranks.
struct Coordinates {
  struct Place {
    int index = 0, size = 1;
  };
  std::array<Place, static_cast<size_t>(Axis::kCount)> places{};
  Place& operator[](Axis axis) { return places[static_cast<size_t>(axis)]; }
  const Place& operator[](Axis axis) const { return places[static_cast<size_t>(axis)]; }
};

// "Dimension `dim` of the global tensor is cut over `axis`." `blocks` cuts each of several stacked
// matrices on its own (gate and up of SwiGLU, the parts of Mamba2's input projection); their sizes
// sum to the extent. The last slice may be shorter or empty (a vocabulary of 50257). `replicas`
// neighbouring ranks share a slice when there are fewer units than ranks (kv heads). `unit` rows
// stay together (the channels of a head).
struct Split {
  int dim = 0;
  Axis axis = Axis::kTensor;
  std::vector<int64_t> blocks = {};
  int replicas = 1;
  int64_t unit = 1;
};

// Initial values. Element i of a parameter is a function of (seed, name, global index i).
struct Init {
  enum class Kind : uint8_t {
    kZeros,
    kConstant,
    kNormal,
    kUniform,
    kLogOfUniform,  // log u, u uniform
    kTimeStep,      // x with softplus(x) = dt, log dt uniform between log a and log b, dt >= 1e-4
    kEach,          // value(i) of global index i, nothing random
    kOrthogonal,    // rows (or columns, if fewer) are orthogonal and have length a
  } kind = Kind::kNormal;
  double a = 0.0;   // constant: value; normal: mean; others: lower end
  double b = 0.02;  // normal: deviation; others: upper end
  std::function<double(int64_t)> value = {};

  static Init zeros() { return {Kind::kZeros, 0, 0}; }
  static Init constant(double value) { return {Kind::kConstant, value, 0}; }
  static Init normal(double deviation) { return {Kind::kNormal, 0, deviation}; }
  static Init uniform(double low, double high) { return {Kind::kUniform, low, high}; }
  static Init log_of_uniform(double low, double high) { return {Kind::kLogOfUniform, low, high}; }
  static Init time_step(double low, double high) { return {Kind::kTimeStep, low, high}; }
  static Init each(std::function<double(int64_t)> value) {
    return {Kind::kEach, 0, 0, std::move(value)};
  }
  static Init orthogonal(double gain) { return {Kind::kOrthogonal, gain, 0}; }
};

// Properties of a weight that hold under every layout. Local extents, gradient groups, optimizer
// shards and checkpoint slices are all computed from this and the coordinates.
struct ParameterSpec {
  std::string name;  // global and layout-free: "block.7.mixer.q_proj.weight"
  Shape global;
  std::vector<Split> splits = {};
  std::vector<Axis> partial_over = {};  // axes whose ranks hold partial sums of the gradient
  // Pipe ranks that hold it, ascending, if several do (a tied table, weights shared by layers):
  // their gradients are partial sums too. Empty: a single stage.
  std::vector<int> held_by = {};
  // The layer whose backward completes the gradient, and whose forward is the first to read the
  // value. -1: layers share it, so the gradient is complete after the last backward.
  int64_t layer = -1;
  Init init = {};
  bool weight_decay = true;
  bool expert = false;  // lives on the expert axes
  bool f32 = false;     // f32 in every precision: norms, biases, gates, the router
  bool buffer = false;  // saved like a weight, but has no gradient
};

// A box of the global tensor.
struct Slice {
  Shape offset, extent;
  bool operator==(const Slice&) const = default;
};

// The boxes this rank holds, in local order: one, or one per entry of `blocks`, which the local
// tensor stacks along that dim.
std::vector<Slice> slices_of(const ParameterSpec& spec, const Coordinates& here);
Shape local_shape(const ParameterSpec& spec, const Coordinates& here);
// The dim along which the local tensor stacks its slices.
int stacked_dim(const ParameterSpec& spec);

struct Parameter {
  ParameterSpec spec;
  std::vector<Slice> slices;
  Shape shape;         // local
  int64_t offset = 0;  // in elements, the same in every arena of the store
  Tensor value;        // compute dtype, or f32 where the spec asks for it
  Tensor master;       // f32; the same bytes as `value` when that is f32
  Tensor grad;         // f32, accumulated with +=
  uint64_t version =
      0;  // counts changes of `value`, so that packed copies know when they are stale
};

// All weights of this rank, in the order of declaration: declare everything, then allocate once.
// Values, master weights and gradients have one arena each, with equal offsets. Parameters declared
// next to each other whose sizes are multiples of 16 elements touch, so that one GEMM can read q, k
// and v as one matrix.
class ParameterStore {
 public:
  explicit ParameterStore(Coordinates here = {}) : here_(here) {}

  Parameter& declare(ParameterSpec spec);  // the reference stays valid
  enum class Gradients : uint8_t { kNone, kAllocate };
  void allocate(Pool& pool, DType compute, Gradients gradients);
  bool allocated() const { return values_.bytes() > 0; }

  // All elements of this rank, with padding, concatenated. Masters are the values if the compute
  // type is f32.
  Tensor values() const;
  Tensor masters() const;
  Tensor gradients() const;

  std::deque<Parameter>& all() { return parameters_; }
  const std::deque<Parameter>& all() const { return parameters_; }
  Parameter* find(std::string_view name);
  int64_t elements() const { return elements_; }  // with padding: the length of every arena
  const Coordinates& here() const { return here_; }

 private:
  Coordinates here_;
  std::deque<Parameter> parameters_;
  int64_t elements_ = 0;
  DType compute_ = DType::kF32;
  Arena values_, masters_, grads_;
};

// The given parameters, [n_i, width] each and adjacent in memory, as one view [sum n_i,
// width].
Tensor joined_values(const std::vector<Parameter*>& parameters);
Tensor joined_grads(const std::vector<Parameter*>& parameters);

}  // namespace weft
