#pragma once

#include <memory>

#include "core/memory/pages.h"
#include "core/parameter.h"
#include "parallel/checkpoint/checkpoint.h"
#include "parallel/shares.h"

namespace weft {

struct AdamOptions {
  double beta1 = 0.9, beta2 = 0.95;
  double epsilon = 1e-8;
  double weight_decay = 0.1;  // of the parameters whose spec asks for it
};

// AdamW over every parameter of a store that is not a buffer. With Zero::kSharded a rank keeps
// moments of the rows it owns alone, updates these, and takes the others' from their owners; in
// bf16 the master weights of rows it does not own go stale with the first step: nobody reads them,
// and their memory goes back to the system.
//
// The order of a step: start_values, await_values before every layer, layer_done where sums may
// travel early, sum_over_stages, reduce_gradients, gradient_norm, step. All are collective.
class Optimizer {
 public:
  Optimizer(ParameterStore& store, Pool& pool, const AdamOptions& options);  // one rank alone
  Optimizer(ParameterStore& store, Pool& pool, const AdamOptions& options,
            std::shared_ptr<const Mesh> mesh, Zero zero);

  // Names of all parameters of the model, where stages hold other ones: the same on every rank.
  void know_all(std::vector<std::string> names);

  void sum_over_stages(Exec& exec) const { shares_.sum_over_stages(exec); }
  void layer_done(Exec& exec, int64_t layer) { shares_.layer_done(exec, layer); }
  void reduce_gradients(Exec& exec) { shares_.reduce_gradients(exec); }

  // L2 norm of all gradients, every element counted once over all ranks, the same bits on each:
  // squares are added up per parameter and rank, and these sums in the order of names and ranks.
  // Not finite when any gradient is not.
  double gradient_norm(Exec& exec) const;
  // `words`, as many on every rank, travel along: afterwards they are those of all, rank by rank.
  double gradient_norm(Exec& exec, std::vector<int64_t>& words) const;

  // One update with gradients times `grad_scale`; `step` counts updates from 1. Rows of other ranks
  // have their new values at once, or when they are asked for.
  enum class Others : uint8_t { kAtOnce, kWhenAsked };
  void step(Exec& exec, double lr, double grad_scale, int64_t step,
            Others others = Others::kAtOnce);
  // Where values of other ranks are due: lets them travel, and waits for those that a layer (-1:
  // no layer alone) and the ones before it use; or for all.
  void start_values(Exec& exec);
  void await_values(Exec& exec, int64_t layer) { shares_.await_values(exec, layer); }
  void complete_values(Exec& exec);

  // Weights and moments as checkpoints hold them: parameters/<name>, adam/m/<name> and
  // adam/v/<name>. What this rank writes (everything is written by one rank), and what it reads.
  std::vector<SavedTensor> tensors_to_save() const;
  std::vector<SavedTensor> moments_to_load() const;

 private:
  struct Owned {      // of one parameter
    int64_t begin;    // first local element
    int64_t count;    // elements
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
  Shares shares_;
  std::vector<Owned> owned_;
  Arena m_, v_;
  // All parameters of the model, sorted by name, with their index here or kElsewhere.
  static constexpr size_t kElsewhere = ~size_t{0};
  std::vector<size_t> by_name_;
  bool values_due_ = false;               // those of other ranks, and nothing of them has started
  std::unique_ptr<ReleasedPages> stale_;  // of master weights, from the first step on
  Pool& pool_;
};

}  // namespace weft
