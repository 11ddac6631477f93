#include "kernels/rows/cpu/slots.h"

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/slots.h"

namespace weft::kernels::cpu {

void slot_writes_forward(Exec& exec, ConstView g, View w) {
  const SlotsTable& table = table_of<SlotsTable>(exec.isa);
  for_tiles(exec, common_extent(g, w),
            [&](const Box& box) { table.writes(rows_of(g), rows_of(w), box); });
}

void slot_writes_backward(Exec& exec, ConstView g, ConstView dw, View dg) {
  const SlotsTable& table = table_of<SlotsTable>(exec.isa);
  for_tiles(exec, common_extent(g, dw, dg),
            [&](const Box& box) { table.writes_back(rows_of(g), rows_of(dw), rows_of(dg), box); });
}

}  // namespace weft::kernels::cpu
