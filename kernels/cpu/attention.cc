#include "kernels/cpu/attention.h"

#include "kernels/programs/attention.h"
#include "kernels/programs/attention_backward.h"
#include "kernels/tile/cpu.h"

namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

constexpr int64_t kQueries = 128, kKeys = 64;

struct Sizes {
  int64_t queries_, keys_, key_, value_;
  WEFT_INLINE int64_t queries() const { return queries_; }
  WEFT_INLINE int64_t keys() const { return keys_; }
  WEFT_INLINE int64_t key() const { return key_; }
  WEFT_INLINE int64_t value() const { return value_; }
};
using ForwardSpace = programs::AttentionSpace<Engine, Sizes>;
using BackwardSpace = programs::AttentionBackwardSpace<Engine, Sizes>;

int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

template <class Space>
int64_t scratch_of(int64_t key, int64_t value) {
  Space w;
  return place(w, Sizes{kQueries, kKeys, key, value}, nullptr);
}

// Calls f(first key, keys, band) for the blocks of keys that queries [begin, begin + count) see.
template <class F>
WEFT_INLINE void for_key_blocks(const AttentionTask& task, int64_t begin, int64_t count, F f) {
  const int64_t window = task.window == 0 ? tile::kFar : task.window;
  const int64_t oldest = window > begin ? 0 : begin - window + 1;
  for (int64_t first = oldest / kKeys * kKeys; first < begin + count; first += kKeys) {
    // Row j, column i of the block: key first + j, query begin + i; 0 <= query - key < window.
    const int64_t shift = first - begin;
    f(first, smaller(kKeys, begin + count - first),
      tile::Band{shift, window == tile::kFar ? tile::kFar : shift + window - 1});
  }
}

// Tells the engine which rows the block of keys at `first` will read.
WEFT_INLINE void expect(Engine& e, const AttentionTask& task, int64_t first, int64_t end) {
  if (first >= end) return;
  const int64_t keys = smaller(kKeys, end - first);
  e.soon(task.k.row_range(first, keys));
  e.soon(task.v.row_range(first, keys));
}

void forward(const AttentionTask& task, const AttentionOutputs& outputs, float* scratch) {
  const int64_t key = task.q.columns, value = task.v.columns, end = task.begin + task.count;
  Engine e;
  ForwardSpace w;
  for (int64_t begin = task.begin; begin < end; begin += kQueries) {
    const int64_t count = smaller(kQueries, end - begin);
    place(w, Sizes{count, kKeys, key, value}, scratch);
    programs::attention_begin(e, task.q.row_range(begin, count), task.scale, w);
    for_key_blocks(task, begin, count, [&](int64_t first, int64_t keys, tile::Band band) {
      place(w, Sizes{count, keys, key, value}, scratch);
      expect(e, task, first + kKeys, begin + count);
      programs::attention_block(e, task.k.row_range(first, keys), task.v.row_range(first, keys),
                                band, w);
    });
    programs::attention_end(e, outputs.out.row_range(begin, count), outputs.log_sum_exp.from(begin),
                            w);
  }
}

void backward(const AttentionTask& task, const AttentionGradientTask& g, float* scratch) {
  const int64_t key = task.q.columns, value = task.v.columns, end = task.begin + task.count;
  Engine e;
  BackwardSpace w;
  for (int64_t begin = task.begin; begin < end; begin += kQueries) {
    const int64_t count = smaller(kQueries, end - begin);
    const programs::AttentionQueries<Engine> queries{
        task.q.row_range(begin, count),  g.out.row_range(begin, count),
        g.d_out.row_range(begin, count), g.log_sum_exp.from(begin),
        g.dq.row_range(begin, count),    task.scale};
    place(w, Sizes{count, kKeys, key, value}, scratch);
    programs::attention_backward_begin(e, queries, w);
    for_key_blocks(task, begin, count, [&](int64_t first, int64_t keys, tile::Band band) {
      place(w, Sizes{count, keys, key, value}, scratch);
      expect(e, task, first + kKeys, begin + count);
      e.soon(g.dk.row_range(first, keys));
      e.soon(g.dv.row_range(first, keys));
      programs::attention_backward_block<Engine>(
          e,
          {task.k.row_range(first, keys), task.v.row_range(first, keys),
           g.dk.row_range(first, keys), g.dv.row_range(first, keys), band},
          w);
    });
    programs::attention_backward_end(e, queries, w);
  }
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const AttentionTable& attention_table(ThisIsa) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr AttentionTable table{isa::kQueries, isa::scratch_of<isa::ForwardSpace>,
                                        isa::forward, isa::scratch_of<isa::BackwardSpace>,
                                        isa::backward};
  return table;
}

}  // namespace weft::kernels
