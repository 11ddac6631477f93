#include "kernels/model/cross_entropy.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/model/cpu/cross_entropy.h"

namespace weft::kernels {
namespace {

constexpr int64_t kParts = 3;  // numbers of a row

void check(ConstView logits, ConstView targets) {
  check_f32(logits, "cross_entropy: logits");
  check_vector<int32_t>(targets, logits.rows(), "cross_entropy: targets");
}

}  // namespace

void cross_entropy(Exec& exec, ConstView logits, ConstView targets, float grad_scale, View losses,
                   View d_logits) {
  if (nothing_in(logits)) return;
  check(logits, targets);
  check_numbers(losses, logits.rows(), "cross_entropy: losses");
  if (given(d_logits)) {
    check_matrix(d_logits, logits.rows(), logits.width(), "cross_entropy: d_logits");
  }
  dispatch(exec,
           {.name = "cross_entropy",
            .flops = 4 * elements(logits) + 4 * elements(d_logits),
            .read = bytes_of(logits, targets),
            .written = bytes_of(losses, d_logits)},
           cpu::cross_entropy, logits, targets, grad_scale, losses, d_logits);
}

void cross_entropy_parts(Exec& exec, ConstView logits, ConstView targets,
                         const VocabularySlice& slice, View parts) {
  if (logits.rows() == 0) return;  // a slice without columns has parts too
  check(logits, targets);
  check_numbers(parts, logits.rows() * kParts, "cross_entropy: parts");
  dispatch(exec,
           {.name = "cross_entropy_parts",
            .flops = 4 * elements(logits),
            .read = bytes_of(logits, targets),
            .written = bytes_of(parts)},
           cpu::cross_entropy_parts, logits, targets, slice, parts);
}

void cross_entropy_slice(Exec& exec, const SlicedCrossEntropy& call, const VocabularySlice& slice) {
  if (call.logits.rows() == 0) return;
  const int64_t rows = call.logits.rows();
  check(call.logits, call.targets);
  check_numbers(call.losses, rows, "cross_entropy: losses");
  const int64_t ranks = call.all.shape.elements() / (rows * kParts);
  check_numbers(call.all, ranks * rows * kParts, "cross_entropy: all parts");
  if (given(call.d_logits)) {
    check_matrix(call.d_logits, rows, call.logits.width(), "cross_entropy: d_logits");
  }
  dispatch(exec,
           {.name = "cross_entropy_slice",
            .flops = 4 * elements(call.d_logits) + 2 * elements(call.all),
            .read = bytes_of(call.targets, call.all) +
                    (given(call.d_logits) ? bytes_of(call.logits) : 0),
            .written = bytes_of(call.losses, call.d_logits)},
           cpu::cross_entropy_slice, call, slice);
}

}  // namespace weft::kernels
