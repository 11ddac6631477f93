#pragma once

#include <string>
#include <vector>

#include "core/memory/saved.h"
#include "layers/basic/prepared_weight.h"
#include "layers/context/mixer.h"

namespace weft {

// y = x W^T (+ bias).   x: [tokens, in]   y: [tokens, sum of rows]   W: [rows, in] per part
//
// Several weights that read the same x are parts of one Linear: they are declared next to each
// other, so that one GEMM sees them as one matrix while the checkpoint sees each by its own name.
class Linear {
 public:
  // How tensor ranks share the weight: whole units of rows (column parallel), columns (row
  // parallel), or not at all.
  enum class Cut : uint8_t { kNone, kRows, kColumns };
  enum class Bias : uint8_t { kNo, kYes };
  struct Part {
    std::string name;
    int64_t rows;                      // here, where rows are cut
    int64_t unit = 1;                  // rows that stay together when the weight is cut: a head
    std::vector<int64_t> blocks = {};  // stacked matrices that are each cut on their own
    bool bare = false;                 // the weight is called `name`, not `name`.weight
    int replicas = 1;  // neighbouring ranks that hold the same rows: fewer kv heads than ranks
  };
  struct Columns {
    int64_t begin = 0, count = 0;
  };
  struct Options {
    Init init = Init::normal(kInitDeviation);
    Cut cut = Cut::kNone;
    Bias bias = Bias::kNo;
    Init bias_init = Init::zeros();
    bool weight_decay = true;
    // For an uncut weight whose output is read by cut ones: dy is then a partial sum over that
    // axis.
    std::vector<Axis> partial_over = {};
    // Columns of y that what a mixer tells other sequence ranks does not depend on: with such ranks
    // they are products of their own, computed while states travel. The gate's come behind the
    // recurrence, so that the gradient of its weights is complete before states' gradients arrive.
    Columns queries = {}, gate = {};
  };

  // `in` and the rows of parts count what this rank holds where the weight is cut along them.
  Linear(const Build& build, std::vector<Part> parts, int64_t in, const Options& options);

  int64_t out() const { return out_; }

  // The type of y and of dx is the caller's choice: f32 where it enters the residual stream.
  Tensor forward(Exec& exec, const Tensor& x, DType y_type, SavedStack& saved) const;
  void forward_to(Exec& exec, const Tensor& x, const Tensor& y, SavedStack& saved) const;
  // Forward in pieces: with sequence ranks the columns of queries and gate are computed on request,
  // which overlaps the exchange of states; with one rank they are computed at once.
  Tensor begin_forward(Exec& exec, const Tensor& x, DType y_type, SavedStack& saved) const;
  void finish_queries(Exec& exec, const Tensor& x, const Tensor& y) const;
  void finish_gate(Exec& exec, const Tensor& x, const Tensor& y) const;
  // Adds into the weights' gradients. dy has the type of x. A mixer with a gate calls
  // begin_backward first, as soon as the gate's columns of dy are there: with sequence ranks the
  // gradient of the gate's weights is then work that can be done while states' gradients travel.
  void begin_backward(Exec& exec, const Tensor& dy, const Tensor& x, SavedStack& saved) const;
  Tensor backward(Exec& exec, const Tensor& dy, DType dx_type, SavedStack& saved) const;

 private:
  struct Saved {
    Tensor x;
  };
  enum class Role : uint8_t { kNow, kQueries, kGate };  // of columns of y
  struct Piece {
    Columns columns;
    Role role;
  };
  Role role_of(int64_t column) const;
  // All columns, cut around those that stand apart, and between parts that do not touch.
  std::vector<Piece> pieces(std::initializer_list<Columns> apart) const;
  // The rows of the weights, or of their gradients, that belong to a piece.
  Tensor rows_of(const Columns& columns, Tensor Parameter::*what) const;
  using ForwardForms = std::vector<std::pair<Piece, kernels::PackedMatrices>>;
  using BackwardForms = std::vector<kernels::PackedMatrices>;
  const ForwardForms& forward_forms(Exec& exec) const;
  const BackwardForms& backward_forms(Exec& exec) const;
  void start_forward(Exec& exec, const Tensor& x, const Tensor& y, SavedStack& saved) const;
  void multiply(Exec& exec, const Tensor& x, const Tensor& y, Role role) const;
  enum class Among : uint8_t { kGate, kOthers };  // of the columns
  void add_gradients(Exec& exec, const Tensor& dy, const Tensor& x, Among which) const;

  std::vector<Parameter*> weights_;
  std::vector<Parameter*> biases_;
  int64_t in_, out_ = 0;
  Columns queries_, gate_;  // none with one sequence rank
  // The forms that forward (W^T) and backward (W) multiply by: forward by pieces, backward by one
  // matrix when the parts touch, else one per part.
  Prepared<ForwardForms> forward_;
  Prepared<BackwardForms> backward_;
};

// Projections to the kv heads, which all their replicas hold.
inline Linear::Part kv_part(const HeadOptions& h, const std::string& name, int64_t width) {
  return {.name = name, .rows = h.kv_heads * width, .unit = width, .replicas = h.kv_replicas};
}

}  // namespace weft
