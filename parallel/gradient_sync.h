#pragma once

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "kernels/rows/ranges.h"
#include "parallel/comm/mesh.h"
#include "parallel/comm/pending_tensor.h"
#include "parallel/layout/ownership.h"

namespace weft {

// Sums `grad` over runs of `replicas` neighbouring ranks of `ranks`: each run holds a slice of a
// parameter. The slices travel side by side, zero where they are others'.
void sum_over_replicas(Exec& exec, Communicator& ranks, int replicas, const Tensor& grad);

// Keeps the parameters of ranks that hold the same ones in step: sums their gradients, and, when
// each rank updates its share of the rows, brings the new rows to all.
//
// Sharded parameters travel in buckets: the rows of every sharer side by side, padded to the same
// length, so that many small parameters cost one collective. A parameter that fills a bucket by
// itself and divides evenly is not copied.
class GradientSync {
 public:
  // Elements over all sharers: few enough that the first sums and weights travel early, enough that
  // their bytes cost more than a message does.
  static constexpr int64_t kBucket = 1 << 20;
  GradientSync(ParameterStore& store, const Mesh& mesh, Zero zero,
               int64_t bucket_elements = kBucket);

  const Ownership& of(size_t parameter) const { return owned_[parameter]; }

  // Gradients of what several stages hold become the sums of theirs, in the order of stages. First
  // of all sums.
  void sum_over_stages(Exec& exec) const;
  // During the last backward of a step: the gradients of this layer's weights are final. Sums of
  // buckets whose layers are all done start to travel; reduce_gradients then waits for them.
  void layer_done(Exec& exec, int64_t layer);
  // Gradients become sums over all ranks: in the rows this rank owns (sharded), or everywhere. The
  // same bits whether some were under way or not.
  void reduce_gradients(Exec& exec);
  // The owners of rows have updated them: what other ranks hold of these is stale. Values then come
  // from their owners all at once,
  void values_changed() { values_changed_ = true; }
  void complete_values(Exec& exec);
  // or while layers compute, in the order in which these read them and a few buckets at a time,
  // lest those that are needed last hold up the first. Once started, await_values(layer) before
  // every layer, first with -1 for what belongs to none, or complete_values for all.
  void start_values(Exec& exec);
  void await_values(Exec& exec, int64_t layer);

 private:
  struct Bucket {
    std::vector<size_t> parameters;
    Communicator* comm;
    int64_t share = 0;  // elements of one sharer, padding included
    bool direct = false;
    std::set<int64_t> layers = {};  // whose weights it holds; empty: complete only at the end
    Tensor packed = {};             // of a sum under way
    std::unique_ptr<Pending> scatter = {};
    int64_t first_use = -1;  // the layer that needs its values before others do
    std::optional<PendingTensor> gather = {};
  };
  struct Run {  // of gradients that follow each other in their arena
    int64_t begin, elements;
    Communicator* comm;
  };
  struct Partial {  // gradients that are parts of sums over the same ranks
    Communicator* comm;
    std::vector<size_t> parameters = {};
    int64_t elements = 0;
  };
  void add_to_partial(size_t parameter, Communicator& comm);
  void sum_partial(Exec& exec, const Partial& partial) const;
  bool completes_early(size_t parameter) const;
  void add_to_buckets(size_t parameter, Communicator& comm);
  void add_to_runs(const Parameter& p, Communicator& comm);
  enum class Copy : uint8_t { kIn, kOut };
  using Ranges = std::vector<kernels::CopiedRange>;
  void add_rows(const Bucket& bucket, Tensor Parameter::*part, const Tensor& packed, int share,
                int64_t at, Copy direction, Ranges& ranges) const;
  Tensor pack_gradients(Exec& exec, const Bucket& bucket) const;
  void reduce_bucket(Exec& exec, Bucket& bucket) const;
  Tensor pack_values(Exec& exec, const Bucket& bucket) const;
  void unpack_values(Exec& exec, const Bucket& bucket, const Tensor& all) const;
  void start_more(Exec& exec);
  void gather_values(Exec& exec) const;

  ParameterStore& store_;
  const Mesh& mesh_;
  int64_t bucket_elements_;
  std::vector<Ownership> owned_;  // by index in the store
  std::vector<Partial> partial_;
  std::vector<size_t> replicated_;      // held by some of the tensor ranks, not all
  std::vector<size_t> between_stages_;  // held by several stages, in the order of names
  std::vector<Bucket> buckets_;
  std::vector<Run> runs_;
  std::set<int64_t> done_;                       // layers, in this step
  std::vector<size_t> by_use_;                   // buckets
  size_t values_started_ = 0, values_here_ = 0;  // of those
  bool values_changed_ = false;                  // and no gather has started
};

}  // namespace weft
