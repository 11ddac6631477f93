#include "layers/memory/memory_router.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/matrix/gemm.h"
#include "kernels/rows/reductions.h"
#include "layers/basic/cast.h"
#include "layers/basic/token_statistics.h"
#include "layers/context/tensor_of.h"

namespace weft {
namespace {

using kernels::Transpose;
using kernels::Write;

double mean_of(const std::vector<float>& x) {
  return std::accumulate(x.begin(), x.end(), 0.0) /
         static_cast<double>(std::max<size_t>(1, x.size()));
}

std::vector<int64_t> counts_of(Exec& exec, const Tensor& index, int64_t memories) {
  const Tensor count = exec.empty({memories}, DType::kI64);
  kernels::count_pairs(exec, index, count);
  return download<int64_t>(exec, count);
}

double smallest_of(const std::vector<float>& x) {
  double least = std::numeric_limits<double>::infinity();
  for (const float value : x) least = std::min<double>(least, value);
  return least;
}

// [tokens, width] -> [tokens, width + 1] with `last` in the last column.
template <class T>
Tensor with_last(Exec& exec, const Tensor& rows, T last) {
  const std::vector<T> from = download<T>(exec, rows);
  const auto width = static_cast<size_t>(rows.shape()[1]);
  std::vector<T> to;
  for (size_t begin = 0; begin < from.size(); begin += width) {
    to.insert(to.end(), from.begin() + begin, from.begin() + begin + width);
    to.push_back(last);
  }
  return tensor_of(exec, std::move(to)).reshaped({rows.shape()[0], rows.shape()[1] + 1});
}

// One more column: the shared memory, weighed 1. Routing decides the shapes of what follows, so its
// numbers are on the host in any case.
void append_shared(Exec& exec, int64_t memories, MemoryRouting& routing) {
  routing.index = with_last(exec, routing.routed.index, static_cast<int32_t>(memories));
  const Shape& s = routing.routed.weight.shape();
  routing.weight = exec.empty({s[0], s[1] + 1});
  kernels::copy(exec, routing.routed.weight, routing.weight.view().columns(0, s[1]));
  kernels::fill(exec, routing.weight.view().columns(s[1], 1), 1.0f);
}

}  // namespace

MemoryRouter::MemoryRouter(const Build& build, const MemoryOptions& options)
    : options_(options),
      layer_(build.layer),
      tensor_ranks_(build.store.here()[Axis::kTensor].size),
      first_(build.store.here()[Axis::kTensor].index == 0),
      weight_(build.declare({.name = build.scope + "router.weight",
                             .global = {options.memories, build.hidden},
                             .partial_over = {Axis::kTensor},
                             .init = Init::normal(kInitDeviation),
                             .f32 = true})) {}

Routing MemoryRouter::decide(Exec& exec, const Tensor& x, StepContext* step) const {
  const int64_t tokens = x.shape().rows(), memories = options_.memories;
  const Tensor logits = exec.empty({tokens, memories});
  const RoutingNotes notes = RoutingNotes::of(exec, tokens);
  kernels::gemm(exec, in_type(exec, x, DType::kF32), weight_.value, logits, {.b = Transpose::kYes});
  Routing routing;
  routing.probabilities = exec.empty(logits.shape());
  routing.weight = exec.empty({tokens, options_.top_k});
  routing.log_sum_exp = exec.empty({tokens});
  kernels::RouterInput in{.logits = logits};
  if (step != nullptr && step->given_memories.contains(layer_)) {
    routing.index = step->given_memories.at(layer_);
    in.choice = kernels::Choice::kGiven;
  } else {
    routing.index = exec.empty({tokens, options_.top_k}, DType::kI32);
  }
  kernels::route_forward(exec, rule(), in, notes.with(routing));

  Communicator* ranks = step == nullptr ? nullptr : step->span_ranks;
  routing.tokens = sum_over_tokens(exec, ranks, tokens);
  const std::vector<int64_t> mine = counts_of(exec, routing.index, memories);
  const std::vector<int64_t> counts = sum_over_tokens(exec, ranks, mine);
  std::vector<float> fraction;
  for (const int64_t count : counts) {
    fraction.push_back(static_cast<float>(
        static_cast<double>(count) / static_cast<double>(std::max<int64_t>(1, routing.tokens))));
  }
  routing.fraction = tensor_of(exec, fraction).reshaped({1, memories});
  if (step != nullptr && !step->repeating) {
    // Every tensor rank sees the same tokens: the first one tells.
    MoeReport told{.layer = layer_, .memories = true, .aux_weight = options_.aux_loss};
    told.counts.resize(mine.size());
    if (first_) {
      told = report(exec, routing, notes);
      told.counts = mine;
      told.bad_token = download<int64_t>(exec, notes.bad_token).front();
    }
    step->reports.push_back(std::move(told));
  }
  return routing;
}

MoeReport MemoryRouter::report(Exec& exec, const Routing& routing,
                               const RoutingNotes& notes) const {
  MoeReport report{.layer = layer_, .memories = true, .aux_weight = options_.aux_loss};
  report.margin = smallest_of(download<float>(exec, notes.margin));
  // This rank's part of means over all tokens of the micro-batch.
  const double here = static_cast<double>(routing.probabilities.shape()[0]) /
                      static_cast<double>(std::max<int64_t>(1, routing.tokens));
  const Tensor mean = exec.empty({options_.memories});
  kernels::column_mean(exec, routing.probabilities, mean);
  const std::vector<float> fractions = download<float>(exec, routing.fraction),
                           means = download<float>(exec, mean);
  for (size_t e = 0; e < means.size(); ++e) {
    report.aux += here * static_cast<double>(options_.memories) * fractions[e] * means[e];
  }
  report.router_entropy = here * mean_of(download<float>(exec, notes.entropy));
  return report;
}

MemoryRouting MemoryRouter::forward(Exec& exec, const Tensor& x, StepContext* step) const {
  MemoryRouting routing;
  routing.routed = decide(exec, x, step);
  routing.index = routing.routed.index;
  routing.weight = routing.routed.weight;
  if (options_.shared) append_shared(exec, options_.memories, routing);
  return routing;
}

void MemoryRouter::backward(Exec& exec, const Tensor& x, const MemoryRouting& routing,
                            const Tensor& d_weight, const StepContext* step,
                            const Tensor& dx) const {
  const int64_t tokens = x.shape().rows();
  Tensor d_routed = d_weight;
  if (options_.shared) {
    d_routed = exec.empty({tokens, options_.top_k});
    kernels::copy(exec, d_weight.view().columns(0, options_.top_k), d_routed);
  }
  const double share = step == nullptr ? 0.0 : static_cast<double>(step->aux_scale);
  const double scale =
      options_.aux_loss * static_cast<double>(options_.memories) * share /
      (static_cast<double>(std::max<int64_t>(1, routing.routed.tokens)) * tensor_ranks_);
  const Tensor d_logits = exec.empty({tokens, options_.memories});
  kernels::route_backward(exec, rule(), {}, routing.routed.views(),
                          {.d_weight = d_routed,
                           .fraction = routing.routed.fraction,
                           .aux_scale = static_cast<float>(scale)},
                          d_logits);
  kernels::gemm(exec, d_logits, in_type(exec, x, DType::kF32), weight_.grad,
                {.a = Transpose::kYes, .write = Write::kAccumulate});
  kernels::gemm(exec, d_logits, weight_.value, dx, {.write = Write::kAccumulate});
}

}  // namespace weft
