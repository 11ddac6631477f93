#pragma once

#include <vector>

#include "kernels/routing/expert_order.h"
#include "parallel/comm/pending_tensor.h"

namespace weft {

// How often a token crosses to a rank that holds several of its experts. Once: their outputs are
// summed there, which saves bytes. Once per expert: every output comes back by itself and is added
// as if all experts were here, so that it does not matter to a single bit where they are.
enum class Travel : uint8_t { kOncePerRank, kOncePerExpert };

// Experts are cut over `expert` ranks, as many on each, and the width of every expert over `width`
// ranks; rank e * width + w of the group holds part w of the e-th share.
struct ExpertPlaces {
  int64_t experts = 0;  // of the layer
  int expert = 1, width = 1;
  Travel travel = Travel::kOncePerRank;
};

// What travels between ranks that share the experts: made once from the routing of a micro-batch
// and used by every exchange that follows from it, forward, backward and recomputed. A row is a
// token on its way to a rank; rows to all ranks lie one after the other.
struct ExpertExchange {
  struct Traffic {
    std::vector<int64_t> rows, pairs;  // by rank
  };
  // This rank as the owner of tokens.
  Traffic sent;
  int64_t tokens = 0, active = 0;
  HostTable<int32_t> token;  // [rows sent]
  HostTable<int32_t> row;    // [tokens, slots]: rows that come back for a token, in order, or -1
  HostTable<int32_t>
      returned;  // [tokens x active, width]: pairs that come back for a choice, or -1

  // This rank as the owner of experts. Its experts see rows as one rank's experts see tokens.
  Traffic received;
  Tensor weight;               // f32 [rows received, choices], 0 where there is no pair
  kernels::ExpertOrder order;  // of those choices, over the experts here
  HostTable<int32_t> place;    // [pairs received]: where in `weight` each stands
};

// Collective over `ranks`. index, weight [tokens, active]: the experts of this rank's tokens; pairs
// without a row in `order` do not travel.
ExpertExchange plan_exchange(Exec& exec, Communicator& ranks, const ExpertPlaces& places,
                             const Tensor& index, const Tensor& weight,
                             const kernels::ExpertOrder& order);

// The exchanges that follow are collective, and complete when they have started unless `overlap` is
// on.

// tokens [tokens, d] -> [rows received, d], on the ranks of their experts.
PendingTensor start_dispatch(Exec& exec, Communicator& ranks, const ExpertExchange& exchange,
                             const Tensor& tokens, Overlap overlap);
// rows [rows received, d] -> [rows sent, d], on the ranks of their tokens.
PendingTensor start_return(Exec& exec, Communicator& ranks, const ExpertExchange& exchange,
                           const Tensor& rows, Overlap overlap);
// One number per choice of the rows received -> one per pair sent [pairs, 1], f32.
PendingTensor start_return_weights(Exec& exec, Communicator& ranks, const ExpertExchange& exchange,
                                   const Tensor& per_choice, Overlap overlap);

// y [tokens, d] f32 = the sum of what came back for each token.
void combine_returned(Exec& exec, const ExpertExchange& exchange, const Tensor& rows,
                      const Tensor& y);
// [tokens, active], f32, of the numbers that came back; summed where the width of experts is cut.
Tensor combine_weights(Exec& exec, const ExpertExchange& exchange, const Tensor& per_pair);

}  // namespace weft
