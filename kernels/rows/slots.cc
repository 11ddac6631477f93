#include "kernels/rows/slots.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/rows/cpu/slots.h"

namespace weft::kernels {

void slot_writes_forward(Exec& exec, ConstView g, View w) {
  if (nothing_in(g)) return;
  check_f32(g, "slot_writes: g");
  check_alike("slot_writes", g, w);
  dispatch(exec,
           {.name = "slot_writes_forward",
            .flops = 13 * elements(g),
            .read = bytes_of(g),
            .written = bytes_of(w)},
           cpu::slot_writes_forward, g, w);
}

void slot_writes_backward(Exec& exec, ConstView g, ConstView dw, View dg) {
  if (nothing_in(g)) return;
  check_f32(g, "slot_writes: g");
  check_f32(dg, "slot_writes: dg");
  check_alike("slot_writes", g, dw, dg);
  dispatch(exec,
           {.name = "slot_writes_backward",
            .flops = 3 * elements(g),
            .read = bytes_of(g, dw, dg),
            .written = bytes_of(dg)},
           cpu::slot_writes_backward, g, dw, dg);
}

}  // namespace weft::kernels
