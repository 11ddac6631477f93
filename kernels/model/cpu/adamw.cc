#include "kernels/model/cpu/adamw.h"

#include <cmath>

#include "kernels/cpu/tasks.h"
#include "kernels/model/cpu/isa/adamw.h"

namespace weft::kernels::cpu {

void adamw(Exec& exec, const AdamW& options, View master, ConstView grad, View m, View v,
           View value) {
  const auto step = static_cast<double>(options.step);
  const auto rounded = [](double x) { return static_cast<float>(x); };
  const AdamWArgs args{
      host<float>(master),
      host<float>(grad),
      host<float>(m),
      host<float>(v),
      given(value) ? host<bf16>(value) : nullptr,
      rounded(options.grad_scale),
      rounded(options.beta1),
      rounded(options.beta2),
      rounded(1.0 - options.beta1),
      rounded(1.0 - options.beta2),
      rounded(options.lr / (1.0 - std::pow(options.beta1, step))),
      rounded(1.0 / std::sqrt(1.0 - std::pow(options.beta2, step))),
      rounded(options.epsilon),
      rounded(options.lr * options.weight_decay),
  };
  const AdamWTable& table = table_of<AdamWTable>(exec.isa);
  for_blocks(exec, {master.shape.elements(), 16384},
             [&](int64_t, int64_t begin, int64_t end) { table.update(args, begin, end); });
}

}  // namespace weft::kernels::cpu
