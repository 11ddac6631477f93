#include "kernels/states/packed_rows.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/states/cpu/packed_rows.h"

namespace weft::kernels {
namespace {

void check_packed(ConstView matrix, ConstView packed, int64_t first_byte, ConstView index,
                  std::string_view name) {
  check_real(matrix, name);
  check_vector<int32_t>(packed, packed.shape.elements(), name);
  check_vector<int32_t>(index, packed.rows(), name);
  const int64_t end = first_byte + matrix.width() * size_of(matrix.dtype);
  WEFT_CHECK(
      matrix.contiguous() && first_byte >= 0 && end <= packed.width() * size_of(packed.dtype),
      "{}: rows of {} end at byte {} of {} words", name, matrix.shape, end, packed.width());
}

}  // namespace

void pack_rows(Exec& exec, ConstView from, ConstView index, int64_t first_byte, View packed) {
  if (nothing_in(packed)) return;
  check_packed(from, packed, first_byte, index, "pack_rows");
  const int64_t bytes = packed.rows() * from.width() * size_of(from.dtype);
  dispatch(exec, {.name = "pack_rows", .type = from.dtype, .read = bytes, .written = bytes},
           cpu::pack_rows, from, index, first_byte, packed);
}

void unpack_rows(Exec& exec, ConstView packed, int64_t first_byte, ConstView index, View to) {
  if (nothing_in(packed)) return;
  check_packed(to, packed, first_byte, index, "unpack_rows");
  const int64_t bytes = packed.rows() * to.width() * size_of(to.dtype);
  dispatch(exec, {.name = "unpack_rows", .type = to.dtype, .read = bytes, .written = bytes},
           cpu::unpack_rows, packed, first_byte, index, to);
}

void add_packed_rows(Exec& exec, ConstView packed, int64_t first_byte, ConstView index, View to) {
  if (nothing_in(packed)) return;
  check_f32(to, "add_packed_rows: to");
  check_packed(to, packed, first_byte, index, "add_packed_rows");
  WEFT_CHECK(first_byte % size_of(to.dtype) == 0, "add_packed_rows: first byte {}", first_byte);
  const int64_t bytes = packed.rows() * to.width() * size_of(to.dtype);
  dispatch(exec,
           {.name = "add_packed_rows",
            .flops = static_cast<double>(packed.rows() * to.width()),
            .read = 2 * bytes,
            .written = bytes},
           cpu::add_packed_rows, packed, first_byte, index, to);
}

}  // namespace weft::kernels
