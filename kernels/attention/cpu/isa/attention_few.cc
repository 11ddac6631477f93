#include "kernels/attention/cpu/isa/attention_few.h"

#include <utility>

#include "kernels/cpu/isa/loops.h"

// Attention of a few queries: products of a vector with a matrix, bound by the reading of k and v.
// kLanes keys are taken at a time, one sum for each, so that a query's row is loaded once for all
// of them and the lanes of the sums are added up together.
namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

constexpr int64_t kKeys = 64;       // keys between two corrections by a new largest score
constexpr float kMasked = -1e30f;   // instead of -inf: differences of it are 0, not NaN
constexpr int64_t kRowsAtOnce = 8;  // vectors of values summed in registers
using Lanes = std::make_integer_sequence<int, kLanes>;

WEFT_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
WEFT_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
WEFT_INLINE int64_t padded(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Lane i of the sum of neighbours: within quarters of a vector first (one instruction on x86),
// whole quarters then. (a, b) counts as one vector of 2 kLanes.
constexpr int neighbour(int i, int odd) { return i % 4 / 2 * kLanes + i / 4 * 4 + i % 2 * 2 + odd; }
constexpr int quarter(int i, int odd) { return (i / 4 * 2 + odd) * 4 + i % 4; }

template <int... i>
WEFT_INLINE VF add_neighbours(VF a, VF b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, neighbour(i, 0)...) +
         __builtin_shufflevector(a, b, neighbour(i, 1)...);
}
template <int... i>
WEFT_INLINE VF add_quarters(VF a, VF b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, quarter(i, 0)...) +
         __builtin_shufflevector(a, b, quarter(i, 1)...);
}

// Lane u of the result = sum over the lanes of v[u].
WEFT_INLINE VF sums_of(VF (&v)[kLanes]) {
  int step = 0;
  for (int left = kLanes / 2; left > 0; left /= 2, ++step) {
    for (int u = 0; u < left; ++u) {
      v[u] = step < 2 ? add_neighbours(v[2 * u], v[2 * u + 1], Lanes{})
                      : add_quarters(v[2 * u], v[2 * u + 1], Lanes{});
    }
  }
  return v[0];
}

// Keys [begin, end) of a block, for one query and head.
template <class T>
struct Row {
  const T *k, *v;  // of the block's first key
  int64_t k_stride, v_stride;
  int64_t key, value;
  int64_t begin, end;
};

// scores[j] = q . k_j for j of [begin, end), and up to kLanes - 1 more after it.
template <class T>
WEFT_INLINE void dot_products(const Row<T>& row, const float* q, float* scores) {
  for (int64_t j = row.begin; j < row.end; j += kLanes) {
    VF product[kLanes] = {};
    const T* k[kLanes];
    for (int u = 0; u < kLanes; ++u) k[u] = row.k + smaller(j + u, row.end - 1) * row.k_stride;
    each_vector(row.key, [&](int64_t c, auto n) {
      const VF x = load(q + c);  // zeros after the end
      for (int u = 0; u < kLanes; ++u) product[u] += x * load(k[u] + c, n);
    });
    store(scores + j, sums_of(product));
  }
}

// o [vectors * kLanes] = shrink * o + sum over j of weights[j] v_j, from column c on.
template <int kVectors, class T>
WEFT_INLINE void add_values(const Row<T>& row, const float* weights, VF shrink, int64_t c,
                            float* o) {
  VF sum[kVectors];
  for (int i = 0; i < kVectors; ++i) sum[i] = shrink * load(o + c + i * kLanes);
  for (int64_t j = row.begin; j < row.end; ++j) {
    const VF weight = splat(weights[j]);
    const T* v = row.v + j * row.v_stride + c;
    for (int i = 0; i < kVectors; ++i) sum[i] += weight * load(v + i * kLanes);
  }
  for (int i = 0; i < kVectors; ++i) store(o + c + i * kLanes, sum[i]);
}
template <class T>
WEFT_INLINE void add_all_values(const Row<T>& row, const float* weights, VF shrink, float* o) {
  int64_t c = 0;
  for (; c + kRowsAtOnce * kLanes <= row.value; c += kRowsAtOnce * kLanes) {
    add_values<kRowsAtOnce>(row, weights, shrink, c, o);
  }
  for (; c + 2 * kLanes <= row.value; c += 2 * kLanes) add_values<2>(row, weights, shrink, c, o);
  for (; c + kLanes <= row.value; c += kLanes) add_values<1>(row, weights, shrink, c, o);
  if (c == row.value) return;
  const int64_t n = row.value - c;
  VF sum = shrink * load_part(o + c, n);
  for (int64_t j = row.begin; j < row.end; ++j) {
    sum += splat(weights[j]) * load_part(row.v + j * row.v_stride + c, n);
  }
  store_part(o + c, sum, n);
}

