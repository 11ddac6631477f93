#include "kernels/scan/cuda/scalar_scan.h"

#include <algorithm>
#include <type_traits>

#include "kernels/programs/scalar_scan.h"
#include "kernels/programs/scalar_scan_backward.h"
#include "kernels/tile/cuda.cuh"

// Three passes: what every chunk does to a state, from zero (parallel over chunks and heads); the
// states between chunks (over documents, heads and entries of a state); outputs or gradients of
// every chunk from the states around it (over chunks and heads again).
namespace weft::kernels::cuda {
namespace scalar_scan {

using programs::Weights;

// Types and extents a kernel is compiled for. Heads are padded with zeros to `width`.
template <class Element_, int chunk_, int width_>
struct Config {
  using Element = Element_;
  using Engine = cuda::Engine<Element>;
  static constexpr int chunk = chunk_;
  struct Sizes {
    static constexpr int chunk() { return chunk_; }
    static constexpr int key() { return width_; }
    static constexpr int value() { return width_; }
    static constexpr int left() { return width_; }
    static constexpr int right() { return width_; }
  };
  using OuterSpace = programs::ScanOuterSpace<Engine, Sizes>;
  using OutputSpace = programs::ScanOutputSpace<Engine, Sizes>;
  using GradientSpace = programs::ScanBackwardSpace<Engine, Sizes>;
};

// f32 states between chunks: [chunk_count + document_count, heads, size], a document's follow each
// other from the one before its first chunk to the one after its last.
struct States {
  float* first;
  int size;  // of a state, key * value
  int heads;
  WEFT_TILE float* at(int slot, int head) const {
    return first + (static_cast<int64_t>(slot) * heads + head) * size;
  }
};

// Where a block of a kernel over chunks is.
struct Spot {
  int chunk, head, kv_head;
  int slot;          // of the state before the chunk
  int begin, count;  // tokens
};
WEFT_TILE Spot this_spot(const ScanProblem& p, int chunk_length) {
  Spot spot;
  spot.chunk = static_cast<int>(blockIdx.x);
  spot.head = static_cast<int>(blockIdx.y);
  spot.kv_head = spot.head / (p.heads / p.kv_heads);
  int document = 0, beyond = p.document_count;  // the last one with chunks_before <= chunk
  while (beyond - document > 1) {
    const int middle = (document + beyond) / 2;
    (p.chunks_before[middle] <= spot.chunk ? document : beyond) = middle;
  }
  spot.slot = spot.chunk + document;
  spot.begin = p.documents[document] + (spot.chunk - p.chunks_before[document]) * chunk_length;
  const int left = p.documents[document + 1] - spot.begin;
  spot.count = left < chunk_length ? left : chunk_length;
  return spot;
}

template <class Byte>
WEFT_TILE Matrix<Byte> head_of(const ScanMatrix<Byte>& m, const Spot& spot, int head, int width) {
  using Char = std::conditional_t<std::is_const_v<Byte>, const char, char>;
  const int64_t at = spot.begin * m.stride + static_cast<int64_t>(head) * width;
  return {static_cast<Char*>(m.data) + at * (m.narrow ? 2 : 4), m.stride, spot.count, width,
          m.narrow};
}
template <class Float>
WEFT_TILE Numbers<Float> column_of(const ScanColumn<Float>& c, const Spot& spot) {
  if (c.data == nullptr) return {};
  return {c.data + spot.begin * c.token_stride + spot.head, c.token_stride, spot.count};
}

template <class Engine>
WEFT_TILE programs::ScanChunk<Engine> chunk_of(const ScanProblem& p, const Spot& spot) {
  return {head_of(p.q, spot, spot.head, p.key), head_of(p.k, spot, spot.kv_head, p.key),
          head_of(p.v, spot, spot.kv_head, p.value), column_of(p.log_decay, spot), p.scale};
}

// First pass, forward or backward. Left^T right of ScanOuter, and the states it goes to: behind the
// chunk (kToEnd) or before it (kFromStart).
struct Outer {
  ScanMatrix<const void> left, right;
  int left_width, right_width;
  bool of_query_heads;  // else of those of keys and values
  float scale;
  States states;
  float* totals;  // b_C, [chunks, heads]
};
template <class C, Weights weights>
__global__ void __launch_bounds__(kThreads) chunk_states(ScanProblem p, Outer o) {
  using Engine = typename C::Engine;
  auto& memory = block_memory<Shared<typename C::OuterSpace>>();
  Engine e(memory.scratch);
  const Spot spot = this_spot(p, C::chunk);
  const int head = o.of_query_heads ? spot.head : spot.kv_head;
  const int slot = weights == Weights::kToEnd ? spot.slot + 1 : spot.slot;
  const programs::ScanOuter<Engine> a{
      head_of(o.left, spot, head, o.left_width),
      head_of(o.right, spot, head, o.right_width),
      column_of(p.log_decay, spot),
      o.scale,
      {},
      {o.states.at(slot, spot.head), o.right_width, o.left_width, o.right_width, false}};
  const float last = programs::scan_outer<weights>(e, a, memory.space);
  if (threadIdx.x == 0) o.totals[spot.chunk * p.heads + spot.head] = last;
}

// Second pass. Results of the first become states in place; `start` and `end` are the states at the
// borders of the documents.
struct Chain {
  States states;
  const float* totals;
  const float* start;
  float* end;
  bool backward;
};
__global__ void __launch_bounds__(kThreads) chain_states(ScanProblem p, Chain c) {
  const int document = static_cast<int>(blockIdx.x), head = static_cast<int>(blockIdx.y);
  const int at = static_cast<int>(blockIdx.z * kThreads + threadIdx.x);
  if (at >= c.states.size) return;
  const int64_t border = static_cast<int64_t>(document * p.heads + head) * c.states.size + at;
  const int first = p.chunks_before[document], chunks = p.chunks_before[document + 1] - first;
  float x = c.start == nullptr ? 0.0f : c.start[border];
  c.states.at(first + document + (c.backward ? chunks : 0), head)[at] = x;
  for (int n = 0; n < chunks; ++n) {
    const int chunk = c.backward ? chunks - 1 - n : n;
    float* to = c.states.at(first + document + chunk + (c.backward ? 0 : 1), head) + at;
    x = x * expf(c.totals[(first + chunk) * p.heads + head]) + *to;
    *to = x;
  }
  if (c.end != nullptr) c.end[border] = x;
}

// Third pass, forward.
template <class C>
__global__ void __launch_bounds__(kThreads)
    chunk_outputs(ScanProblem p, ScanMatrix<void> out, States states) {
  using Engine = typename C::Engine;
  auto& memory = block_memory<Shared<typename C::OutputSpace>>();
  Engine e(memory.scratch);
  const Spot spot = this_spot(p, C::chunk);
  const auto chunk = chunk_of<Engine>(p, spot);
  const In state{states.at(spot.slot, spot.head), p.value, p.key, p.value, false};
  programs::scan_load(e, chunk, memory.space);
  e.load(memory.space.m, state);
  programs::scan_output(e, chunk, head_of(out, spot, spot.head, p.value), memory.space);
}

// Third pass, backward.
template <class C>
__global__ void __launch_bounds__(kThreads)
    chunk_gradients(ScanProblem p, ScanBackward io, States states, States d_states) {
  using Engine = typename C::Engine;
  auto& memory = block_memory<Shared<typename C::GradientSpace>>();
  Engine e(memory.scratch);
  const Spot spot = this_spot(p, C::chunk);
  const In before{states.at(spot.slot, spot.head), p.value, p.key, p.value, false};
  const In after{states.at(spot.slot + 1, spot.head), p.value, p.key, p.value, false};
  const In d_after{d_states.at(spot.slot + 1, spot.head), p.value, p.key, p.value, false};
  const programs::ScanChunkGradients<Engine> gradients{
      head_of(io.d_out, spot, spot.head, p.value), before,
      head_of(io.dq, spot, spot.head, p.key),      head_of(io.dk, spot, spot.head, p.key),
      head_of(io.dv, spot, spot.head, p.value),    column_of(io.d_log_decay, spot)};
  e.load(memory.space.dm, d_after);
  programs::scan_gradients(e, chunk_of<Engine>(p, spot), gradients, e.inner_product(after, d_after),
                           memory.space);
}

// to [tokens, kv_heads * width] = sum over each group of heads of from [tokens, heads * width],
// f32.
struct GroupSum {
  const float* from;
  ScanMatrix<void> to;
  int tokens, kv_heads, group, width;
};
__global__ void __launch_bounds__(kThreads) sum_groups(GroupSum s) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t row_length = static_cast<int64_t>(s.kv_heads) * s.width, token = at / row_length;
  if (token >= s.tokens) return;
  const auto column = static_cast<int>(at % row_length), head = column / s.width;
  const float* from = s.from + (token * s.kv_heads + head) * s.group * s.width + column % s.width;
  float sum = from[0];
  for (int g = 1; g < s.group; ++g) sum += from[g * s.width];
  set_entry({s.to.data, s.to.stride, s.tokens, static_cast<int>(row_length), s.to.narrow},
            static_cast<int>(token), column, sum);
}

// Shared memory that a block of the most demanding kernel needs.
template <class C>
constexpr size_t largest = std::max({sizeof(Shared<typename C::OuterSpace>),
                                     sizeof(Shared<typename C::OutputSpace>),
                                     sizeof(Shared<typename C::GradientSpace>)});

// task(Config) with the smallest configuration that holds the problem.
constexpr int kWidth = 64, kWidest = 128;
static_assert(largest<Config<Bf16, 64, kWidest>> <= kSharedOfSm80);
static_assert(largest<Config<F32, 64, kWidth>> <= kSharedOfSm80);
static_assert(largest<Config<F32, 32, kWidest>> <= kSharedOfSm90);
template <class Task>
auto with_config(const ScanProblem& p, Task task) {
  const bool wide = p.key > kWidth || p.value > kWidth;
  if (p.q.narrow)
    return wide ? task(Config<Bf16, 64, kWidest>{}) : task(Config<Bf16, 64, kWidth>{});
  return wide ? task(Config<F32, 32, kWidest>{}) : task(Config<F32, 64, kWidth>{});
}

dim3 over_chunks(const ScanProblem& p) {
  return dim3(static_cast<unsigned>(p.chunk_count), static_cast<unsigned>(p.heads));
}

template <class C, Weights weights>
void launch_states(const ScanProblem& p, const Outer& outer, Stream stream) {
  if (p.chunk_count == 0) return;
  launch<chunk_states<C, weights>>(over_chunks(p), kThreads, sizeof(Shared<typename C::OuterSpace>),
                                   stream, p, outer);
}

void launch_chain(const ScanProblem& p, const Chain& chain, Stream stream) {
  if (p.document_count == 0) return;
  const dim3 grid(static_cast<unsigned>(p.document_count), static_cast<unsigned>(p.heads),
                  static_cast<unsigned>((chain.states.size + kThreads - 1) / kThreads));
  launch<chain_states>(grid, kThreads, 0, stream, p, chain);
}

void launch_sum(const GroupSum& sum, Stream stream) {
  const int64_t entries = static_cast<int64_t>(sum.tokens) * sum.kv_heads * sum.width;
  if (entries == 0) return;
  launch<sum_groups>(dim3(static_cast<unsigned>((entries + kThreads - 1) / kThreads)), kThreads, 0,
                     stream, sum);
}

int64_t states_size(const ScanProblem& p) {
  return static_cast<int64_t>(p.chunk_count + p.document_count) * p.heads * p.key * p.value;
}
int64_t totals_size(const ScanProblem& p) { return static_cast<int64_t>(p.chunk_count) * p.heads; }
// Heads that share keys and values leave their parts of dk and dv apart first.
int64_t head_gradients(const ScanProblem& p, int width) {
  return p.heads == p.kv_heads ? 0 : static_cast<int64_t>(p.token_count) * p.heads * width;
}

template <class C>
void forward(const ScanProblem& p, const ScanForward& io, float* scratch, Stream stream) {
  const States states{scratch, p.key * p.value, p.heads};
  float* totals = scratch + states_size(p);
  launch_states<C, Weights::kToEnd>(p, {p.k, p.v, p.key, p.value, false, 1.0f, states, totals},
                                    stream);
  launch_chain(p, {states, totals, io.initial_state, io.final_state, false}, stream);
  if (p.chunk_count == 0) return;
  launch<chunk_outputs<C>>(over_chunks(p), kThreads, sizeof(Shared<typename C::OutputSpace>),
                           stream, p, io.out, states);
}

template <class C>
void backward(const ScanProblem& p, const ScanBackward& io, float* scratch, Stream stream) {
  const States states{scratch, p.key * p.value, p.heads};
  const States d_states{states.first + states_size(p), states.size, p.heads};
  float* totals = d_states.first + states_size(p);
  float* dk_heads = totals + totals_size(p);
  float* dv_heads = dk_heads + head_gradients(p, p.key);
  launch_states<C, Weights::kToEnd>(p, {p.k, p.v, p.key, p.value, false, 1.0f, states, totals},
                                    stream);
  launch_states<C, Weights::kFromStart>(
      p, {p.q, io.d_out, p.key, p.value, true, p.scale, d_states, totals}, stream);
  launch_chain(p, {states, totals, io.initial_state, nullptr, false}, stream);
  launch_chain(p, {d_states, totals, io.d_final_state, io.d_initial_state, true}, stream);
  if (p.chunk_count == 0) return;

  ScanBackward parts = io;
  const int group = p.heads / p.kv_heads;
  if (group > 1) {
    parts.dk = {dk_heads, static_cast<int64_t>(p.heads) * p.key, false};
    parts.dv = {dv_heads, static_cast<int64_t>(p.heads) * p.value, false};
  }
  launch<chunk_gradients<C>>(over_chunks(p), kThreads, sizeof(Shared<typename C::GradientSpace>),
                             stream, p, parts, states, d_states);
  if (group > 1) {
    launch_sum({dk_heads, io.dk, p.token_count, p.kv_heads, group, p.key}, stream);
    launch_sum({dv_heads, io.dv, p.token_count, p.kv_heads, group, p.value}, stream);
  }
}

}  // namespace scalar_scan

