#pragma once

#include <optional>

#include "layers/mlp.h"
#include "layers/moe/experts.h"
#include "layers/moe/router.h"

namespace weft {

struct MoeOptions {
  RouterOptions router;
  int64_t width = 0;         // of one expert
  int64_t shared_width = 0;  // of the always-on expert; 0: none
};

// Mixture of experts: every token is computed by the experts its router row chose (nothing is dropped)
// and by the shared expert, if there is one.
class Moe final : public FeedForward {
 public:
  Moe(const Build& build, const MoeOptions& options);

  Tensor forward(Exec& exec, const Tensor& x, StepContext& context, SavedStack& saved) const override;
  Tensor backward(Exec& exec, const Tensor& dy, const StepContext& context,
                  SavedStack& saved) const override;
  double flops_per_token() const override;

 private:
  struct Saved {
    Tensor x;
    Routing routing;
  };
  MoeOptions options_;
  int64_t hidden_;
  ExpertRouter router_;
  Experts experts_;
  std::optional<Mlp> shared_;
};

}  // namespace weft
