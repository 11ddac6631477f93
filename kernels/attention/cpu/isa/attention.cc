#include "kernels/attention/cpu/isa/attention.h"

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

// How a task's bias gets into the vectors of the programs, and its gradient out of them.
struct PlainBias : programs::NoBias {
  WEFT_INLINE void start_queries(int64_t, int64_t) {}
  WEFT_INLINE void start_keys(int64_t, int64_t) {}
  WEFT_INLINE void end_keys(float*) {}
  WEFT_INLINE void end_queries(float*) {}
};

struct ForgettingBias : programs::Forgetting<Engine, Sizes> {
  WEFT_INLINE ForgettingBias(const AttentionTask& task, float* scratch)
      : sums_(task.forgotten), scratch_(scratch) {}

  WEFT_INLINE void start_queries(int64_t begin, int64_t count) {
    begin_ = begin, count_ = count;
    place(*this, Sizes{count, kKeys, 0, 0}, scratch_);
    for (int64_t i = 0; i < round_up(count, kStripColumns); ++i) {
      queries.data[i] = i < count ? static_cast<float>(sums_[begin + i] - sums_[begin]) : 0.0f;
    }
  }
  WEFT_INLINE void start_keys(int64_t first, int64_t count) {
    first_ = first;
    place(*this, Sizes{count_, count, 0, 0}, scratch_);
    for (int64_t j = 0; j < count; ++j) {
      keys.data[j] = static_cast<float>(sums_[begin_] - sums_[first + j]);
    }
  }
  WEFT_INLINE void end_keys(float* d_sums) {
    for (int64_t j = 0; j < keys.size; ++j) d_sums[first_ + j] -= d_keys.data[j];
  }
  WEFT_INLINE void end_queries(float* d_sums) {
    for (int64_t i = 0; i < count_; ++i) d_sums[begin_ + i] += d_queries.data[i];
  }

 private:
  const double* sums_;
  float* scratch_;
  int64_t begin_ = 0, count_ = 0, first_ = 0;
};

int64_t bias_floats() {
  programs::Forgetting<Engine, Sizes> bias;
  return place(bias, Sizes{kQueries, kKeys, 0, 0}, nullptr);
}

template <class Space>
int64_t scratch_of(int64_t key, int64_t value) {
  Space w;
  return bias_floats() + place(w, Sizes{kQueries, kKeys, key, value}, nullptr);
}

