#include "kernels/model/cpu/isa/embedding.h"

#include "kernels/cpu/isa/loops.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

template <class T, class Y>
void forward_rows(const EmbeddingForward& a, int64_t begin, int64_t end) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t entry = a.tokens[r] - a.first;
    Y* y = row<Y>(a.y, r);
    if (entry < 0 || entry >= a.count) {
      each_vector(a.width, [&](int64_t i, auto n) { store(y + i, VF{}, n); });
      continue;
    }
    const T* x = row<T>(a.table, entry);
    each_vector(a.width, [&](int64_t i, auto n) { store(y + i, load(x + i, n), n); });
  }
}
void forward(const EmbeddingForward& a, int64_t begin, int64_t end) {
  with_types(a.table.dtype, a.y.dtype,
             [&](auto t, auto y) { forward_rows<decltype(t), decltype(y)>(a, begin, end); });
}

template <class DY>
void backward_box(const EmbeddingBackward& a, const Box& box) {
  for (int64_t r = box.begin; r < box.end; ++r) {
    const int64_t entry = a.tokens[r] - a.first;
    if (entry < 0 || entry >= a.count) continue;
    const DY* dy = row<DY>(a.dy, r) + box.left;
    float* sum = row<float>(a.d_table, entry) + box.left;
    each_vector(box.right - box.left,
                [&](int64_t i, auto n) { store(sum + i, load(sum + i, n) + load(dy + i, n), n); });
  }
}
void backward(const EmbeddingBackward& a, const Box& box) {
  with_types(a.dy.dtype, [&](auto dy) { backward_box<decltype(dy)>(a, box); });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const EmbeddingTable& table(ThisIsa, const EmbeddingTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr EmbeddingTable table{here::forward, here::backward};
  return table;
}

}  // namespace weft::kernels
