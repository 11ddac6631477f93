#pragma once

#include <array>
#include <memory>
#include <optional>

#include "core/memory/host_table.h"
#include "layers/basic/linear.h"
#include "layers/basic/short_conv.h"
#include "layers/memory/memory_router.h"
#include "layers/mixers/linear_finish.h"
#include "layers/mixers/memory_gates.h"

namespace weft {

struct MemorySpec {
  HeadOptions heads;  // resolved
  MemoryOptions memories;
  bool single_projection = false;  // of keys, values and gates, for all memories
  bool short_conv = true;
  bool output_gate = true;
  LinearRule rule;
};

// A mixture of memories: a router sends each token to some of several memories, and to a shared
// one. Each runs the rule of a linear mixer over the tokens that were sent to it, with projections
// of its own to keys, values and gates, and short convolutions over these tokens alone, which all
// memories share; queries, norm and output gate are the layer's.
class MemoryMixer final : public Mixer {
 public:
  MemoryMixer(const Build& build, MemorySpec spec);

  Tensor forward(Exec& exec, const Tensor& x, const MixerContext& context,
                 SavedStack& saved) const override;
  Tensor backward(Exec& exec, const Tensor& dy, const MixerContext& context,
                  SavedStack& saved) const override;
  double flops_per_token(int64_t length) const override;

 private:
  struct Three {
    Tensor q, k, v;  // [rows, heads * dk], [rows, heads * dk], [rows, heads * dv]
  };
  struct Saved {
    Tensor x;
    MemoryRouting routing;
    MemoryRows rows;
    Tensor projected;  // [tokens, q | gate]
    Three sent, read;  // before and after the convolutions; the same without
    std::vector<MemoryGates::Saved> gates;
    Tensor out;                  // [rows, heads * dv]
    LinearFinish::Saved finish;  // of their mixture [tokens, heads * dv]
  };
  enum Part { kQ, kK, kV };

  int64_t query_width() const { return spec_.heads.heads * spec_.heads.dk; }
  int64_t value_width() const { return spec_.heads.heads * spec_.heads.dv; }
  View query(const Tensor& projected) const { return projected.view().columns(0, query_width()); }
  View gate(const Tensor& projected) const {
    if (!spec_.output_gate) return {};
    return projected.view().columns(query_width(), value_width());
  }
  CoreInputs inputs(Exec& exec, const Saved& f) const;
  Three empty_like(Exec& exec, const Three& t) const {
    return {exec.empty(t.q.shape(), compute_), exec.empty(t.k.shape(), compute_),
            exec.empty(t.v.shape(), compute_)};
  }
  // The rows that memories read of their tokens; those of queries are not computed yet.
  void send(Exec& exec, MemoryStates& states, Saved& f, SavedStack& saved) const;
  void convolve(Exec& exec, Part which, MemoryStates& states, const Saved& f,
                SavedStack& saved) const;
  // d_sent enters as the gradient of the rows that were read; d gets the queries' part, d_rows is
  // added to.
  void send_backward(Exec& exec, MemoryStates& states, const Saved& f, Three d_sent,
                     const Tensor& d, const Tensor& d_rows, SavedStack& saved) const;

  MemorySpec spec_;
  DType compute_;
  int64_t hidden_;
  HostTable<float> log_decay_;
  MemorySpace space_;
  MemoryRouter router_;
  Linear project_;
  MemoryLinear k_proj_, v_proj_;
  MemoryGates gates_;
  std::unique_ptr<LinearCore> core_;
  std::array<std::optional<ShortConv>, 3> convs_;  // q, k, v; absent: as projected
  LinearFinish finish_;
  Linear out_;
};

}  // namespace weft