// Calls f(first key, keys, band) for the blocks of keys that queries [begin, begin + count) see.
template <class F>
WEFT_INLINE void for_key_blocks(const AttentionTask& task, int64_t begin, int64_t count, F f) {
  const int64_t window = task.window == 0 ? tile::kFar : task.window;
  const int64_t position = task.start + begin, end = position + count;
  const int64_t oldest = window > position ? 0 : position - window + 1;
  int64_t block = oldest / kKeys;
  if (task.first_blocks != nullptr && task.first_blocks[begin / kQueries] > block) {
    block = task.first_blocks[begin / kQueries];
  }
  for (int64_t first = block * kKeys; first < end; first += kKeys) {
    // Row j, column i of the block: key first + j, query at position + i; 0 <= query - key <
    // window.
    const int64_t shift = first - position;
    f(first, smaller(kKeys, end - first),
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

template <class Bias>
WEFT_INLINE void forward_with(const AttentionTask& task, const AttentionOutputs& outputs, Bias bias,
                              float* scratch) {
  const int64_t key = task.q.columns, value = task.v.columns, end = task.begin + task.count;
  Engine e;
  ForwardSpace w;
  for (int64_t begin = task.begin; begin < end; begin += kQueries) {
    const int64_t count = smaller(kQueries, end - begin);
    place(w, Sizes{count, kKeys, key, value}, scratch);
    bias.start_queries(task.start + begin, count);
    programs::attention_begin(e, task.q.row_range(begin, count), w);
    for_key_blocks(task, begin, count, [&](int64_t first, int64_t keys, tile::Band band) {
      place(w, Sizes{count, keys, key, value}, scratch);
      expect(e, task, first + kKeys, task.start + begin + count);
      bias.start_keys(first, keys);
      programs::attention_block<Engine>(
          e, {task.k.row_range(first, keys), task.v.row_range(first, keys), task.scale, band}, bias,
          w);
    });
    programs::attention_end(e, outputs.out.row_range(begin, count), outputs.log_sum_exp.from(begin),
                            w);
  }
}

void forward(const AttentionTask& task, const AttentionOutputs& outputs, float* scratch) {
  if (task.forgotten == nullptr) {
    forward_with(task, outputs, PlainBias{}, scratch);
  } else {
    forward_with(task, outputs, ForgettingBias(task, scratch), scratch + bias_floats());
  }
}

template <class Bias>
WEFT_INLINE void backward_with(const AttentionTask& task, const AttentionGradientTask& g, Bias bias,
                               float* scratch) {
  const int64_t key = task.q.columns, value = task.v.columns, end = task.begin + task.count;
  Engine e;
  BackwardSpace w;
  for (int64_t begin = task.begin; begin < end; begin += kQueries) {
    const int64_t count = smaller(kQueries, end - begin);
    const programs::AttentionQueries<Engine> queries{
        task.q.row_range(begin, count), g.out.row_range(begin, count),
        g.d_out.row_range(begin, count), g.log_sum_exp.from(begin), g.dq.row_range(begin, count)};
    place(w, Sizes{count, kKeys, key, value}, scratch);
    bias.start_queries(task.start + begin, count);
    programs::attention_backward_begin(e, queries, w);
    programs::bias_backward_begin(e, bias);
    for_key_blocks(task, begin, count, [&](int64_t first, int64_t keys, tile::Band band) {
      place(w, Sizes{count, keys, key, value}, scratch);
      expect(e, task, first + kKeys, task.start + begin + count);
      e.soon(g.dk.row_range(first, keys));
      e.soon(g.dv.row_range(first, keys));
      bias.start_keys(first, keys);
      programs::attention_backward_block<Engine>(
          e,
          {task.k.row_range(first, keys), task.v.row_range(first, keys),
           g.dk.row_range(first, keys), g.dv.row_range(first, keys), task.scale, band},
          bias, w);
      bias.end_keys(g.d_forgotten);
    });
    programs::attention_backward_end(e, queries, w);
    bias.end_queries(g.d_forgotten);
  }
}

void backward(const AttentionTask& task, const AttentionGradientTask& g, float* scratch) {
  if (task.forgotten == nullptr) {
    backward_with(task, g, PlainBias{}, scratch);
  } else {
    backward_with(task, g, ForgettingBias(task, scratch), scratch + bias_floats());
  }
}

template <class T>
WEFT_INLINE float largest_norm_of(const tile::In& rows) {
  float largest = 0;
  for (int64_t t = 0; t < rows.rows; ++t) {
    const T* row = static_cast<const T*>(rows.data) + t * rows.stride;
    VF squares = {};
    for (int64_t c = 0; c < rows.columns; c += kLanes) {
      const VF x = load_lanes(row, c, rows.columns);
      squares += x * x;
    }
    const float size = sum(squares);
    if (size > largest || size != size) largest = size;  // NaN stays
  }
  return WEFT_ISA_NAMESPACE::sqrt(splat(largest))[0];
}
float largest_norm(const tile::In& rows) {
  return rows.dtype == DType::kF32 ? largest_norm_of<float>(rows) : largest_norm_of<bf16>(rows);
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const AttentionTable& table(ThisIsa, const AttentionTable*) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr AttentionTable table{isa::kQueries,
                                        isa::kKeys,
                                        isa::scratch_of<isa::ForwardSpace>,
                                        isa::forward,
                                        isa::scratch_of<isa::BackwardSpace>,
                                        isa::backward,
                                        isa::largest_norm};
  return table;
}

}  // namespace weft::kernels