using namespace scalar_scan;

bool scan_fits(const ScanProblem& p, size_t shared) {
  if (p.key <= 0 || p.key > kWidest || p.value <= 0 || p.value > kWidest) return false;
  return with_config(p, [](auto config) { return largest<decltype(config)>; }) <= shared;
}

int scan_chunk(const ScanProblem& p) {
  return with_config(p, [](auto config) { return decltype(config)::chunk; });
}

std::vector<int32_t> chunks_before(std::span<const int32_t> documents, int chunk) {
  std::vector<int32_t> before{0};
  for (size_t d = 1; d < documents.size(); ++d) {
    before.push_back(before.back() + (documents[d] - documents[d - 1] + chunk - 1) / chunk);
  }
  return before;
}

int64_t scan_forward_scratch(const ScanProblem& p) { return states_size(p) + totals_size(p); }

int64_t scan_backward_scratch(const ScanProblem& p) {
  return 2 * states_size(p) + totals_size(p) + head_gradients(p, p.key) +
         head_gradients(p, p.value);
}

void scan_forward(const ScanProblem& p, const ScanForward& io, float* scratch,
                  CUstream_st* stream) {
  with_config(p, [&](auto config) { forward<decltype(config)>(p, io, scratch, stream); });
}

void scan_backward(const ScanProblem& p, const ScanBackward& io, float* scratch,
                   CUstream_st* stream) {
  with_config(p, [&](auto config) { backward<decltype(config)>(p, io, scratch, stream); });
}

}  // namespace weft::kernels::cuda
