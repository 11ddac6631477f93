#include "kernels/rows/ranges.h"

#include "kernels/dispatch.h"
#include "kernels/rows/cpu/ranges.h"

namespace weft::kernels {

void copy_ranges(Exec& exec, std::span<const CopiedRange> ranges) {
  int64_t bytes = 0;
  for (const auto& [x, y] : ranges) {
    WEFT_CHECK(x.dtype == y.dtype && x.shape.elements() == y.shape.elements() && x.contiguous() &&
                   y.contiguous(),
               "copy_ranges: {} {} to {} {}", name_of(x.dtype), x.shape, name_of(y.dtype), y.shape);
    bytes += bytes_of(x);
  }
  if (bytes == 0) return;
  dispatch(exec,
           {.name = "copy_ranges", .type = ranges[0].x.dtype, .read = bytes, .written = bytes},
           cpu::copy_ranges, ranges);
}

}  // namespace weft::kernels