// One block of keys into a partial: o [value], largest, sum.
template <class T>
void take_block(const Row<T>& row, const float* q, const double* forgotten, double own,
                float* partial) {
  float scores[kKeys + kLanes];
  dot_products(row, q, scores);
  if (forgotten != nullptr) {
    for (int64_t j = row.begin; j < row.end; ++j) {
      scores[j] += static_cast<float>(own - forgotten[j]);
    }
  }
  for (int64_t j = row.end; j < row.end + kLanes; ++j) scores[j] = kMasked;
  VF most = splat(partial[row.value]);
  for (int64_t j = row.begin; j < row.end; j += kLanes) most = max(most, load(scores + j));
  const float largest = max_lane(most);
  const VF shrink = exp(splat(partial[row.value] - largest));
  VF sum_of_weights = {};
  for (int64_t j = row.begin; j < row.end; j += kLanes) {
    const VF weight = exp(load(scores + j) - largest);
    store(scores + j, weight);
    sum_of_weights += weight;
  }
  partial[row.value] = largest;
  partial[row.value + 1] = partial[row.value + 1] * shrink[0] + sum(sum_of_weights);
  add_all_values(row, scores, shrink, partial);
}

template <class T>
void load_queries(const FewQueriesTask& task, float* to) {
  const int64_t key = task.k.columns, width = padded(key);
  for (int64_t i = 0; i < task.q.rows * task.group; ++i) {
    const T* q =
        static_cast<const T*>(task.q.data) + i / task.group * task.q.stride + i % task.group * key;
    float* row = to + i * width;
    for (int64_t c = key; c < width; ++c) row[c] = 0.0f;
    each_vector(key, [&](int64_t c, auto n) { store(row + c, load(q + c, n) * task.scale, n); });
  }
}

template <class T>
void forward_as(const FewQueriesTask& task, float* partials, float* q) {
  const int64_t key = task.k.columns, value = task.v.columns, rows = task.q.rows * task.group;
  load_queries<T>(task, q);
  for (int64_t r = 0; r < rows; ++r) {
    float* partial = partials + r * (value + 2);
    for (int64_t c = 0; c < value + 2; ++c) partial[c] = 0.0f;
    partial[value] = kMasked;
  }
  for (int64_t block = task.first / kKeys * kKeys; block < task.end; block += kKeys) {
    for (int64_t r = 0; r < rows; ++r) {
      const FewQueriesHead& head = task.heads[r % task.group];
      const int64_t position = task.start + r / task.group;
      const int64_t oldest = task.window == 0 ? 0 : position - task.window + 1;
      const int64_t begin = larger(larger(oldest, head.first), larger(task.first, block));
      const int64_t end = smaller(smaller(position + 1, task.end), block + kKeys);
      if (begin >= end) continue;
      const Row<T> row{static_cast<const T*>(task.k.data) + block * task.k.stride,
                       static_cast<const T*>(task.v.data) + block * task.v.stride,
                       task.k.stride,
                       task.v.stride,
                       key,
                       value,
                       begin - block,
                       end - block};
      const double* sums = head.forgotten;
      take_block(row, q + r * padded(key), sums == nullptr ? nullptr : sums + block,
                 sums == nullptr ? 0.0 : sums[position], partials + r * (value + 2));
    }
  }
}

int64_t scratch(int64_t queries, int64_t group, int64_t key) {
  return queries * group * padded(key);
}

void forward(const FewQueriesTask& task, float* partials, float* scratch) {
  with_types(task.k.dtype, [&](auto x) { forward_as<decltype(x)>(task, partials, scratch); });
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const FewQueriesTable& table(ThisIsa, const FewQueriesTable*) {
  namespace here = WEFT_ISA_NAMESPACE;
  static constexpr FewQueriesTable table{here::scratch, here::forward};
  return table;
}

}  // namespace weft::kernels
