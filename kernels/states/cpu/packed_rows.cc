#include "kernels/states/cpu/packed_rows.h"

#include <cstring>

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/elementwise.h"

namespace weft::kernels::cpu {
namespace {

// each(row of the matrix, packed row) for all packed rows.
template <class Each>
void each_packed_row(Exec& exec, ConstView matrix, ConstView index, ConstView packed, Each each) {
  const auto* picked = host<int32_t>(index);
  for_blocks(exec, row_blocks(packed.rows(), matrix.width()),
             [&](int64_t, int64_t begin, int64_t end) {
               for (int64_t r = begin; r < end; ++r) {
                 WEFT_CHECK(picked[r] >= 0 && picked[r] < matrix.rows(),
                            "packed rows: row {} of {}", picked[r], matrix.rows());
                 each(picked[r], r);
               }
             });
}

template <class V>
auto bytes_at(const V& rows, int64_t row, int64_t first_byte = 0) {
  using Char = std::conditional_t<std::is_same_v<V, View>, char, const char>;
  return static_cast<Char*>(host_bytes(rows)) + row * rows.width() * size_of(rows.dtype) +
         first_byte;
}

}  // namespace

void pack_rows(Exec& exec, ConstView from, ConstView index, int64_t first_byte, View packed) {
  const auto bytes = static_cast<size_t>(from.width() * size_of(from.dtype));
  each_packed_row(exec, from, index, packed, [&](int64_t row, int64_t r) {
    std::memcpy(bytes_at(packed, r, first_byte), bytes_at(from, row), bytes);
  });
}

void unpack_rows(Exec& exec, ConstView packed, int64_t first_byte, ConstView index, View to) {
  const auto bytes = static_cast<size_t>(to.width() * size_of(to.dtype));
  each_packed_row(exec, to, index, packed, [&](int64_t row, int64_t r) {
    std::memcpy(bytes_at(to, row), bytes_at(packed, r, first_byte), bytes);
  });
}

void add_packed_rows(Exec& exec, ConstView packed, int64_t first_byte, ConstView index, View to) {
  const ElementwiseTable& table = table_of<ElementwiseTable>(exec.isa);
  const Box whole{0, 1, 0, to.width()};
  each_packed_row(exec, to, index, packed, [&](int64_t row, int64_t r) {
    char* sum = bytes_at(to, row);
    table.add({{bytes_at(packed, r, first_byte), 0, to.dtype},
               {sum, 0, to.dtype},
               {sum, 0, to.dtype},
               1.0f},
              whole);
  });
}

}  // namespace weft::kernels::cpu
