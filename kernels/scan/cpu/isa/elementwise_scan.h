#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"

namespace weft::kernels {

// Channels of one task. Wide enough that a row of it is whole cache lines.
inline constexpr int64_t kScanChannels = 64;

// At most kScanChannels channels of a run of documents; pointers are at the first of these
// channels.
struct ChannelScan {
  ConstRows x;
  ConstRows dt;         // f32; static scan: absent
  const float* log_dt;  // static scan only
  const float* b;       // [tokens, states], of all channels; static scan: [channels, states]
  const float* c;
  const float* a_log;  // [channels, states]
  const float* skip;   // or absent
  const float*
      initial;  // or absent; of the first document: [states, channels], rows `stride` apart
  const int32_t* offsets;  // of the documents, with the end of the last
  int64_t documents, channels, states;
  int64_t stride;  // of states: all channels
};
struct ChannelScanOutputs {
  Rows y;        // may be absent
  float* final;  // or absent; as `initial`
};
// Sums over channels and over tokens are the task's own and overwritten.
struct ChannelScanGradients {
  ConstRows dy;
  const float* d_final;  // or absent
  Rows dx, d_dt = {};
  float* d_b = nullptr;  // [tokens, states]; static scan: [channels, states]
  float* d_c = nullptr;
  float* d_a_log = nullptr;   // [channels, states]
  float* d_log_dt = nullptr;  // static scan only
  float* d_skip = nullptr;    // [channels]
  float* d_initial = nullptr;
};

// Scratch is counted in floats, aligned to 64 bytes, and belongs to the caller's thread.
struct ChannelScanTable {
  int64_t (*forward_scratch)(int64_t states);
  void (*forward)(const ChannelScan&, const ChannelScanOutputs&, float* scratch);
  int64_t (*backward_scratch)(int64_t longest_document, int64_t states);
  void (*backward)(const ChannelScan&, const ChannelScanGradients&, float* scratch);
};
const ChannelScanTable& table(IsaTag<Isa::kPlain>, const ChannelScanTable*);
const ChannelScanTable& table(IsaTag<Isa::kAvx2>, const ChannelScanTable*);
const ChannelScanTable& table(IsaTag<Isa::kAvx512>, const ChannelScanTable*);

}  // namespace weft::kernels
