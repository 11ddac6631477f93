#include "parallel/expert_exchange.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/base/error.h"
#include "core/host_access.h"
#include "kernels/rows/gather.h"

namespace weft {
namespace {

int64_t sum(const std::vector<int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

// What goes to the ranks of one share of the experts. A pair is told as two words: its expert
// there, twice, plus one where it starts another row; and the bits of its weight.
struct Load {
  std::vector<int32_t> token;  // by row
  std::vector<int32_t> pair;   // of tokens x active
  std::vector<int32_t> words;  // two per pair
};

std::vector<Load> loads_of(const ExpertPlaces& places, const Tensor& index, const Tensor& weight,
                           const kernels::ExpertOrder& order) {
  std::vector<Load> loads(static_cast<size_t>(places.expert));
  const int64_t pairs = index.elements(), active = pairs == 0 ? 1 : index.shape()[1];
  const auto here = static_cast<int32_t>(places.experts / places.expert);
  const int32_t *expert = host<int32_t>(index), *row = host<int32_t>(order.row);
  for (int64_t p = 0; p < pairs; ++p) {
    if (row[p] < 0) continue;
    const auto token = static_cast<int32_t>(p / active);
    Load& load = loads[static_cast<size_t>(expert[p] / here)];
    const bool another_row =
        places.travel == Travel::kOncePerExpert || load.token.empty() || load.token.back() != token;
    if (another_row) load.token.push_back(token);
    load.pair.push_back(static_cast<int32_t>(p));
    load.words.push_back(2 * (expert[p] % here) + (another_row ? 1 : 0));
    load.words.push_back(std::bit_cast<int32_t>(host<float>(weight)[p]));
  }
  return loads;
}

// The lists `part` of all loads in the order of ranks.
Tensor joined(Exec& exec, const ExpertPlaces& places, const std::vector<Load>& loads,
              std::vector<int32_t> Load::*part) {
  int64_t count = 0;
  for (const Load& load : loads) count += std::ssize(load.*part) * places.width;
  const Tensor out = exec.empty({count}, DType::kI32);
  int32_t* to = host<int32_t>(out);
  for (const Load& load : loads) {
    for (int w = 0; w < places.width; ++w) {
      to = std::copy((load.*part).begin(), (load.*part).end(), to);
    }
  }
  return out;
}

// Which rows come back for a token: rank by rank, or in the order of its choices.
Tensor returning_rows(Exec& exec, const ExpertPlaces& places, const std::vector<Load>& loads,
                      const Shape& choices) {
  const int64_t tokens = choices[0], active = choices[1], width = places.width;
  const bool by_choice = places.travel == Travel::kOncePerExpert;
  const int64_t slots = width * (by_choice ? active : std::min<int64_t>(active, places.expert));
  const Tensor out = exec.empty({tokens, slots}, DType::kI32);
  int32_t* row = host<int32_t>(out);
  std::fill_n(row, out.elements(), -1);
  std::vector<int64_t> used(static_cast<size_t>(by_choice ? 0 : tokens));
  int64_t first = 0;
  for (const Load& load : loads) {
    const int64_t rows = std::ssize(load.token);
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t token = load.token[static_cast<size_t>(r)];
      const int64_t slot = by_choice ? load.pair[static_cast<size_t>(r)] % active
                                     : used[static_cast<size_t>(token)]++;
      for (int64_t w = 0; w < width; ++w) {
        row[token * slots + slot * width + w] = static_cast<int32_t>(first + w * rows + r);
      }
    }
    first += width * rows;
  }
  return out;
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

// Most pairs that a row has, of those that `words` tell.
int64_t longest_row(const int32_t* words, int64_t pairs) {
  int64_t longest = 0, length = 0;
  for (int64_t p = 0; p < pairs; ++p) {
    length = words[2 * p] % 2 == 1 ? 1 : length + 1;
    longest = std::max(longest, length);
  }
  return longest;
}

void read_words(Exec& exec, const Tensor& words, int64_t experts_here, ExpertExchange& exchange) {
  const int64_t pairs = sum(exchange.received.pairs), rows = sum(exchange.received.rows);
  const int32_t* word = host<int32_t>(words);
  const int64_t choices = longest_row(word, pairs);
  const Tensor index = exec.scratch({rows, choices}, DType::kI32);
  exchange.weight = exec.zeros({rows, choices});
  exchange.place = exec.empty({pairs}, DType::kI32);
  std::fill_n(host<int32_t>(index), index.elements(), -1);
  int64_t row = -1, choice = 0;
  for (int64_t p = 0; p < pairs; ++p) {
    const int32_t told = word[2 * p];
    choice = told % 2 == 1 ? 0 : choice + 1;
    row += told % 2;
    WEFT_CHECK(row >= 0 && row < rows && told >= 0 && told / 2 < experts_here,
               "expert exchange: pair {} is for row {} of {}, expert {} of {}", p, row, rows,
               told / 2, experts_here);
    const int64_t at = row * choices + choice;
    host<int32_t>(index)[at] = told / 2;
    host<float>(exchange.weight)[at] = std::bit_cast<float>(word[2 * p + 1]);
    host<int32_t>(exchange.place)[p] = static_cast<int32_t>(at);
  }
  WEFT_CHECK(row + 1 == rows, "expert exchange: {} rows were told of, {} come", row + 1, rows);
  exchange.order = kernels::order_by_expert(exec, index, experts_here);
}

std::span<const int32_t> as_span(const Tensor& index) {
  return {host<int32_t>(index), static_cast<size_t>(index.elements())};
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
  const std::vector<Load> loads = loads_of(places, index, weight, order);
  ExpertExchange exchange;
  for (const Load& load : loads) {
    for (int w = 0; w < places.width; ++w) {
      exchange.sent.rows.push_back(std::ssize(load.token));
      exchange.sent.pairs.push_back(std::ssize(load.pair));
    }
  }
  exchange.active = index.shape()[1];
  exchange.pair = joined(exec, places, loads, &Load::pair);
  exchange.back.token = joined(exec, places, loads, &Load::token);
  exchange.back.row = returning_rows(exec, places, loads, index.shape());
  exchange.received = exchange_traffic(ranks.hosts(), exchange.sent);

  const Tensor out =
      joined(exec, places, loads, &Load::words).reshaped({sum(exchange.sent.pairs), 2});
  const Tensor in = exec.empty({sum(exchange.received.pairs), 2}, DType::kI32);
  ranks.all_to_all_v(exec, out, exchange.sent.pairs, in, exchange.received.pairs);
  read_words(exec, in, places.experts / places.expert, exchange);
  return exchange;
}

PendingTensor start_dispatch(Exec& exec, Communicator& ranks, const ExpertExchange& exchange,
                             const Tensor& tokens, Overlap overlap) {
  const int64_t width = tokens.shape().back();
  const Tensor out = exec.empty({sum(exchange.sent.rows), width}, tokens.dtype());
  kernels::gather_rows(exec, tokens, as_span(exchange.back.token), out);
  return start_rows(exec, ranks, out, exchange.sent.rows, exchange.received.rows, overlap);
}

PendingTensor start_return(Exec& exec, Communicator& ranks, const ExpertExchange& exchange,
                           const Tensor& rows, Overlap overlap) {
  return start_rows(exec, ranks, rows, exchange.received.rows, exchange.sent.rows, overlap);
}

PendingTensor start_return_weights(Exec& exec, Communicator& ranks, const ExpertExchange& exchange,
                                   const Tensor& per_choice, Overlap overlap) {
  const Tensor out = exec.empty({exchange.place.elements(), 1});
  for (int64_t p = 0; p < out.elements(); ++p) {
    host<float>(out)[p] = host<float>(per_choice)[host<int32_t>(exchange.place)[p]];
  }
  return start_rows(exec, ranks, out, exchange.received.pairs, exchange.sent.pairs, overlap);
}

void combine_returned(Exec& exec, const ExpertExchange& exchange, const Tensor& rows,
                      const Tensor& y) {
  kernels::combine_rows(exec, exchange.back.row, rows, y);
}

Tensor combine_weights(Exec& exec, const ExpertExchange& exchange, const Tensor& per_pair) {
  const Tensor back = exec.zeros({exchange.back.row.shape()[0], exchange.active});
  for (int64_t p = 0; p < per_pair.elements(); ++p) {
    host<float>(back)[host<int32_t>(exchange.pair)[p]] += host<float>(per_pair)[p];
  }
  return back;
}

}  // namespace weft
