#include "kernels/rows/rebased.h"

#include "core/host_access.h"
#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/rebased.h"

namespace weft::kernels {
namespace {

RebasedRows checked(const RebasedFeatures& map, ConstView x, ConstView gamma, ConstView beta) {
  check_real(x, "rebased: x");
  WEFT_CHECK(map.heads > 0 && x.width() % map.heads == 0, "rebased: {} channels, {} heads",
             x.width(), map.heads);
  const int64_t f = x.width() / map.heads;
  WEFT_CHECK(f <= kWidestRebased, "rebased: {} channels per head, at most {}", f, kWidestRebased);
  return {rows_of(x),
          {},
          {},
          {},
          vector_of<float>(gamma, f, "rebased: gamma"),
          vector_of<float>(beta, f, "rebased: beta"),
          map.heads,
          f,
          map.epsilon};
}

template <class V>
void check_features(const V& phi, const RebasedRows& a, int64_t rows) {
  check_matrix(phi, rows, a.heads * rebased_width(a.width), "rebased: phi");
  WEFT_CHECK(phi.dtype == DType::kF32, "rebased: phi is {}, not f32", name_of(phi.dtype));
}

}  // namespace

void rebased_features_forward(Exec& exec, const RebasedFeatures& map, ConstView x, ConstView gamma,
                              ConstView beta, View phi) {
  if (nothing_in(x)) return;
  RebasedRows args = checked(map, x, gamma, beta);
  check_features(phi, args, x.rows());
  args.phi = rows_of(phi);
  const RebasedTable& table = table_of<RebasedTable>(exec.isa);
  for_blocks(exec, row_blocks(x.rows(), phi.width()),
             [&](int64_t, int64_t begin, int64_t end) { table.forward(args, begin, end); });
}

void rebased_features_backward(Exec& exec, const RebasedFeatures& map,
                               const RebasedFeaturesBackward& in) {
  if (nothing_in(in.x)) return;
  RebasedRows args = checked(map, in.x, in.gamma, in.beta);
  check_features(in.d_phi, args, in.x.rows());
  check_matrix(in.dx, in.x.rows(), in.x.width(), "rebased: dx");
  args.d_phi = rows_of(in.d_phi), args.dx = rows_of(in.dx);
  const RowBlocks blocks = sum_blocks(in.x.rows(), in.d_phi.width());
  const int64_t f = args.width;
  const Tensor gamma = exec.scratch({blocks.count(), f}), beta = exec.scratch({blocks.count(), f});
  const RebasedTable& table = table_of<RebasedTable>(exec.isa);
  for_blocks(exec, blocks, [&](int64_t b, int64_t begin, int64_t end) {
    table.backward(args, begin, end, host<float>(gamma) + b * f, host<float>(beta) + b * f);
  });
  add_partials(exec, gamma, vector_of<float>(in.d_gamma, f, "rebased: d_gamma"));
  add_partials(exec, beta, vector_of<float>(in.d_beta, f, "rebased: d_beta"));
}

}  // namespace weft::kernels
