#include "parallel/expert_exchange.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "kernels/rows/gather.h"

namespace weft {
namespace {

int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// The load of the ranks of one share of the experts. The word of a pair is its expert there,
// twice, plus one where it starts another row.
struct Load {
  std::vector<int32_t> token;  // by row
  std::vector<int32_t> pair;   // of tokens x active
  std::vector<int32_t> word;   // by pair
};

std::vector<Load> loads_of(const ExpertPlaces& places, const std::vector<int32_t>& expert,
                           const std::vector<int32_t>& row, int64_t active) {
  std::vector<Load> loads(static_cast<size_t>(places.expert));
  const auto here = static_cast<int32_t>(places.experts / places.expert);
  for (size_t p = 0; p < expert.size(); ++p) {
    if (row[p] < 0) continue;
    const auto token = static_cast<int32_t>(static_cast<int64_t>(p) / active);
    Load& load = loads[static_cast<size_t>(expert[p] / here)];
    const bool another_row =
        places.travel == Travel::kOncePerExpert || load.token.empty() || load.token.back() != token;
    if (another_row) load.token.push_back(token);
    load.pair.push_back(static_cast<int32_t>(p));
    load.word.push_back(2 * (expert[p] % here) + (another_row ? 1 : 0));
  }
  return loads;
}

// The lists `part` of all loads in the order of ranks.
HostTable<int32_t> joined(const ExpertPlaces& places, const std::vector<Load>& loads,
                          std::vector<int32_t> Load::*part) {
  std::vector<int32_t> out;
  for (const Load& load : loads) {
    for (int w = 0; w < places.width; ++w) {
      out.insert(out.end(), (load.*part).begin(), (load.*part).end());
    }
  }
  return HostTable<int32_t>(std::move(out));
}

// The rows that come back for a token: rank by rank, or in the order of its choices.
HostTable<int32_t> returning_rows(const ExpertPlaces& places, const std::vector<Load>& loads,
                                  int64_t tokens, int64_t active) {
  const int64_t width = places.width;
  const bool by_choice = places.travel == Travel::kOncePerExpert;
  const int64_t slots = width * (by_choice ? active : std::min<int64_t>(active, places.expert));
  std::vector<int32_t> row(static_cast<size_t>(tokens * slots), -1);
  std::vector<int64_t> used(static_cast<size_t>(by_choice ? 0 : tokens));
  int64_t first = 0;
  for (const Load& load : loads) {
    const int64_t rows = std::ssize(load.token);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t token = load.token[static_cast<size_t>(r)];
      const int64_t slot = by_choice ? load.pair[static_cast<size_t>(r)] % active
                                     : used[static_cast<size_t>(token)]++;
      for (int64_t w = 0; w < width; ++w) {
        row[static_cast<size_t>(token * slots + slot * width + w)] =
            static_cast<int32_t>(first + w * rows + r);
      }
    }
    first += width * rows;
  }
  return HostTable<int32_t>(std::move(row));
}

// The pairs that come back for a choice: one from each rank that holds a part of its expert.
HostTable<int32_t> returning_pairs(const ExpertPlaces& places, const std::vector<Load>& loads,
                                   int64_t choices) {
  const auto width = static_cast<size_t>(places.width);
  std::vector<int32_t> returned(static_cast<size_t>(choices) * width, -1);
  int32_t at = 0;
  for (const Load& load : loads) {
    for (size_t w = 0; w < width; ++w) {
      for (const int32_t pair : load.pair) {
        returned[static_cast<size_t>(pair) * width + w] = at++;
      }
    }
  }
  return HostTable<int32_t>(std::move(returned));
}

// A table as a matrix for kernels and communicators.
ConstView matrix(Exec& exec, const HostTable<int32_t>& table, int64_t width) {
  const ConstView all = table.view(exec);
  return {all.data, {all.shape.elements() / width, width}, width, all.dtype, all.device};
}

// How many rows and pairs every rank sends here.
ExpertExchange::Traffic exchange_traffic(HostGroup& ranks, const ExpertExchange::Traffic& sent) {
  std::vector<int64_t> to_each;
  for (size_t r = 0; r < sent.rows.size(); ++r) {
    to_each.insert(to_each.end(), {sent.rows[r], sent.pairs[r]});
  }
  const std::vector<int64_t> from_each = ranks.exchange(to_each);
  ExpertExchange::Traffic received;
  for (size_t r = 0; r < sent.rows.size(); ++r) {
    received.rows.push_back(from_each[2 * r]);
    received.pairs.push_back(from_each[2 * r + 1]);
  }
  return received;
}

int64_t longest_row(const std::vector<int32_t>& words) {  // in pairs
  int64_t longest = 0, length = 0;
  for (const int32_t word : words) {
    length = word % 2 == 1 ? 1 : length + 1;
    longest = std::max(longest, length);
  }
  return longest;
}

// Orders the pairs that came by the words that came with them.
void read_words(Exec& exec, const std::vector<int32_t>& words, ConstView weights,
                int64_t experts_here, ExpertExchange& exchange) {
  const int64_t rows = sum(exchange.received.rows), choices = longest_row(words);
  std::vector<int32_t> index(static_cast<size_t>(rows * choices), -1), place;
  int64_t row = -1, choice = 0;
  for (const int32_t word : words) {
    choice = word % 2 == 1 ? 0 : choice + 1;
    row += word % 2;
    WEFT_CHECK(row >= 0 && row < rows && word >= 0 && word / 2 < experts_here,
               "expert exchange: pair {} is for row {} of {}, expert {} of {}", place.size(), row,
               rows, word / 2, experts_here);
    place.push_back(static_cast<int32_t>(row * choices + choice));
    index[static_cast<size_t>(place.back())] = word / 2;
  }
  WEFT_CHECK(row + 1 == rows, "expert exchange: {} rows were announced, {} come", rows, row + 1);
  exchange.place = HostTable<int32_t>(std::move(place));
  exchange.weight = exec.zeros({rows, choices});
  kernels::permute_pairs(exec, exchange.place.view(exec), weights, exchange.weight);
  const HostTable<int32_t> chosen(std::move(index));
  const ConstView flat = chosen.view(exec);
  exchange.order = kernels::order_by_expert(
      exec, {flat.data, {rows, choices}, choices, flat.dtype, flat.device}, experts_here);
}

PendingTensor start_rows(Exec& exec, Communicator& ranks, const Tensor& out,
                         const std::vector<int64_t>& leave, const std::vector<int64_t>& come,
                         Overlap overlap) {
  const Tensor in = exec.empty({sum(come), out.shape().back()}, out.dtype());
  if (overlap == Overlap::kOn) {
    return {out, in, ranks.start_all_to_all_v(exec, out, leave, in, come)};
  }
  ranks.all_to_all_v(exec, out, leave, in, come);
  return PendingTensor(in);
}

}  // namespace

