#pragma once

#include "core/memory/host_table.h"
#include "kernels/write.h"

// The order in which experts see tokens. The n * k (token, choice) pairs are sorted by expert, then
// by token, then by choice. A pair whose expert is negative, or beyond the capacity of its expert,
// has no row. Numbers are f32 unless said otherwise.
namespace weft::kernels {

struct ExpertOrder {
  HostTable<int64_t> offsets;  // [experts + 1]: rows of expert e are offsets[e] .. offsets[e + 1]
  Tensor token;                // i32 [rows]: sorted row -> token
  Tensor row;                  // i32 [n, k]: pair -> sorted row, or -1
};

// Host code reads the counts to make the offsets, once per layer and micro-batch.
ExpertOrder order_by_expert(Exec& exec, ConstView index, int64_t experts);

// The order of the pairs that stay when no expert takes more than `capacity`: its first ones, or
// those of the largest weight [n, k] (ties: the lower token). Every pair of `order` has a row.
enum class Keep : uint8_t { kFirst, kHeaviest };
ExpertOrder limit_to_capacity(Exec& exec, const ExpertOrder& order, ConstView weight,
                              int64_t capacity, Keep keep);

// count [experts] (i64) = pairs of index i32 [n, k] with each expert
void count_pairs(Exec& exec, ConstView index, View count);
// token, row of an ExpertOrder with these offsets, which are the sums of the counts.
void order_pairs(Exec& exec, ConstView index, const HostTable<int64_t>& offsets, View token,
                 View row);
// kept_token, kept_row of the order in which expert e keeps as many rows as kept_offsets say, by
// weight where one is given, else its first.
struct KeepPairs {
  HostTable<int64_t> offsets;
  ConstView token, row, weight;
  HostTable<int64_t> kept_offsets;
  View kept_token, kept_row;
};
void keep_pairs(Exec& exec, const KeepPairs& call);

// sorted [rows] = values [n, k] at their rows row [n, k], and back; 0 for a pair without a row.
void permute_pairs(Exec& exec, ConstView row, ConstView values, View sorted);
void unpermute_pairs(Exec& exec, ConstView row, ConstView sorted, View values);

// y [n, d] (+)= sum over k of rows [rows, d] at row [n, k], in the order of k. f32 or bf16, each on
// its own.
void combine_rows(Exec& exec, ConstView row, ConstView rows, View y, Write write = Write::kReplace);

}  // namespace weft::kernels
