#include "kernels/model/adamw.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/model/cpu/adamw.h"

namespace weft::kernels {

void adamw(Exec& exec, const AdamW& options, View master, ConstView grad, View m, View v,
           View value) {
  if (nothing_in(master)) return;
  WEFT_CHECK(options.step >= 1, "adamw: step {}, they count from 1", options.step);
  const int64_t count = master.shape.elements();
  check_numbers(master, count, "adamw: master");
  check_numbers(grad, count, "adamw: grad");
  check_numbers(m, count, "adamw: m");
  check_numbers(v, count, "adamw: v");
  if (given(value)) check_vector<bf16>(value, count, "adamw: value");
  dispatch(exec,
           {.name = "adamw",
            .flops = 15 * elements(master),
            .read = bytes_of(master, grad, m, v),
            .written = bytes_of(master, m, v, value)},
           cpu::adamw, options, master, grad, m, v, value);
}

}  // namespace weft::kernels
