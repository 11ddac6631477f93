#include "kernels/rows/rope.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/rows/cpu/rope.h"

namespace weft::kernels {
namespace {

void check(const Rope& rope, ConstView x) {
  check_real(x, "rope: x");
  WEFT_CHECK(rope.heads * rope.head_width == x.width(), "rope: {} channels, {} heads of {}",
             x.width(), rope.heads, rope.head_width);
  WEFT_CHECK(
      rope.rotary_width >= 0 && rope.rotary_width % 2 == 0 && rope.rotary_width <= rope.head_width,
      "rope: rotary width {} of heads of {}", rope.rotary_width, rope.head_width);
  WEFT_CHECK(rope.frequencies.empty() || std::ssize(rope.frequencies) == rope.rotary_width / 2,
             "rope: {} frequencies for {} pairs", rope.frequencies.size(), rope.rotary_width / 2);
}

}  // namespace

void rope(Exec& exec, const Rope& rope, ConstView positions, View x) {
  if (nothing_in(x) || rope.rotary_width == 0) return;
  check(rope, x);
  check_vector<int32_t>(positions, x.rows(), "rope: positions");
  const int64_t turned = x.rows() * rope.heads * rope.rotary_width;
  dispatch(exec,
           {.name = "rope",
            .type = x.dtype,
            .flops = 3.0 * static_cast<double>(turned),
            .read = bytes_of(positions) + turned * size_of(x.dtype),
            .written = turned * size_of(x.dtype)},
           cpu::rope, rope, positions, x);
}

}  // namespace weft::kernels
