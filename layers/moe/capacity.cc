#include "layers/moe/capacity.h"

#include "kernels/routing/shared_choices.h"

namespace weft {

kernels::ExpertOrder within_capacity(Exec& exec, const Capacity& capacity, const Routing& routing,
                                     int64_t experts, const StepContext& context) {
  Communicator* ranks = context.token_ranks;
  if (ranks == nullptr) {
    return kernels::limit_to_capacity(exec, routing.order, routing.weight, capacity.pairs,
                                      capacity.keep);
  }
  const int64_t active = routing.index.shape()[1], words = kernels::choice_words(active);
  const int64_t most = ranks->hosts().max(routing.index.shape()[0]);
  const Tensor mine = exec.host({most, words}, DType::kI32),
               all = exec.host({ranks->size() * most, words}, DType::kI32);
  kernels::pack_choices(exec, routing.index, routing.weight,
                        {context.first_token, context.row_tokens}, mine);
  ranks->all_gather(exec, mine, all);
  const Shape pairs{routing.tokens, active};
  const Tensor index = exec.host(pairs, DType::kI32), weight = exec.host(pairs, DType::kF32),
               place = exec.host({routing.tokens}, DType::kI32);
  kernels::unpack_choices(exec, all, index, weight, place);
  const kernels::ExpertOrder order = kernels::limit_to_capacity(
      exec, kernels::order_by_expert(exec, index, experts), weight, capacity.pairs, capacity.keep);
  const Tensor kept = exec.host(routing.index.shape(), DType::kI32);
  kernels::keep_choices(exec, order.row, place, ranks->rank() * most, routing.index, kept);
  return kernels::order_by_expert(exec, kept, experts);
}

}  // namespace weft
