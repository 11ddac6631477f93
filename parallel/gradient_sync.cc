#include "parallel/gradient_sync.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "kernels/rows/elementwise.h"
#include "kernels/rows/ranges.h"

namespace weft {
namespace {

int64_t share_elements(const Parameter& p, const Ownership& own) {
  return own.rows_per_share * row_width(p.shape);
}

// Rows that sharer `index` owns.
IndexRange rows_of_share(const Parameter& p, const Ownership& own, int index) {
  const int64_t rows = row_count(p.shape);
  return {std::min(rows, own.rows_per_share * index),
          std::min(rows, own.rows_per_share * (index + 1))};
}

}  // namespace

GradientSync::GradientSync(ParameterStore& store, const Mesh& mesh, Zero zero,
                           int64_t bucket_elements)
    : store_(store), mesh_(mesh), bucket_elements_(bucket_elements) {
  for (const Parameter& p : store.all()) {
    const size_t index = owned_.size();
    owned_.push_back(ownership_of(p.spec, mesh.here(), zero));
    const Ownership& own = owned_.back();
    if (p.spec.buffer) continue;
    if (!own.partial_over.empty()) add_to_partial(index, mesh.over(own.partial_over));
    if (own.replicas > 1) replicated_.push_back(index);
    if (own.share.size == 1) continue;
    Communicator& comm = mesh.over(own.shared_over);
    if (zero == Zero::kSharded)
      add_to_buckets(index, comm);
    else
      add_to_runs(p, comm);
  }
  for (size_t i = 0; i < store.all().size(); ++i) {
    if (store.all()[i].spec.held_by.size() > 1) between_stages_.push_back(i);
  }
  std::sort(between_stages_.begin(), between_stages_.end(), [&](size_t a, size_t b) {
    return store.all()[a].spec.name < store.all()[b].spec.name;
  });
  for (Bucket& bucket : buckets_) {
    bucket.first_use = std::numeric_limits<int64_t>::max();
    for (const size_t index : bucket.parameters) {
      bucket.first_use = std::min(bucket.first_use, store.all()[index].spec.layer);
    }
    const size_t first = bucket.parameters.front();
    bucket.direct = bucket.parameters.size() == 1 &&
                    row_count(store.all()[first].shape) ==
                        owned_[first].rows_per_share * owned_[first].share.size;
  }
  by_use_.resize(buckets_.size());
  std::iota(by_use_.begin(), by_use_.end(), size_t{0});
  std::stable_sort(by_use_.begin(), by_use_.end(), [&](size_t a, size_t b) {
    return buckets_[a].first_use < buckets_[b].first_use;
  });
  values_here_ = values_started_ = by_use_.size();
}

// Its gradient is final when its layer's backward is over, and is this rank's to sum as it is.
bool GradientSync::completes_early(size_t index) const {
  const ParameterSpec& spec = store_.all()[index].spec;
  return spec.layer >= 0 && owned_[index].partial_over.empty() && owned_[index].replicas == 1 &&
         spec.held_by.size() <= 1;
}

void GradientSync::add_to_buckets(size_t index, Communicator& comm) {
  const Parameter& p = store_.all()[index];
  const int64_t elements = share_elements(p, owned_[index]);
  const bool early = completes_early(index);
  const auto like = [&](const Bucket& b) {
    return b.comm == &comm && completes_early(b.parameters.front()) == early &&
           store_.all()[b.parameters.front()].value.dtype() == p.value.dtype();
  };
  // Only the newest of its kind: a bucket holds neighbours, which are complete at about the same
  // time.
  auto bucket = std::find_if(buckets_.rbegin(), buckets_.rend(), like);
  if (bucket == buckets_.rend() || (bucket->share + elements) * comm.size() > bucket_elements_) {
    buckets_.push_back({.parameters = {}, .comm = &comm});
    bucket = buckets_.rbegin();
  }
  bucket->parameters.push_back(index);
  bucket->share += elements;
  if (early) bucket->layers.insert(p.spec.layer);
}

// Gradients lie in one arena with zeros between them: neighbours are summed with one call. What
// lies farther apart than the arena aligns has a parameter between that is not these ranks' to sum.
void GradientSync::add_to_runs(const Parameter& p, Communicator& comm) {
  constexpr int64_t kAlign = 16;  // elements
  if (p.shape.elements() == 0) return;
  Run* last = runs_.empty() ? nullptr : &runs_.back();
  if (last != nullptr && last->comm == &comm &&
      p.offset - (last->begin + last->elements) < kAlign) {
    last->elements = p.offset - last->begin + p.shape.elements();
  } else {
    runs_.push_back({p.offset, p.shape.elements(), &comm});
  }
}

// The rows of one sharer, between the parameters of a bucket and `packed`, where they start at
// element `at`.
void GradientSync::add_rows(const Bucket& bucket, Tensor Parameter::*part, const Tensor& packed,
                            int share, int64_t at, Copy direction, Ranges& ranges) const {
  const Tensor flat = packed.reshaped({packed.elements()});
  for (const size_t index : bucket.parameters) {
    const Parameter& p = store_.all()[index];
    const int64_t width = row_width(p.shape);
    const IndexRange rows = rows_of_share(p, owned_[index], share);
    const Tensor inside = (p.*part).reshaped({p.shape.elements()});
    const Tensor own = inside.slice(rows.begin * width, rows.size() * width),
                 outside = flat.slice(at, own.elements());
    at += share_elements(p, owned_[index]);
    if (direction == Copy::kIn)
      ranges.push_back({own, outside});
    else
      ranges.push_back({outside, own});
  }
}

// [sharers, share]: the gradients themselves, or copies side by side.
Tensor GradientSync::pack_gradients(Exec& exec, const Bucket& bucket) const {
  const int n = bucket.comm->size();
  if (bucket.direct) {
    return store_.all()[bucket.parameters.front()].grad.reshaped({n, bucket.share});
  }
  const Tensor all = Tensor::zeros(exec.pool, {n, bucket.share}, DType::kF32, Label::kScratch);
  Ranges ranges;
  for (int r = 0; r < n; ++r) {
    add_rows(bucket, &Parameter::grad, all, r, r * bucket.share, Copy::kIn, ranges);
  }
  kernels::copy_ranges(exec, ranges);
  return all;
}

void GradientSync::layer_done(Exec& exec, int64_t layer) {
  done_.insert(layer);
  for (Bucket& bucket : buckets_) {
    const bool complete =
        !bucket.layers.empty() &&
        std::includes(done_.begin(), done_.end(), bucket.layers.begin(), bucket.layers.end());
    if (!complete || bucket.scatter) continue;
    bucket.packed = pack_gradients(exec, bucket);
    bucket.scatter = bucket.comm->start_reduce_scatter(exec, bucket.packed,
                                                       bucket.packed.row(bucket.comm->rank()));
  }
}

void GradientSync::reduce_bucket(Exec& exec, Bucket& bucket) const {
  const int me = bucket.comm->rank();
  const Tensor all = bucket.scatter ? bucket.packed : pack_gradients(exec, bucket);
  if (bucket.scatter)
    bucket.scatter->wait();
  else
    bucket.comm->reduce_scatter(exec, all, all.row(me));
  bucket.scatter.reset();
  bucket.packed = {};
  if (bucket.direct) return;
  Ranges ranges;
  add_rows(bucket, &Parameter::grad, all, me, me * bucket.share, Copy::kOut, ranges);
  kernels::copy_ranges(exec, ranges);
}

// [sharers, share]: the values themselves, or this rank's rows in their place.
Tensor GradientSync::pack_values(Exec& exec, const Bucket& bucket) const {
  const int n = bucket.comm->size(), me = bucket.comm->rank();
  const Tensor& first = store_.all()[bucket.parameters.front()].value;
  if (bucket.direct) return first.reshaped({n, bucket.share});
  const Tensor all = Tensor::zeros(exec.pool, {n, bucket.share}, first.dtype(), Label::kScratch);
  Ranges ranges;
  add_rows(bucket, &Parameter::value, all, me, me * bucket.share, Copy::kIn, ranges);
  kernels::copy_ranges(exec, ranges);
  return all;
}

void GradientSync::unpack_values(Exec& exec, const Bucket& bucket, const Tensor& all) const {
  if (bucket.direct) return;
  const int n = bucket.comm->size(), me = bucket.comm->rank();
  Ranges ranges;
  for (int r = 0; r < n; ++r) {
    if (r != me) {
      add_rows(bucket, &Parameter::value, all, r, r * bucket.share, Copy::kOut, ranges);
    }
  }
  kernels::copy_ranges(exec, ranges);
}

void sum_over_replicas(Exec& exec, Communicator& ranks, int replicas, const Tensor& grad) {
  const Tensor slices = exec.zeros({ranks.size() / replicas, grad.elements()});
  const Tensor mine = slices.row(ranks.rank() / replicas);
  const Tensor flat = grad.reshaped({grad.elements()});
  kernels::copy(exec, flat, mine);
  ranks.all_reduce(exec, slices, ReduceOp::kSum);
  kernels::copy(exec, mine, flat);
}

void GradientSync::add_to_partial(size_t parameter, Communicator& comm) {
  auto found = std::find_if(partial_.begin(), partial_.end(),
                            [&](const Partial& partial) { return partial.comm == &comm; });
  if (found == partial_.end()) found = partial_.insert(found, {&comm});
  found->parameters.push_back(parameter);
  found->elements += store_.all()[parameter].shape.elements();
}

// Norms, routers, gates: many and small, so they travel together.
void GradientSync::sum_partial(Exec& exec, const Partial& partial) const {
  const Tensor packed = Tensor::empty(exec.pool, {partial.elements}, DType::kF32, Label::kScratch);
  Ranges in, out;
  int64_t at = 0;
  for (const size_t index : partial.parameters) {
    const Tensor& grad = store_.all()[index].grad;
    const Tensor flat = grad.reshaped({grad.elements()}), part = packed.slice(at, grad.elements());
    in.push_back({flat, part});
    out.push_back({part, flat});
    at += grad.elements();
  }
  kernels::copy_ranges(exec, in);
  partial.comm->all_reduce(exec, packed, ReduceOp::kSum);
  kernels::copy_ranges(exec, out);
}

void GradientSync::sum_over_stages(Exec& exec) const {
  const int here = mesh_.here()[Axis::kPipe].index;
  Communicator& pipe = mesh_.over({Axis::kPipe});
  for (const size_t index : between_stages_) {
    const Parameter& p = store_.all()[index];
    // Every holder sends its part to all others and adds up what it has in the same order.
    const auto parts = static_cast<int64_t>(p.spec.held_by.size());
    const Tensor all = exec.scratch({parts, p.grad.elements()});
    std::vector<Transfer> together;
    for (int64_t i = 0; i < parts; ++i) {
      const int peer = p.spec.held_by[static_cast<size_t>(i)];
      if (peer == here) {
        kernels::copy(exec, p.grad.reshaped({p.grad.elements()}), all.row(i));
        continue;
      }
      together.push_back({Transfer::Kind::kSend, peer, p.grad.reshaped({p.grad.elements()})});
      together.push_back({Transfer::Kind::kRecv, peer, all.row(i)});
    }
    pipe.transfer(exec, together);
    const Tensor sum = p.grad.reshaped({p.grad.elements()});
    kernels::add(exec, all.row(0), all.row(1), sum);
    for (int64_t i = 2; i < parts; ++i) kernels::add(exec, sum, all.row(i), sum);
  }
}

void GradientSync::reduce_gradients(Exec& exec) {
  for (const Partial& partial : partial_) sum_partial(exec, partial);
  for (const size_t i : replicated_) {
    sum_over_replicas(exec, mesh_.over({Axis::kTensor}), owned_[i].replicas, store_.all()[i].grad);
  }
  for (const Run& run : runs_) {
    run.comm->all_reduce(exec, store_.gradients().slice(run.begin, run.elements), ReduceOp::kSum);
  }
  for (Bucket& bucket : buckets_) reduce_bucket(exec, bucket);
  done_.clear();
}

void GradientSync::complete_values(Exec& exec) {
  if (std::exchange(values_changed_, false)) gather_values(exec);
  await_values(exec, std::numeric_limits<int64_t>::max());
}

void GradientSync::gather_values(Exec& exec) const {
  for (const Bucket& bucket : buckets_) {
    const Tensor all = pack_values(exec, bucket);
    bucket.comm->all_gather(exec, all.row(bucket.comm->rank()), all);
    unpack_values(exec, bucket, all);
  }
}

void GradientSync::start_values(Exec& exec) {
  if (!std::exchange(values_changed_, false)) return;
  values_started_ = values_here_ = 0;
  start_more(exec);
}

void GradientSync::start_more(Exec& exec) {
  constexpr size_t kAhead = 3;
  for (; values_started_ < std::min(by_use_.size(), values_here_ + kAhead); ++values_started_) {
    Bucket& bucket = buckets_[by_use_[values_started_]];
    const Tensor all = pack_values(exec, bucket), mine = all.row(bucket.comm->rank());
    bucket.gather.emplace(mine, all, bucket.comm->start_all_gather(exec, mine, all));
  }
}

void GradientSync::await_values(Exec& exec, int64_t layer) {
  for (; values_here_ < by_use_.size(); start_more(exec)) {
    Bucket& bucket = buckets_[by_use_[values_here_]];
    if (bucket.first_use > layer) return;
    unpack_values(exec, bucket, bucket.gather->wait());
    bucket.gather.reset();
    ++values_here_;
  }
}

}  // namespace weft
