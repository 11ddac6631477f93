#include "layers/recurrence/affine.h"

#include <cmath>
#include <cstring>

#include "core/host_access.h"

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

// [n, dimensions of w] = t w.
Tensor timed(Exec& exec, const Tensor& times, const Tensor& weights) {
  const int64_t n = times.shape()[0], size = weights.elements(),
                each = n == 0 ? 1 : times.elements() / n;
  const Tensor logs = exec.empty({n, size});
  const float *t = host<float>(times), *w = host<float>(weights);
  float* to = host<float>(logs);
  for_blocks(exec, n * size, [&](int64_t i) {
    const int64_t of = i % size;
    to[i] = t[i / size * each + of % each] * w[of];
  });
  return logs;
}

State scaled(Exec& exec, const Summary& span, const State& state) {
  if (span.transition.empty()) return state;
  const Tensor logs =
      span.weights.empty() ? span.transition[0] : timed(exec, span.transition[0], span.weights[0]);
  State out;
  for (const Tensor& t : state) {
    const Tensor to = exec.empty(t.shape());
    const int64_t inner = logs.elements() == 0 ? 0 : t.elements() / logs.elements();
    const float *from = host<float>(t), *f = host<float>(logs);
    float* data = host<float>(to);
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
    std::memcpy(at, host<float>(t) + head * size, static_cast<size_t>(size) * sizeof(float));
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
    std::memcpy(host<float>(t) + head * size, source, static_cast<size_t>(size) * sizeof(float));
    source += size;
  }
}

State multiplied(Exec& exec, const Tensor& matrices, Side side, const State& state) {
  const Stacked s(state);
  State out;
  for (const Tensor& t : state) out.push_back(exec.empty(t.shape()));
  exec.threads.run(s.count, [&](int64_t head) {
    multiply(host<float>(matrices) + head * s.rows * s.rows, side, s, state, out, head);
  });
  return out;
}

State scaled_on_both_sides(Exec& exec, const State& logs, const State& state) {
  const Shape& s = state[0].shape();
  const int64_t rows = s[2], columns = s[3];
  const Tensor out = exec.empty(s);
  const float *r = host<float>(logs[0]), *c = host<float>(logs[1]);
  const float* from = host<float>(state[0]);
  float* to = host<float>(out);
  for_blocks(exec, out.elements(), [&](int64_t i) {
    const int64_t row = i / columns, head = row / rows;
    to[i] = std::exp(r[row] + c[head * columns + i % columns]) * from[i];
  });
  return {out};
}

enum class Turn : uint8_t { kForward, kBack };

State turned(Exec& exec, const Tensor& by, Turn turn, const State& state) {
  const Shape& s = state[0].shape();
  const int64_t half = s[3] * s[4];  // entries of a real part
  const Tensor out = exec.empty(s);
  const float* factors = host<float>(by);
  const float sign = turn == Turn::kForward ? 1.0f : -1.0f;
  exec.threads.run(s[0] * s[1], [&](int64_t head) {
    const float *re = host<float>(state[0]) + 2 * head * half, *im = re + half;
    float *to_re = host<float>(out) + 2 * head * half, *to_im = to_re + half;
    for (int64_t i = 0; i < half; ++i) {
      const int64_t row = i / s[4];
      const float x = factors[2 * head * s[3] + row],
                  y = sign * factors[(2 * head + 1) * s[3] + row];
      to_re[i] = x * re[i] - y * im[i];
      to_im[i] = y * re[i] + x * im[i];
    }
  });
  return {out};
}

}  // namespace

State transform(Exec& exec, Transition kind, const Summary& span, const State& state) {
  switch (kind) {
    case Transition::kFactor: return scaled(exec, span, state);
    case Transition::kSides: return scaled_on_both_sides(exec, span.transition, state);
    case Transition::kTurn: return turned(exec, span.transition[0], Turn::kForward, state);
    default: return multiplied(exec, span.transition[0], Side::kPlain, state);
  }
}

State transform_adjoint(Exec& exec, Transition kind, const Summary& span, const State& state) {
  if (kind == Transition::kTurn) return turned(exec, span.transition[0], Turn::kBack, state);
  if (kind != Transition::kDense) return transform(exec, kind, span, state);
  return multiplied(exec, span.transition[0], Side::kTransposed, state);
}

State compose(Exec& exec, Transition kind, const State& first, const State& second) {
  switch (kind) {
    case Transition::kFactor:
    case Transition::kSides: return add_states(exec, first, second);
    case Transition::kTurn: {
      const Shape& f = first[0].shape();  // a state of one column
      const Shape column{f[0], f[1], f[2], f[3], 1};
      return {turned(exec, second[0], Turn::kForward, {first[0].reshaped(column)})[0].reshaped(f)};
    }
    default: return multiplied(exec, second[0], Side::kPlain, first);
  }
}

State add_states(Exec& exec, const State& a, const State& b) {
  State out;
  for (size_t i = 0; i < a.size(); ++i) {
    out.push_back(exec.empty(a[i].shape()));
    const float *x = host<float>(a[i]), *y = host<float>(b[i]);
    float* to = host<float>(out[i]);
    for_blocks(exec, a[i].elements(), [&](int64_t e) { to[e] = x[e] + y[e]; });
  }
  return out;
}

Tensor summed_rows(Exec& exec, ConstView x, const Sequence& sequence, const HeadRows& of) {
  const int64_t group = of.heads / of.kv_heads;
  const Tensor total = exec.zeros({sequence.count(), of.heads, of.width});
  exec.threads.run(sequence.count() * of.heads, [&](int64_t index) {
    const auto document = static_cast<size_t>(index / of.heads);
    const int64_t column = index % of.heads / group * of.width;
    float* sum = host<float>(total) + index * of.width;
    for (int64_t t = sequence.documents[document]; t < sequence.documents[document + 1]; ++t) {
      const float* row = host<float>(x) + t * x.row_stride + column;
      for (int64_t c = 0; c < of.width; ++c) sum[c] += row[c];
    }
  });
  return total;
}

Tensor token_counts(Exec& exec, const Sequence& sequence) {
  const Tensor counts = exec.empty({sequence.count()});
  for (int64_t d = 0; d < sequence.count(); ++d) {
    const auto at = static_cast<size_t>(d);
    host<float>(counts)[d] =
        static_cast<float>(sequence.documents[at + 1] - sequence.documents[at]);
  }
  return counts;
}

}  // namespace weft
