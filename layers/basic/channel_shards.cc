#include "layers/basic/channel_shards.h"

#include "kernels/rows/elementwise.h"

namespace weft {
namespace {

bool alone(const Communicator* ranks) { return ranks == nullptr || ranks->size() == 1; }

}  // namespace

void sum_parts(Exec& exec, Communicator* ranks, const Tensor& t) {
  if (!alone(ranks)) ranks->all_reduce(exec, t, ReduceOp::kSum);
}

Tensor gather_channels(Exec& exec, Communicator* ranks, ConstView mine) {
  const int64_t rows = mine.rows(), width = mine.width();
  const int size = alone(ranks) ? 1 : ranks->size();
  const Tensor part = exec.empty({rows, width}, mine.dtype);
  kernels::copy(exec, mine, part);
  if (size == 1) return part;
  const Tensor parts = exec.scratch({size, rows, width}, mine.dtype);
  ranks->all_gather(exec, part, parts);
  const Tensor all = exec.empty({rows, size * width}, mine.dtype);
  for (int r = 0; r < size; ++r) {
    kernels::copy(exec, parts.row(r), all.view().columns(r * width, width));
  }
  return all;
}

Tensor scatter_channels(Exec& exec, Communicator* ranks, const Tensor& all) {
  if (alone(ranks)) return all;
  const int size = ranks->size();
  const int64_t rows = all.shape().rows(), width = all.shape().back() / size;
  const Tensor parts = exec.scratch({size, rows, width});
  for (int r = 0; r < size; ++r) {
    kernels::copy(exec, all.view().columns(r * width, width), parts.row(r));
  }
  const Tensor mine = exec.empty({rows, width});
  ranks->reduce_scatter(exec, parts, mine);
  return mine;
}

}  // namespace weft
