#pragma once

#include <memory>
#include <span>

#include "core/memory/pages.h"
#include "core/parameter.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/gradient_sync.h"

namespace weft {

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // of the parameters whose spec asks for it
};

// AdamW over every parameter of a store that is not a buffer, in the rows that this rank owns by
// its GradientSync, which brings the others' from their owners. With Zero::kSharded a rank keeps
// moments of its rows alone; in bf16 the master weights of rows that it does not own go stale with
// the first step: nothing reads them, and their memory goes back to the system.
class Optimizer {
 public:
  Optimizer(ParameterStore& store, Pool& pool, const AdamOptions& options);  // one rank alone
  Optimizer(ParameterStore& store, Pool& pool, const AdamOptions& options,
            std::shared_ptr<const Mesh> mesh, GradientSync& sync);

  // Names of all parameters of the model, where stages hold other ones: the same on every rank.
  void know_all(std::vector<std::string> names);

  // L2 norm of all gradients, every element counted once over all ranks, the same bits on each:
  // squares are added up per parameter and rank, and these sums in the order of names and ranks.
  // Not finite when any gradient is not.
  double gradient_norm(Exec& exec) const;
  // `beside`: numbers of this rank, as many on every rank, which the same reduction replaces by
  // their sums over all ranks. It is the one reduction of a step, and read once.
  double gradient_norm(Exec& exec, std::span<double> beside) const;

  // One update with gradients times `grad_scale`; `step` counts updates from 1. Rows of other ranks
  // have their new values when the GradientSync has gathered them.
  void step(Exec& exec, double lr, double grad_scale, int64_t step);

  // Weights and moments as checkpoints hold them: parameters/<name>, adam/m/<name> and
  // adam/v/<name>. What this rank writes (everything is written by one rank), and what it reads.
  std::vector<SavedTensor> tensors_to_save() const;
  std::vector<SavedTensor> moments_to_load() const;

 private:
  Optimizer(ParameterStore& store, Pool& pool, const AdamOptions& options,
            std::shared_ptr<const Mesh> mesh, GradientSync* sync);  // null: of its own
  struct Owned {                                                    // of one parameter
    int64_t begin;                                                  // first local element
    int64_t count;                                                  // elements
    int64_t moments;  // offset in the arenas of moments
  };
  Tensor part(const Tensor& of, size_t index) const;  // its owned elements, as one row
  Tensor moment(const Arena& arena, size_t index) const;
  void release_stale_masters();
  void add_pieces(const std::string& name, size_t index, const Tensor& owned,
                  std::vector<SavedTensor>& out) const;

  ParameterStore& store_;
  AdamOptions options_;
  std::shared_ptr<const Mesh> mesh_;
  std::unique_ptr<GradientSync> own_sync_;  // of one rank alone
  GradientSync& sync_;
  std::vector<Owned> owned_;
  Arena m_, v_;
  // All parameters of the model, sorted by name, with their index here or kElsewhere.
  static constexpr size_t kElsewhere = ~size_t{0};
  std::vector<size_t> by_name_;
  std::unique_ptr<ReleasedPages> stale_;  // of master weights, from the first step on
  Pool& pool_;
};

}  // namespace weft
