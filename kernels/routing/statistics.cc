#include "kernels/routing/statistics.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/routing/cpu/statistics.h"

namespace weft::kernels {

void expert_fractions(Exec& exec, ConstView count, ConstView load, View f) {
  if (nothing_in(f)) return;
  check_vector<int64_t>(count, f.shape.elements(), "expert_fractions: count");
  check_numbers(f, f.shape.elements(), "expert_fractions: f");
  check_optional_numbers(load, f.width(), "expert_fractions: load");
  dispatch(exec,
           {.name = "expert_fractions",
            .flops = 2 * elements(f),
            .read = bytes_of(count, load),
            .written = bytes_of(f)},
           cpu::expert_fractions, count, load, f);
}

void router_statistics(Exec& exec, const RouterStatistics& in, View numbers) {
  const int64_t tokens = in.probabilities.rows(), experts = in.probabilities.width();
  check_vector<double>(numbers, kRouterStatistics, "router_statistics: numbers");
  check_f32(in.probabilities, "router_statistics: probabilities");
  check_numbers(in.fraction, in.fraction.rows() * experts, "router_statistics: fraction");
  check_numbers(in.log_sum_exp, tokens, "router_statistics: log_sum_exp");
  check_numbers(in.entropy, tokens, "router_statistics: entropy");
  check_numbers(in.margin, tokens, "router_statistics: margin");
  WEFT_CHECK(tokens == 0 || (in.run > 0 && in.first + tokens <= in.fraction.rows() * in.run),
             "router_statistics: tokens {} to {} in {} runs of {}", in.first, in.first + tokens,
             in.fraction.rows(), in.run);
  dispatch(exec,
           {.name = "router_statistics",
            .flops = elements(in.probabilities) + 4 * static_cast<double>(tokens),
            .read = bytes_of(in.probabilities, in.fraction, in.log_sum_exp, in.entropy, in.margin),
            .written = bytes_of(numbers)},
           cpu::router_statistics, in, numbers);
}

void forced_choices(Exec& exec, int64_t experts, View index) {
  if (nothing_in(index)) return;
  check_vector<int32_t>(index, index.shape.elements(), "forced_choices: index");
  dispatch(exec,
           {.name = "forced_choices",
            .type = DType::kI32,
            .written = bytes_of(index),
            .over = Over::kIndices},
           cpu::forced_choices, experts, index);
}

void update_expert_load(Exec& exec, const ExpertLoad& in) {
  const auto experts = static_cast<int64_t>(in.counts.size());
  check_optional_numbers(in.bias, experts, "update_expert_load: bias");
  check_optional_numbers(in.load, experts, "update_expert_load: load");
  dispatch(exec,
           {.name = "update_expert_load",
            .flops = 2 * static_cast<double>(experts),
            .read = experts * size_of(DType::kI64) + bytes_of(in.bias),
            .written = bytes_of(in.bias, in.load)},
           cpu::update_expert_load, in);
}

}  // namespace weft::kernels
