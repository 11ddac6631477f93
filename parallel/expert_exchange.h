#pragma once

#include <vector>

#include "kernels/router.h"
#include "parallel/communicator.h"

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
  Tensor pair;                // i32 [pairs sent]: which of tokens x active
  kernels::ExpertOrder back;  // token: of every row sent; row: those that come back, in order
  int64_t active = 0;

  // This rank as the owner of experts. Its experts see rows as one rank's experts see tokens.
  Traffic received;
  Tensor weight;               // f32 [rows received, choices], 0 where there is no pair
  kernels::ExpertOrder order;  // of those choices, over the experts here
  Tensor place;                // i32 [pairs received]: where in `weight` each stands
};

// Collective over `ranks`. index, weight [tokens, active]: the experts of this rank's tokens; pairs
// without a row in `order` do not travel.
ExpertExchange plan_exchange(Exec& exec, Communicator& ranks, const ExpertPlaces& places,
                             const Tensor& index, const Tensor& weight,
                             const kernels::ExpertOrder& order);

// Rows on their way. Those of today have arrived when they are started: communicators cannot leave
// an exchange under way. Callers put what needs no rows before arrived().
class RowsUnderWay {
 public:
  explicit RowsUnderWay(Tensor to) : to_(std::move(to)) {}
  Tensor arrived() { return to_; }

 private:
  Tensor to_;
};

// tokens [tokens, d] -> [rows received, d], on the ranks of their experts. Started; collective.
RowsUnderWay start_dispatch(Exec& exec, Communicator& ranks, const ExpertExchange& exchange,
                            const Tensor& tokens);
// rows [rows received, d] -> [rows sent, d], on the ranks of their tokens. Started; collective.
RowsUnderWay start_return(Exec& exec, Communicator& ranks, const ExpertExchange& exchange,
                          const Tensor& rows);
// y [tokens, d] f32 = the sum of what came back for each token.
void combine_returned(Exec& exec, const ExpertExchange& exchange, const Tensor& rows,
                      const Tensor& y);
// One number per choice of the rows received -> [tokens, active], f32; summed where the width of
// experts is cut. Collective.
Tensor return_weights(Exec& exec, Communicator& ranks, const ExpertExchange& exchange,
                      const Tensor& per_choice);

}  // namespace weft
