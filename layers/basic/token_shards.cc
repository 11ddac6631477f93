#include "layers/basic/token_shards.h"

#include "kernels/rows/elementwise.h"
#include "parallel/layout/layout.h"

namespace weft {
namespace {

// Collectives want equal parts: all are padded to the longest. Calls visit(row of the padded parts,
// row of the tokens, count) for each rank.
template <class Visit>
void for_parts(int64_t tokens, int size, int64_t longest, Visit visit) {
  for (int r = 0; r < size; ++r) {
    const IndexRange part = even_part(tokens, r, size);
    if (part.size() > 0) visit(r * longest, part.begin, part.size());
  }
}

int64_t longest_part(int64_t tokens, int size) { return (tokens + size - 1) / size; }

// [size, longest, width]: `all` itself where it divides evenly, else padded.
Tensor equal_parts(Exec& exec, const Tensor& all, int size) {
  const int64_t tokens = all.shape().rows(), width = all.shape().back(),
                longest = longest_part(tokens, size);
  Tensor parts = all;
  if (size * longest != tokens) {
    parts = exec.zeros({size * longest, width});
    for_parts(tokens, size, longest, [&](int64_t padded, int64_t token, int64_t n) {
      kernels::copy(exec, all.row_range(token, n), parts.row_range(padded, n));
    });
  }
  return parts.reshaped({size, longest, width});
}

}  // namespace

Tensor gather_tokens(Exec& exec, Communicator* ranks, const Tensor& mine, int64_t tokens) {
  if (ranks == nullptr || ranks->size() == 1) return mine;
  const int size = ranks->size();
  const int64_t longest = longest_part(tokens, size), width = mine.shape().back();
  const int64_t count = mine.shape().rows();
  WEFT_CHECK(count == even_part(tokens, ranks->rank(), size).size(), "{} of {} tokens on {}", count,
             tokens, ranks->name());
  Tensor part = mine;
  if (count < longest) {
    part = exec.zeros({longest, width}, mine.dtype());
    if (count > 0) kernels::copy(exec, mine, part.row_range(0, count));
  }
  const Tensor all = exec.empty({size * longest, width}, mine.dtype());
  ranks->all_gather(exec, part, all.reshaped({size, longest, width}));
  if (size * longest == tokens) return all;
  const Tensor out = exec.empty({tokens, width}, mine.dtype());
  for_parts(tokens, size, longest, [&](int64_t padded, int64_t token, int64_t n) {
    kernels::copy(exec, all.row_range(padded, n), out.row_range(token, n));
  });
  return out;
}

Tensor scatter_tokens(Exec& exec, Communicator* ranks, const Tensor& all) {
  if (ranks == nullptr || ranks->size() == 1) return all;
  const int size = ranks->size();
  const int64_t tokens = all.shape().rows();
  const Tensor mine = exec.empty({longest_part(tokens, size), all.shape().back()});
  ranks->reduce_scatter(exec, equal_parts(exec, all, size), mine);
  return mine.row_range(0, even_part(tokens, ranks->rank(), size).size());
}

PendingTensor start_scatter(Exec& exec, Communicator& ranks, const Tensor& all) {
  const int64_t tokens = all.shape().rows();
  const Tensor parts = equal_parts(exec, all, ranks.size());
  const Tensor mine = exec.empty({longest_part(tokens, ranks.size()), all.shape().back()});
  auto pending = ranks.start_reduce_scatter(exec, parts, mine);
  return {parts, mine.row_range(0, even_part(tokens, ranks.rank(), ranks.size()).size()),
          std::move(pending)};
}

}  // namespace weft
