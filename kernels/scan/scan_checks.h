#pragma once

#include "kernels/checks.h"
#include "kernels/dispatch.h"
#include "kernels/scan/scan_fields.h"

// Checks of scans and the bytes they touch, from their lists of fields.
namespace weft::kernels {

// x against its place in the list, `scan` being the type of the first field.
struct FieldCheck {
  const char* kernel;
  const char* prefix;  // of the name: "" or "d_"
  const char* name;
  int64_t tokens, width;
  FieldType type;
  FieldRows rows;
  DType scan;
};
void check_field(const FieldCheck& expected, ConstView x);

// [tokens, width] of the type of the first field, or f32.
void check_output(const char* kernel, const char* name, ConstView x, int64_t tokens, int64_t width,
                  DType scan);
// f32 [documents, ...] of `count` numbers; may be absent.
void check_state(const char* kernel, const char* name, ConstView x, int64_t count);
void check_documents(const char* kernel, std::span<const int32_t> documents, int64_t tokens);

template <class Scan>
void check_inputs(const Scan& in) {
  const int64_t tokens = tokens_of(in);
  check_documents(Scan::kName, in.documents, tokens);
  for (const ScanField<Scan>& f : Scan::fields()) {
    const ConstView& x = in.*f.input;
    if (!given(x) && (f.presence != Presence::kAlways || tokens == 0)) continue;
    check_field({Scan::kName, "", f.name, tokens, f.width(in), f.type, f.rows, type_of(in)}, x);
  }
}

// Gradients of the fields of `in`, which was checked.
template <class Scan>
void check_gradients(const Scan& in, const typename Scan::Gradients& gradients) {
  const int64_t tokens = tokens_of(in);
  for (const ScanField<Scan>& f : Scan::fields()) {
    const View& x = gradients.*f.gradient;
    const FieldType type = f.type == FieldType::kScan ? FieldType::kScanOrF32 : f.type;
    const FieldRows rows = f.rows == FieldRows::kTokensOrOne ? FieldRows::kTokens : f.rows;
    if (!given(x)) {
      const bool needed = f.presence == Presence::kAlways ||
                          (f.presence == Presence::kOptional && given(in.*f.input));
      WEFT_CHECK(!needed || tokens == 0, "{}: the gradient of {} is not given", Scan::kName,
                 f.name);
      continue;
    }
    WEFT_CHECK(given(in.*f.input) || tokens == 0, "{}: a gradient of {}, which is not given",
               Scan::kName, f.name);
    check_field({Scan::kName, "d_", f.name, tokens, f.width(in), type, rows, type_of(in)}, x);
  }
}

// Scans over heads: outputs [tokens, heads * value], states [documents, heads, key, value].
template <class Scan>
void check_head_state(const Scan& in, const char* name, ConstView x) {
  check_state(Scan::kName, name, x, documents_of(in) * in.heads * in.key * in.value);
}
template <class Scan>
void check_head_output(const Scan& in, const char* name, ConstView x) {
  check_output(Scan::kName, name, x, tokens_of(in), in.heads * in.value, type_of(in));
}
template <class Scan>
void check_head_gradients(const Scan& in, ConstView d_out, ConstView d_final_state,
                          const typename Scan::Gradients& gradients) {
  check_head_output(in, "d_out", d_out);
  check_head_state(in, "d_final_state", d_final_state);
  check_head_state(in, "d_initial_state", gradients.d_initial_state);
  check_gradients(in, gradients);
}
// `sharing` heads of some inputs serve all of the scan's heads.
void check_head_counts(const char* kernel, int64_t heads, int64_t sharing, int64_t key,
                       int64_t value);

// Bytes of all inputs, and of gradients: those of parameters are read as well.
template <class Scan>
int64_t bytes_of_inputs(const Scan& in) {
  int64_t bytes = 0;
  for (const ScanField<Scan>& f : Scan::fields()) bytes += bytes_of(in.*f.input);
  return bytes;
}
struct GradientBytes {
  int64_t read = 0, written = 0;
};
template <class Scan>
GradientBytes bytes_of_gradients(const typename Scan::Gradients& gradients) {
  GradientBytes bytes;
  for (const ScanField<Scan>& f : Scan::fields()) {
    const int64_t count = bytes_of(gradients.*f.gradient);
    bytes.written += count;
    if (f.rows == FieldRows::kNone) bytes.read += count;
  }
  return bytes;
}

// Sums and products per token and head of a scan in chunks, those of matrices alone: decays and
// gates are small beside them.
struct ScanFlops {
  double forward = 0;
  double states_alone = 0;  // forward without queries and outputs
  double scores = 0;        // backward computes them again
};
inline constexpr double kCountedChunk = 64;  // tokens; most programs walk in such chunks

// `entering`, `leaving`: bytes of states (and what is kept for backward).
template <class Scan>
KernelCall forward_call(const char* name, const Scan& in, const ScanFlops& flops, int64_t entering,
                        ConstView out, int64_t leaving) {
  const bool reads = given(out);  // queries
  return {.name = name,
          .type = type_of(in),
          .flops = static_cast<double>(tokens_of(in) * in.heads) *
                   (reads ? flops.forward : flops.states_alone),
          .read = bytes_of_inputs(in) - (reads ? 0 : bytes_of(in.q)) + entering,
          .written = bytes_of(out) + leaving};
}

// Every product of forward gives two: one for the gradient of each factor.
template <class Scan>
KernelCall backward_call(const char* name, const Scan& in, const ScanFlops& flops, int64_t entering,
                         ConstView d_out, const typename Scan::Gradients& gradients,
                         int64_t leaving, ConstView kept) {
  const GradientBytes bytes = bytes_of_gradients<Scan>(gradients);
  return {.name = name,
          .type = type_of(in),
          .flops = static_cast<double>(tokens_of(in) * in.heads) *
                   (2 * flops.forward + flops.scores + (given(kept) ? 0 : flops.states_alone)),
          .read = bytes_of_inputs(in) + entering + bytes_of(d_out, kept) + bytes.read,
          .written = bytes.written + leaving};
}

}  // namespace weft::kernels
