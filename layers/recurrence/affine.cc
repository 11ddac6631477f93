#include "layers/recurrence/affine.h"

#include <cmath>
#include <cstring>

namespace weft {
namespace {

constexpr int64_t kGrain = 1 << 14;  // elements that are worth a task of their own

template <class Each>
void for_blocks(Exec& exec, int64_t count, Each each) {
  const int64_t tasks = (count + kGrain - 1) / kGrain;
  exec.threads.run(tasks, [&](int64_t task) {
    const int64_t end = std::min(count, (task + 1) * kGrain);
    for (int64_t i = task * kGrain; i < end; ++i) each(i);
  });
}

State scaled(Exec& exec, const Tensor& logs, const State& state) {
  State out;
  for (const Tensor& t : state) {
    const Tensor to = exec.empty(t.shape());
    const int64_t inner = logs.elements() == 0 ? 0 : t.elements() / logs.elements();
    const float *from = t.data<float>(), *f = logs.data<float>();
    float* data = to.data<float>();
    for_blocks(exec, t.elements(), [&](int64_t i) { data[i] = std::exp(f[i / inner]) * from[i]; });
    out.push_back(to);
  }
  return out;
}

// Rows of the tensors of one head, stacked: [K, V].
struct Stacked {
  int64_t count = 0, rows = 0, width = 0;  // heads of all sequences, K, V
  explicit Stacked(const State& state) {
    const Shape& s = state[0].shape();
    count = s[0] * s[1];
    width = s.dims() > 3 ? s[3] : 1;
    for (const Tensor& t : state) rows += t.shape()[2];
  }
};

enum class Side : uint8_t { kPlain, kTransposed };

// One head: to = A from or A^T from.
void multiply(const float* a, Side side, const Stacked& s, const State& from, const State& to,
              int64_t head) {
  const int64_t k = s.rows, v = s.width;
  std::vector<float> stacked(static_cast<size_t>(k * v)), result(static_cast<size_t>(k * v), 0.0f);
  float* at = stacked.data();
  for (const Tensor& t : from) {
    const int64_t size = t.shape()[2] * v;
    std::memcpy(at, t.data<float>() + head * size, static_cast<size_t>(size) * sizeof(float));
    at += size;
  }
  for (int64_t i = 0; i < k; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      const float x = side == Side::kPlain ? a[i * k + j] : a[j * k + i];
      const float* row = stacked.data() + j * v;
      float* sum = result.data() + i * v;
      for (int64_t c = 0; c < v; ++c) sum[c] += x * row[c];
    }
  }
  const float* source = result.data();
  for (const Tensor& t : to) {
    const int64_t size = t.shape()[2] * v;
    std::memcpy(t.data<float>() + head * size, source, static_cast<size_t>(size) * sizeof(float));
    source += size;
  }
}

State multiplied(Exec& exec, const Tensor& matrices, Side side, const State& state) {
  const Stacked s(state);
  State out;
  for (const Tensor& t : state) out.push_back(exec.empty(t.shape()));
  exec.threads.run(s.count, [&](int64_t head) {
    multiply(matrices.data<float>() + head * s.rows * s.rows, side, s, state, out, head);
  });
  return out;
}

}  // namespace

State transform(Exec& exec, Transition kind, const State& transition, const State& state) {
  if (kind == Transition::kNone) return state;
  if (kind == Transition::kFactor) return scaled(exec, transition[0], state);
  return multiplied(exec, transition[0], Side::kPlain, state);
}

State transform_adjoint(Exec& exec, Transition kind, const State& transition, const State& state) {
  if (kind != Transition::kDense) return transform(exec, kind, transition, state);
  return multiplied(exec, transition[0], Side::kTransposed, state);
}

State compose(Exec& exec, Transition kind, const State& first, const State& second) {
  if (kind == Transition::kNone) return {};
  if (kind == Transition::kFactor) return add_states(exec, first, second);
  return multiplied(exec, second[0], Side::kPlain, first);
}

State add_states(Exec& exec, const State& a, const State& b) {
  State out;
  for (size_t i = 0; i < a.size(); ++i) {
    out.push_back(exec.empty(a[i].shape()));
    const float *x = a[i].data<float>(), *y = b[i].data<float>();
    float* to = out[i].data<float>();
    for_blocks(exec, a[i].elements(), [&](int64_t e) { to[e] = x[e] + y[e]; });
  }
  return out;
}

}  // namespace weft
