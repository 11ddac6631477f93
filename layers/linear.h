#pragma once

#include <string>
#include <vector>

#include "core/saved.h"
#include "kernels/gemm.h"
#include "layers/build.h"

namespace weft {

// y = x W^T (+ bias).   x: [tokens, in]   y: [tokens, sum of rows]   W: [rows, in] per part
//
// Several weights that read the same x are parts of one Linear: they are declared next to each other, so
// that one GEMM sees them as one matrix while the checkpoint sees each by its own name.
class Linear {
 public:
  // How tensor ranks share the weight: whole units of rows (column parallel), columns (row parallel),
  // or not at all.
  enum class Cut : uint8_t { kNone, kRows, kColumns };
  enum class Bias : uint8_t { kNo, kYes };
  struct Part {
    std::string name;
    int64_t rows;      // here, where rows are cut
    int64_t unit = 1;  // rows that stay together when the weight is cut: a head
    std::vector<int64_t> blocks = {};  // stacked matrices that are each cut on their own
    bool bare = false;  // the weight is called `name`, not `name`.weight
    int replicas = 1;   // neighbouring ranks that hold the same rows: fewer kv heads than ranks
  };
  struct Options {
    Init init = Init::normal(kInitDeviation);
    Cut cut = Cut::kNone;
    Bias bias = Bias::kNo;
    Init bias_init = Init::zeros();
    bool weight_decay = true;
    // For an uncut weight whose output is read by cut ones: dy is then a partial sum over that axis.
    std::vector<Axis> partial_over = {};
    // Parts at the end that sequence ranks multiply by on their own (begin_forward).
    int64_t apart = 0;
  };

  // `in` and the rows of parts count what this rank holds where the weight is cut along them.
  Linear(const Build& build, std::vector<Part> parts, int64_t in, const Options& options);

  int64_t out() const { return out_; }

  // The type of y and of dx is the caller's choice: f32 where it enters the residual stream.
  Tensor forward(Exec& exec, const Tensor& x, DType y_type, SavedStack& saved) const;
  // The same in two: with sequence ranks the columns of the parts that stand apart come with
  // finish_forward, which a mixer calls while states travel.
  Tensor begin_forward(Exec& exec, const Tensor& x, DType y_type, SavedStack& saved) const;
  void finish_forward(Exec& exec, const Tensor& x, const Tensor& y) const;
  // Adds into the weights' gradients. dy has the type of x.
  Tensor backward(Exec& exec, const Tensor& dy, DType dx_type, SavedStack& saved) const;

 private:
  struct Saved {
    Tensor x;
  };
  void refresh(Exec& exec) const;
  // Columns of y, by the packed matrices [begin, end).
  void multiply(Exec& exec, const Tensor& x, const Tensor& y, size_t begin, size_t end) const;
  void add_biases(Exec& exec, const Tensor& y) const;
  void add_gradients(Exec& exec, const Tensor& dy, const Tensor& x) const;

  std::vector<Parameter*> weights_;
  std::vector<Parameter*> biases_;
  int64_t in_, out_ = 0;
  size_t apart_ = 0;  // parts at the end
  // The weight in the forms that forward (W^T) and backward (W) multiply by, renewed when the optimizer
  // has changed it. One matrix when the parts touch (in forward: and one of those that stand apart), else
  // one per part.
  mutable std::vector<kernels::PackedMatrices> forward_, backward_;
  mutable size_t apart_from_ = 0;  // of forward_: from here on they stand apart
  mutable uint64_t packed_version_ = ~uint64_t{0};  // sum of the weights' versions; none yet
};

}  // namespace weft
