#pragma once

#include <optional>
#include <string>
#include <vector>

#include "layers/basic/prepared_weight.h"
#include "layers/context/build.h"
#include "layers/memory/memory_rows.h"

namespace weft {

// Where projections of memories are computed.
struct MemorySpace {
  int64_t routed = 0;   // memories with weights of their own
  bool shared = false;  // a last memory, which every token goes to
  bool single = false;  // one projection for all memories, made per token and then handed out

  int64_t count(const MemoryRows& rows) const {
    return single ? rows.order.row.shape()[0] : rows.count();
  }
  // Rows per memory of what was computed in this space, and the adjoint.
  Tensor spread(Exec& exec, const MemoryRows& rows, const Tensor& computed) const;
  Tensor collect(Exec& exec, const MemoryRows& rows, const Tensor& spread) const;
};

// y = x W_m^T (+ bias_m) for the rows of every memory m.
//   W: [memories, out, in] for the routed ones and [out, in] for the shared one; with `single` the
//   latter serves all.
class MemoryLinear {
 public:
  enum class Reads : uint8_t { kTokens, kRows };
  struct Options {
    std::string name, shared_name;  // of the weights, without ".weight"
    int64_t out = 0, in = 0;
    int64_t unit = 0;  // rows of W that stay together when tensor ranks share them; 0: they do not
    Reads reads = Reads::kTokens;  // x: [tokens, in], or as many rows as y
    bool bias = false;
    Init init = Init::normal(kInitDeviation);
    Init bias_init = Init::zeros();
  };
  MemoryLinear(const Build& build, const MemorySpace& space, const Options& options);

  // [space.count(rows), out]
  Tensor forward(Exec& exec, const Tensor& x, const MemoryRows& rows, DType type) const;
  // dy has the type of x; dx [space.count(rows), in]; adds into the weights' gradients.
  void backward(Exec& exec, const Tensor& dy, const Tensor& x, const MemoryRows& rows, View dx,
                kernels::Write write) const;

  double flops_per_row() const {
    return 2.0 * static_cast<double>(options_.out) * static_cast<double>(options_.in);
  }

 private:
  struct Weight {  // a matrix, or one per memory
    Parameter* weight = nullptr;
    Parameter* bias = nullptr;
    std::optional<PreparedWeight> prepared = {};
  };
  Weight declare(const Build& build, const std::string& name, int64_t memories) const;
  std::span<const int64_t> offsets(const MemoryRows& rows) const {
    return rows.order.offsets.host().first(static_cast<size_t>(space_.routed) + 1);
  }
  // The token of every row that is routed; absent where x has a row for each.
  ConstView gather(const MemoryRows& rows) const {
    if (options_.reads == Reads::kRows || offsets(rows).back() == 0) return {};
    return rows.tokens().slice(0, offsets(rows).back());
  }
  int64_t routed_rows(const MemoryRows& rows) const {
    return space_.single ? 0 : offsets(rows).back();
  }
  // The rows of x that the shared weight reads.
  ConstView for_shared(const Tensor& x, const MemoryRows& rows) const;

  MemorySpace space_;
  Options options_;
  Weight routed_, shared_;  // without a weight: not there
};

}  // namespace weft
