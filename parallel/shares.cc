#include "parallel/shares.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>

#include "core/host_access.h"
#include "kernels/rows/elementwise.h"

namespace weft {
namespace {

// Of "block.7.mixer.q.weight" 7; of the final norm and head, whose gradients come before all
// blocks', `last`; -1 for what other layers may add to.
int64_t layer_of(const std::string& name, int64_t last) {
  if (name.starts_with("norm.") || name.starts_with("head.")) return last;
  return name.starts_with("block.") ? std::atoll(name.c_str() + 6) : -1;
}

int64_t last_layer(const ParameterStore& store) {
  int64_t last = -1;
  for (const Parameter& p : store.all()) last = std::max(last, layer_of(p.spec.name, -1));
  return last;
}

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

Shares::Shares(ParameterStore& store, const Mesh& mesh, Zero zero, int64_t bucket_elements)
    : store_(store),
      mesh_(mesh),
      bucket_elements_(bucket_elements),
      last_layer_(last_layer(store)) {
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
      bucket.first_use =
          std::min(bucket.first_use, layer_of(store.all()[index].spec.name, last_layer_));
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
bool Shares::completes_early(size_t index) const {
  const ParameterSpec& spec = store_.all()[index].spec;
  return layer_of(spec.name, last_layer_) >= 0 && owned_[index].partial_over.empty() &&
         owned_[index].replicas == 1 && spec.held_by.size() <= 1;
}

void Shares::add_to_buckets(size_t index, Communicator& comm) {
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
  if (early) bucket->layers.insert(layer_of(p.spec.name, last_layer_));
}

// Gradients lie in one arena with zeros between them: neighbours are summed with one call. What
// lies farther apart than the arena aligns has a parameter between that is not these ranks' to sum.
void Shares::add_to_runs(const Parameter& p, Communicator& comm) {
  constexpr int64_t kAlign = 16;  // elements
  if (p.shape.elements() == 0) return;
  float* data = host<float>(p.grad);
  Run* last = runs_.empty() ? nullptr : &runs_.back();
  if (last != nullptr && last->comm == &comm && data - (last->data + last->elements) < kAlign) {
    last->elements = data - last->data + p.shape.elements();
  } else {
    runs_.push_back({data, p.shape.elements(), &comm});
  }
}

// The rows of one sharer, between the parameters of a bucket and `packed`, where they start at
// element `at`.
void Shares::copy_rows(Exec& exec, const Bucket& bucket, Tensor Parameter::*part,
                       const Tensor& packed, int share, int64_t at, Copy direction) const {
  std::vector<int64_t> starts;
  for (const size_t index : bucket.parameters) {
    starts.push_back(at);
    at += share_elements(store_.all()[index], owned_[index]);
  }
  exec.threads.run(std::ssize(bucket.parameters), [&](int64_t i) {
    const size_t index = bucket.parameters[static_cast<size_t>(i)];
    const Parameter& p = store_.all()[index];
    const Tensor& tensor = p.*part;
    const int64_t width = row_width(p.shape), element = size_of(tensor.dtype());
    const IndexRange rows = rows_of_share(p, owned_[index], share);
    char* outside =
        static_cast<char*>(host_bytes(packed)) + starts[static_cast<size_t>(i)] * element;
    char* inside = static_cast<char*>(host_bytes(tensor)) + rows.begin * width * element;
    const auto bytes = static_cast<size_t>(rows.size() * width * element);
    if (bytes == 0) return;
    if (direction == Copy::kIn)
      std::memcpy(outside, inside, bytes);
    else
      std::memcpy(inside, outside, bytes);
  });
}

// [sharers, share]: the gradients themselves, or copies side by side.
Tensor Shares::pack_gradients(Exec& exec, const Bucket& bucket) const {
  const int n = bucket.comm->size();
  if (bucket.direct) {
    return store_.all()[bucket.parameters.front()].grad.reshaped({n, bucket.share});
  }
  const Tensor all = Tensor::zeros(exec.pool, {n, bucket.share}, DType::kF32, Label::kScratch);
  for (int r = 0; r < n; ++r)
    copy_rows(exec, bucket, &Parameter::grad, all, r, r * bucket.share, Copy::kIn);
  return all;
}

void Shares::layer_done(Exec& exec, int64_t layer) {
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

void Shares::reduce_bucket(Exec& exec, Bucket& bucket) const {
  const int me = bucket.comm->rank();
  const Tensor all = bucket.scatter ? bucket.packed : pack_gradients(exec, bucket);
  if (bucket.scatter)
    bucket.scatter->wait();
  else
    bucket.comm->reduce_scatter(exec, all, all.row(me));
  bucket.scatter.reset();
  bucket.packed = {};
  if (!bucket.direct) {
    copy_rows(exec, bucket, &Parameter::grad, all, me, me * bucket.share, Copy::kOut);
  }
}

// [sharers, share]: the values themselves, or this rank's rows in their place.
Tensor Shares::pack_values(Exec& exec, const Bucket& bucket) const {
  const int n = bucket.comm->size(), me = bucket.comm->rank();
  const Tensor& first = store_.all()[bucket.parameters.front()].value;
  if (bucket.direct) return first.reshaped({n, bucket.share});
  const Tensor all = Tensor::zeros(exec.pool, {n, bucket.share}, first.dtype(), Label::kScratch);
  copy_rows(exec, bucket, &Parameter::value, all, me, me * bucket.share, Copy::kIn);
  return all;
}

void Shares::unpack_values(Exec& exec, const Bucket& bucket, const Tensor& all) const {
  if (bucket.direct) return;
  const int n = bucket.comm->size(), me = bucket.comm->rank();
  for (int r = 0; r < n; ++r) {
    if (r != me) copy_rows(exec, bucket, &Parameter::value, all, r, r * bucket.share, Copy::kOut);
  }
}

void sum_over_replicas(Exec& exec, Communicator& ranks, int replicas, const Tensor& grad) {
  const Tensor slices = exec.zeros({ranks.size() / replicas, grad.elements()});
  const Tensor mine = slices.row(ranks.rank() / replicas);
  const auto bytes = static_cast<size_t>(grad.bytes());
  std::memcpy(host_bytes(mine), host_bytes(grad), bytes);
  ranks.all_reduce(exec, slices, ReduceOp::kSum);
  std::memcpy(host_bytes(grad), host_bytes(mine), bytes);
}

void Shares::add_to_partial(size_t parameter, Communicator& comm) {
  auto found = std::find_if(partial_.begin(), partial_.end(),
                            [&](const Partial& partial) { return partial.comm == &comm; });
  if (found == partial_.end()) found = partial_.insert(found, {&comm});
  found->parameters.push_back(parameter);
  found->elements += store_.all()[parameter].shape.elements();
}

// Norms, routers, gates: many and small, so they travel together.
void Shares::sum_partial(Exec& exec, const Partial& partial) const {
  const Tensor packed = Tensor::empty(exec.pool, {partial.elements}, DType::kF32, Label::kScratch);
  const auto copy = [&](Copy direction) {
    char* at = static_cast<char*>(host_bytes(packed));
    for (const size_t index : partial.parameters) {
      const Tensor& grad = store_.all()[index].grad;
      const auto bytes = static_cast<size_t>(grad.bytes());
      if (direction == Copy::kIn)
        std::memcpy(at, host_bytes(grad), bytes);
      else
        std::memcpy(host_bytes(grad), at, bytes);
      at += bytes;
    }
  };
  copy(Copy::kIn);
  partial.comm->all_reduce(exec, packed, ReduceOp::kSum);
  copy(Copy::kOut);
}

void Shares::sum_over_stages(Exec& exec) const {
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

void Shares::reduce_gradients(Exec& exec) {
  for (const Partial& partial : partial_) sum_partial(exec, partial);
  for (const size_t i : replicated_) {
    sum_over_replicas(exec, mesh_.over({Axis::kTensor}), owned_[i].replicas, store_.all()[i].grad);
  }
  for (const Run& run : runs_) {
    run.comm->all_reduce(exec, {run.data, {run.elements}, run.elements, DType::kF32, {}},
                         ReduceOp::kSum);
  }
  for (Bucket& bucket : buckets_) reduce_bucket(exec, bucket);
  done_.clear();
}

void Shares::gather_values(Exec& exec) const {
  for (const Bucket& bucket : buckets_) {
    const Tensor all = pack_values(exec, bucket);
    bucket.comm->all_gather(exec, all.row(bucket.comm->rank()), all);
    unpack_values(exec, bucket, all);
  }
}

void Shares::start_values(Exec& exec) {
  values_started_ = values_here_ = 0;
  start_more(exec);
}

void Shares::start_more(Exec& exec) {
  constexpr size_t kAhead = 3;
  for (; values_started_ < std::min(by_use_.size(), values_here_ + kAhead); ++values_started_) {
    Bucket& bucket = buckets_[by_use_[values_started_]];
    const Tensor all = pack_values(exec, bucket), mine = all.row(bucket.comm->rank());
    bucket.gather.emplace(mine, all, bucket.comm->start_all_gather(exec, mine, all));
  }
}

void Shares::await_values(Exec& exec, int64_t layer) {
  for (; values_here_ < by_use_.size(); start_more(exec)) {
    Bucket& bucket = buckets_[by_use_[values_here_]];
    if (bucket.first_use > layer) return;
    unpack_values(exec, bucket, bucket.gather->wait());
    bucket.gather.reset();
    ++values_here_;
  }
}

}  // namespace weft
