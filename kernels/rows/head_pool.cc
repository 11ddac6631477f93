#include "kernels/rows/head_pool.h"

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/rows/cpu/head_pool.h"

namespace weft::kernels {
namespace {

void check(const HeadPool& p, ConstView x, ConstView z) {
  check_real(x, "head_pool: x");
  WEFT_CHECK(p.sources > 0 && p.heads % p.sources == 0 && x.width() % p.sources == 0,
             "head_pool: {} heads, {} sources of {} channels", p.heads, p.sources, x.width());
  const int64_t width = x.width() / p.sources;
  WEFT_CHECK(p.bins > 0 && p.bins <= width, "head_pool: {} bins of {} channels", p.bins, width);
  check_f32_matrix(z, x.rows(), p.heads * p.bins, "head_pool: z");
}

// Channels that are added up in all bins of a head's source.
double summed(const HeadPool& p, ConstView x) {
  return elements(x) * static_cast<double>(p.heads) / static_cast<double>(p.sources);
}

}  // namespace

void head_pool_forward(Exec& exec, const HeadPool& pool, ConstView x, View z) {
  if (nothing_in(z)) return;
  check(pool, x, z);
  dispatch(exec,
           {.name = "head_pool_forward",
            .type = x.dtype,
            .flops = summed(pool, x),
            .read = bytes_of(x),
            .written = bytes_of(z)},
           cpu::head_pool_forward, pool, x, z);
}

void head_pool_backward(Exec& exec, const HeadPool& pool, ConstView dz, View dx) {
  if (nothing_in(dx)) return;
  check(pool, dx, dz);
  dispatch(exec,
           {.name = "head_pool_backward",
            .type = dx.dtype,
            .flops = summed(pool, dx),
            .read = bytes_of(dz, dx),
            .written = bytes_of(dx)},
           cpu::head_pool_backward, pool, dz, dx);
}

}  // namespace weft::kernels
