#pragma once

#include <span>

#include "core/memory/exec.h"
#include "kernels/write.h"

// Matrix products. Row-major; a and b are both f32 or both bf16; c is f32 or bf16; sums are carried
// in f32. Results do not depend on the number of threads, and a row of c does not depend on how
// many other rows are computed with it.
namespace weft::kernels {

enum class Transpose : uint8_t { kNo, kYes };

struct GemmOptions {
  Transpose a = Transpose::kNo;
  Transpose b = Transpose::kNo;
  Write write = Write::kReplace;  // kAccumulate: into f32 alone
};

// c [m, n] = op(a) [m, k] op(b) [k, n]
void gemm(Exec& exec, ConstView a, ConstView b, View c, GemmOptions options = {});

// As above for each of `batch` matrices: a, b, c are [batch, rows, columns].
void batched_gemm(Exec& exec, ConstView a, ConstView b, View c, GemmOptions options = {});

// Right operands op(b_g) [k, n] of one or several products, rearranged for the kernels, so that a
// weight is rearranged once per optimizer step and not once per product. Where rearranging does not
// pay (or the library takes plain matrices) it only refers to `b`, which must stay alive and
// unchanged.
class PackedMatrices {
 public:
  PackedMatrices() = default;
  // b: [rows, columns], or [groups, rows, columns]
  PackedMatrices(Exec& exec, ConstView b, Transpose transpose);

  int64_t groups() const { return groups_; }
  int64_t k() const { return k_; }
  int64_t n() const { return n_; }
  bool packed() const { return panels_.defined(); }
  ConstView plain() const { return plain_; }
  Transpose transpose() const { return transpose_; }
  const Tensor& panels() const { return panels_; }

 private:
  int64_t groups_ = 0, k_ = 0, n_ = 0;
  ConstView plain_;
  Transpose transpose_ = Transpose::kNo;
  Tensor panels_;  // layout is the kernels' business; label kPacked
};

// c [m, n] = a [m, k] b
void gemm(Exec& exec, ConstView a, const PackedMatrices& b, View c, Write write = Write::kReplace);

// Experts: rows [offsets[g], offsets[g + 1]) of c = those rows of a, times b_g. offsets has groups
// + 1 entries, starts at 0, never falls, ends at c's row count. Groups may be empty and then cost
// nothing. With `gather` (i32, one for each row of c) row i of the left operand is row gather[i] of
// a.
void grouped_gemm(Exec& exec, ConstView a, std::span<const int64_t> offsets,
                  const PackedMatrices& b, View c, Write write = Write::kReplace,
                  ConstView gather = {});

// Weight gradients: c_g [m, n] (+)= (rows of group g of a [rows, m])^T (those rows of b [rows, n]);
// c: [groups, m, n]. With gather_a / gather_b the rows of that operand are taken through the index.
struct GroupedWeightOptions {
  Write write = Write::kAccumulate;
  ConstView gather_a = {};  // i32
  ConstView gather_b = {};
};
void grouped_gemm_weights(Exec& exec, ConstView a, ConstView b, std::span<const int64_t> offsets,
                          View c, const GroupedWeightOptions& options = {});

}  // namespace weft::kernels