ExpertExchange plan_exchange(Exec& exec, Communicator& ranks, const ExpertPlaces& places,
                             const Tensor& index, const Tensor& weight,
                             const kernels::ExpertOrder& order) {
  WEFT_CHECK(ranks.size() == places.expert * places.width && places.experts % places.expert == 0,
             "{}: {} experts over {} ranks, each over {}", ranks.name(), places.experts,
             places.expert, places.width);
  const int64_t tokens = index.shape()[0], active = index.shape()[1];
  const std::vector<Load> loads =
      loads_of(places, download<int32_t>(exec, index), download<int32_t>(exec, order.row), active);
  ExpertExchange exchange;
  for (const Load& load : loads) {
    for (int w = 0; w < places.width; ++w) {
      exchange.sent.rows.push_back(std::ssize(load.token));
      exchange.sent.pairs.push_back(std::ssize(load.pair));
    }
  }
  exchange.tokens = tokens;
  exchange.active = active;
  exchange.token = joined(places, loads, &Load::token);
  exchange.row = returning_rows(places, loads, tokens, active);
  exchange.returned = returning_pairs(places, loads, tokens * active);
  exchange.received = exchange_traffic(ranks.hosts(), exchange.sent);

  const std::vector<int64_t>&leave = exchange.sent.pairs, &come = exchange.received.pairs;
  const HostTable<int32_t> words = joined(places, loads, &Load::word),
                           pairs = joined(places, loads, &Load::pair);
  const Tensor words_in = exec.scratch({sum(come), 1}, DType::kI32),
               weights_out = exec.scratch({sum(leave), 1}),
               weights_in = exec.scratch({sum(come), 1});
  kernels::unpermute_pairs(exec, pairs.view(exec), weight, weights_out);
  ranks.all_to_all_v(exec, matrix(exec, words, 1), leave, words_in, come);
  ranks.all_to_all_v(exec, weights_out, leave, weights_in, come);
  read_words(exec, download<int32_t>(exec, words_in), weights_in, places.experts / places.expert,
             exchange);
  return exchange;
}

PendingTensor start_dispatch(Exec& exec, Communicator& ranks, const ExpertExchange& exchange,
                             const Tensor& tokens, Overlap overlap) {
  const int64_t width = tokens.shape().back();
  const Tensor out = exec.empty({sum(exchange.sent.rows), width}, tokens.dtype());
  kernels::gather_rows(exec, tokens, exchange.token.view(exec), out);
  return start_rows(exec, ranks, out, exchange.sent.rows, exchange.received.rows, overlap);
}

PendingTensor start_return(Exec& exec, Communicator& ranks, const ExpertExchange& exchange,
                           const Tensor& rows, Overlap overlap) {
  return start_rows(exec, ranks, rows, exchange.received.rows, exchange.sent.rows, overlap);
}

PendingTensor start_return_weights(Exec& exec, Communicator& ranks, const ExpertExchange& exchange,
                                   const Tensor& per_choice, Overlap overlap) {
  const ConstView place = exchange.place.view(exec);
  const Tensor out = exec.empty({place.shape.elements(), 1});
  kernels::unpermute_pairs(exec, place, per_choice, out);
  return start_rows(exec, ranks, out, exchange.received.pairs, exchange.sent.pairs, overlap);
}

void combine_returned(Exec& exec, const ExpertExchange& exchange, const Tensor& rows,
                      const Tensor& y) {
  if (exchange.tokens == 0) return;
  const int64_t slots = std::ssize(exchange.row.host()) / exchange.tokens;
  kernels::combine_rows(exec, matrix(exec, exchange.row, slots), rows, y);
}

Tensor combine_weights(Exec& exec, const ExpertExchange& exchange, const Tensor& per_pair) {
  const int64_t choices = exchange.tokens * exchange.active;
  const Tensor back = exec.zeros({exchange.tokens, exchange.active});
  if (choices == 0) return back;
  const int64_t width = std::ssize(exchange.returned.host()) / choices;
  kernels::combine_rows(exec, matrix(exec, exchange.returned, width), per_pair,
                        back.reshaped({choices, 1}));
  return back;
}

}  // namespace weft
