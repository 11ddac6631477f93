#include "kernels/scan/cpu/isa/elementwise_scan.h"

#include "kernels/scan/cpu/isa/elementwise_steps.h"

// A vector of channels goes through a chunk of tokens, then the next vector: states stay in the
// first cache, and a chunk of rows of x comes from memory once. u is what enters the state: dt x,
// or x where the step is static and part of the gain.
namespace weft::kernels {
namespace WEFT_ISA_NAMESPACE {
namespace {

template <bool kStatic>
void forward_chunk(const ChannelScan& a, const Tables& w, Tokens tokens, float* state,
                   const Rows& y) {
  each_vector(a.channels, [&](int64_t i, auto lanes) {
    for (int64_t t = tokens.begin; t < tokens.end; ++t) {
      const VF x = load_any(a.x, t, i, lanes);
      const Step<kStatic> step(a, w, t, i, x, lanes);
      VF sum = load(w.skip + i) * x;
      for (int64_t n = 0; n < a.states; ++n) {
        const int64_t at = n * kWidth + i;
        const VF m = step.decay(at) * load(state + at) + step.input(n, at) * step.u;
        store(state + at, m);
        sum += step.read(n, at) * m;
      }
      if (y.data != nullptr) store_any(y, t, i, sum, lanes);
    }
  });
}

// The tokens of document d, and its chunks in order.
WEFT_INLINE Tokens document(const ChannelScan& a, int64_t d) {
  return {a.offsets[d], a.offsets[d + 1]};
}
WEFT_INLINE int64_t chunks_of(Tokens tokens) {
  return (tokens.end - tokens.begin + kChunk - 1) / kChunk;
}
WEFT_INLINE Tokens chunk_of(Tokens tokens, int64_t chunk) {
  const int64_t begin = tokens.begin + chunk * kChunk;
  return {begin, begin + kChunk < tokens.end ? begin + kChunk : tokens.end};
}
template <class Float>
WEFT_INLINE Float* state_at(const ChannelScan& a, Float* states, int64_t d) {
  return states == nullptr ? nullptr : states + d * a.states * a.stride;
}

template <bool kStatic>
void forward_run(const ChannelScan& a, const ChannelScanOutputs& out, float* scratch) {
  Place place{scratch};
  const Tables w = place_tables(place, a.states);
  float* state = place.take(a.states * kWidth);
  fill_tables<kStatic>(a, w);
  for (int64_t d = 0; d < a.documents; ++d) {
    const Tokens tokens = document(a, d);
    load_state(a, state_at(a, a.initial, d), state);
    for (int64_t c = 0; c < chunks_of(tokens); ++c) {
      forward_chunk<kStatic>(a, w, chunk_of(tokens, c), state, out.y);
    }
    store_state(a, state, state_at(a, out.final, d));
  }
}

// Scratch of backward. Sums over tokens are [states][kWidth] (skip: [kWidth]); sums over
// channels are kept by lane, [kChunk][states][kLanes].
struct Workspace {
  Tables tables;
  float* d_state;  // [states][kWidth]
  float* d_decay;  // sum of (dt times, unless static) the gradient of the log of the decay
  float* d_input;  // static: over tokens; otherwise over channels
  float* d_read;   // likewise
  float* d_skip;
  float* states;      // before and after every token of a chunk, [kChunk + 1][states][kLanes]
  float* decays;      // [kChunk][states][kLanes]; static: not used
  float* starts;      // states before every chunk, [chunks][states][kWidth]
  int64_t lane_sums;  // floats in d_input
};

Workspace place_workspace(Place& place, int64_t longest, int64_t states) {
  constexpr int64_t kRow = kWidth > kChunk * kLanes ? kWidth : kChunk * kLanes;
  Workspace w;
  w.tables = place_tables(place, states);
  w.d_state = place.take(states * kWidth);
  w.d_decay = place.take(states * kWidth);
  w.d_input = place.take(states * kRow);
  w.d_read = place.take(states * kRow);
  w.d_skip = place.take(kWidth);
  w.states = place.take((kChunk + 1) * states * kLanes);
  w.decays = place.take(kChunk * states * kLanes);
  w.starts = place.take(chunks_of({0, longest}) * states * kWidth);
  w.lane_sums = states * kRow;
  return w;
}

template <bool kStatic, class N>
WEFT_INLINE void trace_states(const ChannelScan& a, const Workspace& w, Tokens tokens, int64_t i,
                              const float* start, N lanes) {
  for (int64_t n = 0; n < a.states; ++n) store(w.states + n * kLanes, load(start + n * kWidth + i));
  for (int64_t t = tokens.begin; t < tokens.end; ++t) {
    const Step<kStatic> step(a, w.tables, t, i, load_any(a.x, t, i, lanes), lanes);
    const int64_t first = (t - tokens.begin) * a.states * kLanes;
    const float* before = w.states + first;
    float* after = w.states + first + a.states * kLanes;
    for (int64_t n = 0; n < a.states; ++n) {
      const int64_t at = n * kWidth + i, lane = n * kLanes;
      const VF decay = step.decay(at);
      if (!kStatic) store(w.decays + first + lane, decay);
      store(after + lane, decay * load(before + lane) + step.input(n, at) * step.u);
    }
  }
}

// Where the sums of state n at a token of the chunk are kept.
template <bool kStatic>
WEFT_INLINE int64_t sum_at(int64_t first, int64_t n, int64_t i) {
  return kStatic ? n * kWidth + i : first + n * kLanes;
}
WEFT_INLINE void add_to(float* sum, VF v) { store(sum, load(sum) + v); }

template <bool kStatic, class N>
WEFT_INLINE void backward_lanes(const ChannelScan& a, const ChannelScanGradients& g,
                                const Workspace& w, Tokens tokens, int64_t i, N lanes) {
  VF d_skip{};
  for (int64_t t = tokens.end - 1; t >= tokens.begin; --t) {
    const VF x = load_any(a.x, t, i, lanes), dy = load_any(g.dy, t, i, lanes);
    const Step<kStatic> step(a, w.tables, t, i, x, lanes);
    const int64_t first = (t - tokens.begin) * a.states * kLanes;
    const float* before = w.states + first;
    const float* after = before + a.states * kLanes;
    VF du{}, d_step{};
    for (int64_t n = 0; n < a.states; ++n) {
      const int64_t at = n * kWidth + i, lane = n * kLanes, sum = sum_at<kStatic>(first, n, i);
      const VF dm = load(w.d_state + at) + step.read(n, at) * dy;
      add_to(w.d_read + sum, load(after + lane) * dy);
      add_to(w.d_input + sum, dm * step.u);
      du += dm * step.input(n, at);
      const VF decay = kStatic ? load(w.tables.decay + at) : load(w.decays + first + lane);
      const VF kept = decay * dm, d_log = kept * load(before + lane);
      d_step += load(w.tables.rate + at) * d_log;
      add_to(w.d_decay + at, kStatic ? d_log : d_log * step.dt);
      store(w.d_state + at, kept);
    }
    d_skip += dy * x;
    const VF through_skip = load(w.tables.skip + i) * dy;
    store_any(g.dx, t, i, through_skip + (kStatic ? du : du * step.dt), lanes);
    if (!kStatic) store(row<float>(g.d_dt, t) + i, d_step + du * x, lanes);
  }
  add_to(w.d_skip + i, d_skip);
}

// Lanes are added up once for all channels of the block.
void store_lane_sums(const ChannelScan& a, const float* sums, Tokens tokens, float* to) {
  const int64_t count = (tokens.end - tokens.begin) * a.states;
  for (int64_t j = 0; j < count; ++j)
    to[tokens.begin * a.states + j] = sum(load(sums + j * kLanes));
}

template <bool kStatic>
void backward_document(const ChannelScan& a, const ChannelScanGradients& g, const Workspace& w,
                       int64_t d) {
  const Tokens tokens = document(a, d);
  const int64_t chunks = chunks_of(tokens), size = a.states * kWidth;
  // Forward again, each chunk from where the one before it ended.
  load_state(a, state_at(a, a.initial, d), chunks > 0 ? w.starts : w.d_state);
  for (int64_t c = 0; c + 1 < chunks; ++c) {
    float* next = w.starts + (c + 1) * size;
    for (int64_t j = 0; j < size; ++j) next[j] = w.starts[c * size + j];
    forward_chunk<kStatic>(a, w.tables, chunk_of(tokens, c), next, {nullptr, 0, DType::kF32});
  }
  load_state(a, state_at(a, g.d_final, d), w.d_state);
  for (int64_t c = chunks - 1; c >= 0; --c) {
    const Tokens chunk = chunk_of(tokens, c);
    if (!kStatic) clear(w.d_input, w.lane_sums), clear(w.d_read, w.lane_sums);
    each_vector(a.channels, [&](int64_t i, auto lanes) {
      trace_states<kStatic>(a, w, chunk, i, w.starts + c * size, lanes);
      backward_lanes<kStatic>(a, g, w, chunk, i, lanes);
    });
    if (!kStatic)
      store_lane_sums(a, w.d_input, chunk, g.d_b), store_lane_sums(a, w.d_read, chunk, g.d_c);
  }
  store_state(a, w.d_state, state_at(a, g.d_initial, d));
}

// From the sums to gradients of parameters:  d a_log = -r dt (...),  and with gain = dt b,
// d b = dt d gain,  d log_dt = sum over n of (gain d gain) + d a_log.
template <bool kStatic>
void finish_sums(const ChannelScan& a, const ChannelScanGradients& g, const Workspace& w) {
  const int64_t size = a.states * kWidth;
  for (int64_t i = 0; i < kWidth; i += kLanes) {
    VF d_log_dt{};
    for (int64_t at = i; at < size; at += kWidth) {
      const VF step = kStatic ? load(w.tables.step + i) : splat(1.0f);
      const VF d_a_log = load(w.d_decay + at) * load(w.tables.rate + at) * step;
      store(w.d_decay + at, d_a_log);
      if constexpr (kStatic) {
        const VF d_gain = load(w.d_input + at);
        d_log_dt += d_a_log + d_gain * load(w.tables.gain + at);
        store(w.d_input + at, d_gain * step);
      }
    }
    if (kStatic) store(w.tables.step + i, d_log_dt);
  }
  turn_back(a, w.d_decay, g.d_a_log);
  for (int64_t c = 0; c < a.channels; ++c) g.d_skip[c] = w.d_skip[c];
  if constexpr (kStatic) {
    turn_back(a, w.d_input, g.d_b);
    turn_back(a, w.d_read, g.d_c);
    for (int64_t c = 0; c < a.channels; ++c) g.d_log_dt[c] = w.tables.step[c];
  }
}

template <bool kStatic>
void backward_run(const ChannelScan& a, const ChannelScanGradients& g, float* scratch) {
  int64_t longest = 0;
  for (int64_t d = 0; d < a.documents; ++d) {
    const Tokens tokens = document(a, d);
    longest = tokens.end - tokens.begin > longest ? tokens.end - tokens.begin : longest;
  }
  Place place{scratch};
  const Workspace w = place_workspace(place, longest, a.states);
  fill_tables<kStatic>(a, w.tables);
  clear(w.d_decay, a.states * kWidth), clear(w.d_skip, kWidth);
  clear(w.d_input, w.lane_sums), clear(w.d_read, w.lane_sums);
  for (int64_t d = 0; d < a.documents; ++d) backward_document<kStatic>(a, g, w, d);
  finish_sums<kStatic>(a, g, w);
}

int64_t forward_scratch(int64_t states) {
  Place place{nullptr};
  place_tables(place, states);
  place.take(states * kWidth);
  return place.used;
}
int64_t backward_scratch(int64_t longest, int64_t states) {
  Place place{nullptr};
  place_workspace(place, longest, states);
  return place.used;
}

void forward(const ChannelScan& a, const ChannelScanOutputs& out, float* scratch) {
  if (a.log_dt != nullptr) {
    forward_run<true>(a, out, scratch);
  } else {
    forward_run<false>(a, out, scratch);
  }
}
void backward(const ChannelScan& a, const ChannelScanGradients& g, float* scratch) {
  if (a.log_dt != nullptr) {
    backward_run<true>(a, g, scratch);
  } else {
    backward_run<false>(a, g, scratch);
  }
}

}  // namespace
}  // namespace WEFT_ISA_NAMESPACE

const ChannelScanTable& table(ThisIsa, const ChannelScanTable*) {
  namespace isa = WEFT_ISA_NAMESPACE;
  static constexpr ChannelScanTable table{isa::forward_scratch, isa::forward, isa::backward_scratch,
                                          isa::backward};
  return table;
}

}  // namespace weft::kernels
