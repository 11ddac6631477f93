#include "kernels/scan/scan_checks.h"

#include <algorithm>
#include <string_view>

namespace weft::kernels {
namespace {

bool fits(FieldType type, DType x, DType scan) {
  const bool real = x == DType::kF32 || x == DType::kBF16;
  switch (type) {
    case FieldType::kScan: return real && x == scan;
    case FieldType::kScanOrF32: return real && (x == scan || x == DType::kF32);
    case FieldType::kReal: return real;
    case FieldType::kF32: return x == DType::kF32;
  }
  return false;
}

std::string_view expected_type(FieldType type, DType scan) {
  if (type == FieldType::kF32) return "f32";
  if (type == FieldType::kReal || scan == DType::kF32) return "f32 or bf16";
  return type == FieldType::kScan ? name_of(scan) : "bf16 or f32";
}

}  // namespace

void check_field(const FieldCheck& e, ConstView x) {
  WEFT_CHECK(fits(e.type, x.dtype, e.scan), "{}: {}{} is {}, expected {}", e.kernel, e.prefix,
             e.name, name_of(x.dtype), expected_type(e.type, e.scan));
  if (e.rows == FieldRows::kNone) {
    WEFT_CHECK(x.contiguous() && x.shape.elements() == e.width,
               "{}: {}{} is {}, expected {} contiguous numbers", e.kernel, e.prefix, e.name,
               x.shape, e.width);
    return;
  }
  const bool one = e.rows == FieldRows::kTokensOrOne && x.shape.dims() == 1;
  WEFT_CHECK(x.width() == e.width && (one || x.rows() == e.tokens), "{}: {}{} is {}, expected {}",
             e.kernel, e.prefix, e.name, x.shape, Shape({e.tokens, e.width}));
}

void check_output(const char* kernel, const char* name, ConstView x, int64_t tokens, int64_t width,
                  DType scan) {
  check_field({kernel, "", name, tokens, width, FieldType::kScanOrF32, FieldRows::kTokens, scan},
              x);
}

void check_state(const char* kernel, const char* name, ConstView x, int64_t count) {
  if (nothing_in(x)) return;
  WEFT_CHECK(x.dtype == DType::kF32 && x.contiguous() && x.shape.elements() == count,
             "{}: {} is {} {}, expected {} contiguous f32 numbers", kernel, name, name_of(x.dtype),
             x.shape, count);
}

void check_documents(const char* kernel, std::span<const int32_t> documents, int64_t tokens) {
  WEFT_CHECK(!documents.empty() && documents.front() == 0 && documents.back() == tokens,
             "{}: document offsets must go from 0 to {} tokens", kernel, tokens);
  WEFT_CHECK(std::is_sorted(documents.begin(), documents.end()),
             "{}: document offsets must not fall", kernel);
}

void check_head_counts(const char* kernel, int64_t heads, int64_t sharing, int64_t key,
                       int64_t value) {
  WEFT_CHECK(heads > 0 && sharing > 0 && heads % sharing == 0,
             "{}: {} heads cannot share {} heads evenly", kernel, heads, sharing);
  WEFT_CHECK(key > 0 && value > 0, "{}: head widths {} and {}", kernel, key, value);
}

}  // namespace weft::kernels
