#include "kernels/rows/slots.h"

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/slots.h"

namespace weft::kernels {
namespace {

void check_f32(ConstView x, std::string_view name) {
  WEFT_CHECK(x.dtype == DType::kF32, "{} is {}, not f32", name, name_of(x.dtype));
}

SlotHeads checked(int64_t heads, ConstView x) {
  check_real(x, "slot_softmax: scores");
  WEFT_CHECK(heads > 0 && x.width() % heads == 0, "slot_softmax: {} heads in a width of {}", heads,
             x.width());
  return {heads, x.width() / heads};
}

}  // namespace

void slot_writes_forward(Exec& exec, ConstView g, View w) {
  check_f32(g, "slot_writes: g");
  const Extent extent = common_extent("slot_writes", g, w);
  const SlotsTable& table = table_of<SlotsTable>(exec.isa);
  for_tiles(exec, extent, [&](const Box& box) { table.writes(rows_of(g), rows_of(w), box); });
}

void slot_writes_backward(Exec& exec, ConstView g, ConstView dw, View dg) {
  check_f32(g, "slot_writes: g");
  check_f32(dg, "slot_writes: dg");
  const Extent extent = common_extent("slot_writes", g, dw, dg);
  const SlotsTable& table = table_of<SlotsTable>(exec.isa);
  for_tiles(exec, extent,
            [&](const Box& box) { table.writes_back(rows_of(g), rows_of(dw), rows_of(dg), box); });
}

void slot_softmax_forward(Exec& exec, int64_t heads, ConstView s, View p) {
  if (nothing_in(s)) return;
  const SlotHeads of = checked(heads, s);
  check_matrix(p, s.rows(), s.width(), "slot_softmax: p");
  const SlotsTable& table = table_of<SlotsTable>(exec.isa);
  for_blocks(exec, row_blocks(s.rows(), s.width()), [&](int64_t, int64_t begin, int64_t end) {
    table.softmax(of, rows_of(s), rows_of(p), {begin, end, 0, s.width()});
  });
}

void slot_softmax_backward(Exec& exec, int64_t heads, ConstView p, ConstView dp, View ds) {
  if (nothing_in(p)) return;
  const SlotHeads of = checked(heads, p);
  check_matrix(dp, p.rows(), p.width(), "slot_softmax: dp");
  check_matrix(ds, p.rows(), p.width(), "slot_softmax: ds");
  const SlotsTable& table = table_of<SlotsTable>(exec.isa);
  for_blocks(exec, row_blocks(p.rows(), p.width()), [&](int64_t, int64_t begin, int64_t end) {
    table.softmax_back(of, rows_of(p), rows_of(dp), rows_of(ds), {begin, end, 0, p.width()});
  });
}

}  // namespace weft::kernels
