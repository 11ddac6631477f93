#pragma once

#include "kernels/cpu/by_isa.h"
#include "kernels/cpu/isa/rows.h"
#include "kernels/gates/activation.h"

namespace weft::kernels {

// Weights are [taps + 1, channels] here, so that a vector of them is one of neighbouring channels;
// the last row is the bias, zeros where there is none.
struct ConvArgs {
  ConstRows x, dy;  // dy and dx in backward only
  Rows y, dx;
  const float* weight;
  // For every token: how many tokens of its document lie before it, and how many after it.
  const int32_t* before;
  const int32_t* after;
  int64_t tokens, channels, taps;
  bool silu;
  const int32_t* document;  // of every token; read where a history is given
  // f32 [documents, 2 (taps - 1), channels]: the history that enters a document and its first
  // tokens, so that a token near the start finds all its taps in a row. Absent: zeros enter.
  const float* edges;
  const float* d_leaving;  // f32 [documents, taps - 1, channels], or absent
  Rows d_entering;         // [documents * (taps - 1), channels]
};

// Tokens [begin, begin + count) are a document.
struct ConvDocument {
  int64_t number, begin, count;
};

struct ConvTable {
  void (*forward)(const ConvArgs&, const Box&);
  // d_weight [taps + 1, channels]: the row block's own, overwritten in the box's columns; the last
  // row is the bias's. scratch: (rows of the box + taps - 1) * (columns of the box) floats.
  void (*backward)(const ConvArgs&, const Box&, float* d_weight, float* scratch);
  // Columns [left, right) of the document's d_entering. scratch: (taps - 1) * columns floats.
  void (*history_backward)(const ConvArgs&, const ConvDocument&, int64_t left, int64_t right,
                           float* scratch);
};
const ConvTable& table(IsaTag<Isa::kPlain>, const ConvTable*);
const ConvTable& table(IsaTag<Isa::kAvx2>, const ConvTable*);
const ConvTable& table(IsaTag<Isa::kAvx512>, const ConvTable*);

}  // namespace weft::kernels
