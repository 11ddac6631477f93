#include "kernels/rows/cpu/rebased.h"

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/rebased.h"

namespace weft::kernels::cpu {
namespace {

RebasedRows rebased_rows(const RebasedFeatures& map, ConstView x, ConstView gamma, ConstView beta) {
  return {rows_of(x),
          {},
          {},
          {},
          host<float>(gamma),
          host<float>(beta),
          map.heads,
          x.width() / map.heads,
          map.epsilon};
}

}  // namespace

void rebased_features_forward(Exec& exec, const RebasedFeatures& map, ConstView x, ConstView gamma,
                              ConstView beta, View phi) {
  RebasedRows args = rebased_rows(map, x, gamma, beta);
  args.phi = rows_of(phi);
  const RebasedTable& table = table_of<RebasedTable>(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), phi.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.forward(args, begin, end); });
}

void rebased_features_backward(Exec& exec, const RebasedFeatures& map,
                               const RebasedFeaturesBackward& in) {
  RebasedRows args = rebased_rows(map, in.x, in.gamma, in.beta);
  args.d_phi = rows_of(in.d_phi), args.dx = rows_of(in.dx);
  const RowBlocks blocks = sum_blocks(in.x.rows(), in.d_phi.width());
  const int64_t f = args.width;
  const Tensor gamma = exec.scratch({blocks.count(), f}), beta = exec.scratch({blocks.count(), f});
  const RebasedTable& table = table_of<RebasedTable>(exec.isa);
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    table.backward(args, begin, end, host<float>(gamma) + b * f, host<float>(beta) + b * f);
  });
  add_partials(exec, gamma, host<float>(in.d_gamma));
  add_partials(exec, beta, host<float>(in.d_beta));
}

}  // namespace weft::kernels::cpu
