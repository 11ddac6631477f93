#include "layers/recurrence/complex_diagonal.h"

#include <cmath>

#include "core/host_access.h"
#include "kernels/gates/phase.h"

namespace weft {
namespace {

// each(index of the row, its real numbers, its imaginary ones) for the rows [dv] of a state
// [documents, heads, 2, dk, dv]; the index counts documents, heads and key channels.
struct Rows {
  int64_t heads, dk, dv;  // heads of all documents
  explicit Rows(const Shape& state)
      : heads(state[0] * state[1]),
        dk(state.dims() == 5 ? state[3] : state[2] / 2),
        dv(state.back()) {}

  template <class Each>
  void run(Exec& exec, Each each) const {
    exec.threads.run(heads, [&](int64_t head) {
      for (int64_t c = 0; c < dk; ++c) {
        each(head * dk + c, (2 * head * dk + c) * dv, ((2 * head + 1) * dk + c) * dv);
      }
    });
  }
};

// A state of the fixed frame in that of a document's start, or a gradient back: both conjugate.
Tensor conjugate(Exec& exec, const Tensor& state, Shape shape) {
  const Tensor out = exec.empty(shape);
  const Rows rows(state.shape());
  const float* from = host<float>(state);
  float* to = host<float>(out);
  rows.run(exec, [&](int64_t, int64_t re, int64_t im) {
    for (int64_t v = 0; v < rows.dv; ++v) to[re + v] = from[re + v], to[im + v] = -from[im + v];
  });
  return out;
}

// cos and sin of the phase after each document's last token, [documents, heads, 2, dk].
Tensor last_turns(Exec& exec, const Tensor& phase, const Sequence& sequence, int64_t heads,
                  int64_t dk) {
  const Tensor turns = exec.empty({sequence.count(), heads, 2, dk});
  for (int64_t d = 0; d < sequence.count(); ++d) {
    const int64_t end = sequence.documents[static_cast<size_t>(d) + 1];
    const bool none = end == sequence.documents[static_cast<size_t>(d)];
    for (int64_t h = 0; h < heads; ++h) {
      float* to = host<float>(turns) + (d * heads + h) * 2 * dk;
      for (int64_t c = 0; c < dk; ++c) {
        const float angle = none ? 0.0f : host<float>(phase)[((end - 1) * heads + h) * dk + c];
        to[c] = std::cos(angle), to[dk + c] = std::sin(angle);
      }
    }
  }
  return turns;
}

struct Turns {
  const float* data;
  int64_t dk;
  float cos(int64_t row) const { return data[row / dk * 2 * dk + row % dk]; }
  float sin(int64_t row) const { return data[(row / dk * 2 + 1) * dk + row % dk]; }
};

// (R, N) in the last token's frame -> M = e^{i f} (R - i N); its own transpose, for gradients.
Tensor to_fixed_frame(Exec& exec, const Tensor& turns, const Tensor& state, Shape shape) {
  const Tensor out = exec.empty(shape);
  const Rows rows(shape);
  const Turns by{host<float>(turns), rows.dk};
  const float* from = host<float>(state);
  float* to = host<float>(out);
  rows.run(exec, [&](int64_t row, int64_t re, int64_t im) {
    const float c = by.cos(row), s = by.sin(row);
    for (int64_t v = 0; v < rows.dv; ++v) {
      to[re + v] = c * from[re + v] + s * from[im + v];
      to[im + v] = s * from[re + v] - c * from[im + v];
    }
  });
  return out;
}

// The gradient of each document's last phase: sum over v of d_im re - d_re im, of the leaving
// state.
Tensor last_phase_gradient(Exec& exec, const Tensor& leaving, const Tensor& d_leaving) {
  const Rows rows(leaving.shape());
  const Tensor out = exec.empty({rows.heads * rows.dk});
  const float *m = host<float>(leaving), *d = host<float>(d_leaving);
  rows.run(exec, [&](int64_t row, int64_t re, int64_t im) {
    float sum = 0;
    for (int64_t v = 0; v < rows.dv; ++v) sum += d[im + v] * m[re + v] - d[re + v] * m[im + v];
    host<float>(out)[row] = sum;
  });
  return out;
}

}  // namespace

ComplexDiagonalRecurrence::ComplexDiagonalRecurrence(const Options& options)
    : AffineRecurrence(Transition::kTurn,
                       {{options.heads.heads, 2, options.heads.dk, options.heads.dv}}),
      options_(options) {
  WEFT_CHECK(options.heads.kv_heads == options.heads.heads,
             "complex decays are not shared by groups of heads");
}

kernels::DiagonalScan ComplexDiagonalRecurrence::scan(const ComplexDiagonalInputs& in,
                                                      const ComplexDiagonalKept& keep,
                                                      const Sequence& sequence) const {
  const HeadOptions& h = options_.heads;
  return {.q = keep.q,
          .k = keep.k,
          .v = in.v,
          .log_decay = keep.decay,
          .bonus = {},
          .documents = sequence.documents,
          .heads = h.heads,
          .kv_heads = h.heads,
          .key = 2 * h.dk,
          .value = h.dv,
          .scale = options_.scale};
}

Tensor ComplexDiagonalRecurrence::run(Exec& exec, const ComplexDiagonalInputs& in,
                                      const Sequence& sequence, const State& entering,
                                      State* leaving, ComplexDiagonalKept& keep) const {
  const HeadOptions& h = options_.heads;
  turn_keys(exec, in, sequence, keep);
  kernels::turn_forward(exec, h.heads, keep.phase, in.q, keep.q);
  Tensor before;
  if (!entering.empty()) before = conjugate(exec, entering[0], keep.leaving.shape());
  const Tensor out = exec.empty({sequence.tokens(), h.heads * h.dv}, in.v.dtype);
  const kernels::DiagonalScan rule = scan(in, keep, sequence);
  if (sequence.chunk_states == ChunkStates::kKept)
    keep.chunks = exec.empty({kernels::diagonal_scan_kept(exec, rule)});
  kernels::diagonal_scan_forward(exec, rule, given(before), out, keep.leaving, wanted(keep.chunks));
  if (leaving != nullptr) {
    const Tensor turns = last_turns(exec, keep.phase, sequence, h.heads, h.dk);
    *leaving = {
        to_fixed_frame(exec, turns, keep.leaving, {sequence.count(), h.heads, 2, h.dk, h.dv})};
  }
  return out;
}

void ComplexDiagonalRecurrence::turn_keys(Exec& exec, const ComplexDiagonalInputs& in,
                                          const Sequence& sequence,
                                          ComplexDiagonalKept& keep) const {
  const HeadOptions& h = options_.heads;
  const int64_t tokens = sequence.tokens(), width = h.heads * h.dk;
  keep.phase = exec.empty({tokens, width});
  keep.q = exec.empty({tokens, 2 * width}, in.q.dtype);
  keep.k = exec.empty({tokens, 2 * width}, in.k.dtype);
  keep.decay = exec.empty({tokens, 2 * width});
  keep.leaving = exec.empty({sequence.count(), h.heads, 2 * h.dk, h.dv});
  kernels::running_phase_forward(exec, sequence.documents, in.phase, keep.phase);
  kernels::turn_forward(exec, h.heads, keep.phase, in.k, keep.k);
  kernels::turn_forward(exec, h.heads, {}, in.log_decay, keep.decay);
}

void ComplexDiagonalRecurrence::run_backward(Exec& exec, const ComplexDiagonalInputs& in,
                                             const Sequence& sequence,
                                             const ComplexDiagonalKept& keep, const State& entering,
                                             const Cotangents& d,
                                             const ComplexDiagonalGradients& gradients) const {
  const HeadOptions& h = options_.heads;
  const Shape turning = keep.leaving.shape(), fixed{turning[0], h.heads, 2, h.dk, h.dv};
  Tensor before, d_leaving, d_last;
  if (!entering.empty()) before = conjugate(exec, entering[0], turning);
  if (!d.d_leaving.empty()) {
    const Tensor turns = last_turns(exec, keep.phase, sequence, h.heads, h.dk);
    const Tensor leaving = to_fixed_frame(exec, turns, keep.leaving, fixed);
    d_leaving = to_fixed_frame(exec, turns, d.d_leaving[0], fixed).reshaped(turning);
    d_last = last_phase_gradient(exec, leaving, d.d_leaving[0]);
  }
  const Tensor dq = exec.empty(keep.q.shape(), keep.q.dtype()),
               dk = exec.empty(keep.k.shape(), keep.k.dtype()),
               d_decay = exec.empty(keep.decay.shape()), d_before = exec.empty(turning);
  kernels::diagonal_scan_backward(exec, scan(in, keep, sequence), given(before), d.d_out,
                                  given(d_leaving),
                                  {.dq = dq,
                                   .dk = dk,
                                   .dv = gradients.v,
                                   .d_log_decay = d_decay,
                                   .d_bonus = {},
                                   .d_initial_state = d_before},
                                  given(keep.chunks));
  const Tensor d_phase = exec.zeros(keep.phase.shape());
  kernels::turn_backward(exec, h.heads, {keep.phase, in.q, dq, gradients.q, d_phase});
  kernels::turn_backward(exec, h.heads, {keep.phase, in.k, dk, gradients.k, d_phase});
  kernels::turn_backward(exec, h.heads, {{}, {}, d_decay, gradients.log_decay, {}});
  kernels::running_phase_backward(exec, sequence.documents, d_phase, given(d_last),
                                  gradients.phase);
  if (d.d_entering != nullptr) *d.d_entering = {conjugate(exec, d_before, fixed)};
}

Summary ComplexDiagonalRecurrence::summarize(Exec& exec, const ComplexDiagonalInputs& in,
                                             const Sequence& sequence) const {
  const HeadOptions& h = options_.heads;
  ComplexDiagonalKept kept;
  turn_keys(exec, in, sequence, kept);
  kernels::diagonal_scan_forward(exec, scan(in, kept, sequence), {}, {}, kept.leaving);
  const Tensor factors = last_turns(exec, kept.phase, sequence, h.heads, h.dk),
               update = to_fixed_frame(exec, factors, kept.leaving,
                                       {sequence.count(), h.heads, 2, h.dk, h.dv}),
               logs = summed_rows(exec, in.log_decay, sequence, {h.heads, h.heads, h.dk});
  for (int64_t i = 0; i < factors.elements(); ++i) {
    host<float>(factors)[i] *= std::exp(host<float>(logs)[i / (2 * h.dk) * h.dk + i % h.dk]);
  }
  return {{factors}, {update}};
}

ComplexDiagonalGradients ComplexDiagonalRecurrence::scratch_gradients(
    Exec& exec, const ComplexDiagonalInputs& in, std::vector<Tensor>& hold) const {
  return {scratch_like(exec, in.q, hold), scratch_like(exec, in.k, hold),
          scratch_like(exec, in.v, hold), scratch_like(exec, in.log_decay, hold),
          scratch_like(exec, in.phase, hold)};
}

double ComplexDiagonalRecurrence::flops_per_token() const {
  constexpr double kChunk = 64;  // the counting of MFU, whatever the kernel chooses
  const auto dk = 2.0 * static_cast<double>(options_.heads.dk),
             dv = static_cast<double>(options_.heads.dv);
  return static_cast<double>(options_.heads.heads) * (kChunk * (dk + dv) + 5.0 * dk * dv);
}

}  // namespace weft
