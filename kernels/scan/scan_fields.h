#pragma once

#include <span>

#include "core/memory/exec.h"

// Operands of a scan as a list of fields. Checks and the counting of bytes are written once over
// such lists (kernels/scan/scan_checks.h), and so can be whatever treats all operands alike:
// allocating gradients, replacing one operand, sums over ranks.
//
// A scan is a struct with
//   kName            its kernels' common name
//   Gradients        struct of the gradients of its fields
//   fields()         the list; the first field gives the number of tokens and the type of products
//   documents        offsets of the documents, n + 1 entries
namespace weft::kernels {

enum class FieldType : uint8_t {
  kScan,       // that of the first field; gradients may be f32 as well
  kScanOrF32,  // either, inputs too
  kReal,       // f32 or bf16, each operand on its own
  kF32,
};

enum class FieldRows : uint8_t {
  kTokens,       // [tokens, width]
  kTokensOrOne,  // that, or [width] when it is the same for all tokens
  kNone,         // width contiguous numbers for all tokens: a parameter, whose gradient is added to
};

enum class Presence : uint8_t {
  kAlways,
  kOptional,              // its gradient is given exactly when the field is
  kOptionalWithGradient,  // its gradient may be left out, too
};

template <class Scan>
struct ScanField {
  const char* name;
  ConstView Scan::*input;
  View Scan::Gradients::*gradient;
  int64_t (*width)(const Scan&);
  FieldType type = FieldType::kScan;
  Presence presence = Presence::kAlways;
  FieldRows rows = FieldRows::kTokens;
};

template <class Scan>
int64_t tokens_of(const Scan& in) {
  return (in.*Scan::fields().front().input).rows();
}
template <class Scan>
DType type_of(const Scan& in) {
  return (in.*Scan::fields().front().input).dtype;
}
template <class Scan>
int64_t documents_of(const Scan& in) {
  return static_cast<int64_t>(in.documents.size()) - 1;
}

}  // namespace weft::kernels
