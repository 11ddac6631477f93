#include "layers/recurrence/rank_one.h"

#include "kernels/states/matrices.h"

namespace weft {

RankOneRecurrence::RankOneRecurrence(const Options& options)
    : AffineRecurrence(Transition::kDense, {{options.heads, options.dk, options.dv}}),
      options_(options) {}

kernels::RankOneScan RankOneRecurrence::scan(const RankOneInputs& in,
                                             const Sequence& sequence) const {
  return {.q = in.q,
          .k = in.k,
          .v = in.v,
          .log_decay = in.log_decay,
          .alpha = in.alpha,
          .beta = in.beta,
          .documents = sequence.documents,
          .heads = options_.heads,
          .key = options_.dk,
          .value = options_.dv,
          .scale = options_.scale};
}

Tensor RankOneRecurrence::run(Exec& exec, const RankOneInputs& in, const Sequence& sequence,
                              const State& entering, State* leaving, RankOneKept& keep) const {
  const Options& o = options_;
  const Tensor out = exec.empty({sequence.tokens(), o.heads * o.dv}, in.v.dtype);
  if (leaving != nullptr) *leaving = {exec.empty({sequence.count(), o.heads, o.dk, o.dv})};
  const kernels::RankOneScan rule = scan(in, sequence);
  if (sequence.chunk_states == ChunkStates::kKept) {
    keep.chunks = exec.empty({kernels::rank_one_scan_kept(exec, rule)});
  }
  kernels::rank_one_scan_forward(exec, rule, given(entering), out,
                                 leaving == nullptr ? View{} : leaving->at(0).view(),
                                 wanted(keep.chunks));
  return out;
}

void RankOneRecurrence::run_backward(Exec& exec, const RankOneInputs& in, const Sequence& sequence,
                                     const RankOneKept& keep, const State& entering,
                                     const Cotangents& d, const RankOneGradients& gradients) const {
  const Options& o = options_;
  if (d.d_entering != nullptr)
    *d.d_entering = {exec.empty({sequence.count(), o.heads, o.dk, o.dv})};
  kernels::rank_one_scan_backward(
      exec, scan(in, sequence), given(entering), d.d_out, given(d.d_leaving),
      {.dq = gradients.q,
       .dk = gradients.k,
       .dv = gradients.v,
       .d_log_decay = gradients.log_decay,
       .d_alpha = gradients.alpha,
       .d_beta = gradients.beta,
       .d_initial_state = d.d_entering == nullptr ? View{} : d.d_entering->at(0).view()},
      given(keep.chunks));
}

// A span of zero values takes a state M to A M: from the identity, to A itself.
Summary RankOneRecurrence::summarize(Exec& exec, const RankOneInputs& in,
                                     const Sequence& sequence) const {
  const Options& o = options_;
  Options square = o;
  square.dv = o.dk;
  const Tensor none = exec.zeros({sequence.tokens(), o.heads * o.dk}, in.v.dtype);
  RankOneInputs silent = in;
  silent.v = none;
  const Tensor identity = exec.empty({sequence.count(), o.heads, o.dk, o.dk});
  kernels::set_identity(exec, 0, identity);
  return {RankOneRecurrence(square).pass(exec, silent, sequence, {identity}),
          pass(exec, in, sequence, {})};
}

State RankOneRecurrence::pass(Exec& exec, const RankOneInputs& in, const Sequence& sequence,
                              const State& entering) const {
  const State leaving = {exec.empty({sequence.count(), options_.heads, options_.dk, options_.dv})};
  kernels::rank_one_scan_forward(exec, scan(in, sequence), given(entering), {}, leaving[0]);
  return leaving;
}

RankOneGradients RankOneRecurrence::scratch_gradients(Exec& exec, const RankOneInputs& in,
                                                      std::vector<Tensor>& hold) const {
  return {scratch_like(exec, in.q, hold),     scratch_like(exec, in.k, hold),
          scratch_like(exec, in.v, hold),     scratch_like(exec, in.log_decay, hold),
          scratch_like(exec, in.alpha, hold), scratch_like(exec, in.beta, hold)};
}

double RankOneRecurrence::flops_per_token() const {
  // In chunks: scores of two kinds of queries with two kinds of keys, their products with the
  // values (half of a square each), the triangular system, and the state read twice and written
  // twice.
  constexpr double kChunk = 64;  // the counting of MFU, whatever the kernel chooses
  const auto dk = static_cast<double>(options_.dk), dv = static_cast<double>(options_.dv);
  return static_cast<double>(options_.heads) *
         (kChunk * (4.0 * dk + 4.0 * dv + kChunk / 3.0) + 8.0 * dk * dv);
}

}  // namespace weft
