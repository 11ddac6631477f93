#pragma once

#include "core/base/dtype.h"
#include "core/base/isa.h"

namespace weft::kernels {

// Names an instruction set at compile time. A file cpu/isa/<x>.cc is compiled once per level and
// defines the table of its family as an overload on the level; everything else picks one at run
// time:
//   cpu/isa/norm.h    const NormTable& table(IsaTag<Isa::kAvx2>, const NormTable*);   (and others)
//   cpu/isa/norm.cc   const NormTable& table(ThisIsa, const NormTable*) { ... }
//   norm.cc           table_of<NormTable>(exec.isa).rms_forward(...)
template <Isa isa>
struct IsaTag {};
// The levels above AVX-512 add products of bf16 and change nothing else: a family without kernels
// of its own for them declares no overload and is served by the level below (CMakeLists.txt
// compiles only those that have).
template <>
struct IsaTag<Isa::kAvx512Bf16> : IsaTag<Isa::kAvx512> {};
template <>
struct IsaTag<Isa::kAmx> : IsaTag<Isa::kAvx512Bf16> {};

// The level that inputs of a type are served by: those above AVX-512 have code for bf16 alone.
inline Isa isa_for(Isa isa, DType dtype) {
  return dtype == DType::kBF16 || isa < Isa::kAvx512 ? isa : Isa::kAvx512;
}

// pick(tag) for the level `isa`, which must be one that this program was built for.
template <class Pick>
decltype(auto) by_isa(Isa isa, Pick&& pick) {
  switch (isa) {
#ifdef WEFT_LEVEL_AMX
    case Isa::kAmx: return pick(IsaTag<Isa::kAmx>{});
#endif
#ifdef WEFT_LEVEL_AVX512_BF16
    case Isa::kAvx512Bf16: return pick(IsaTag<Isa::kAvx512Bf16>{});
#endif
#ifdef WEFT_LEVEL_AVX512
    case Isa::kAvx512: return pick(IsaTag<Isa::kAvx512>{});
#endif
#ifdef WEFT_LEVEL_AVX2
    case Isa::kAvx2: return pick(IsaTag<Isa::kAvx2>{});
#endif
#ifdef WEFT_LEVEL_PLAIN
    case Isa::kPlain: return pick(IsaTag<Isa::kPlain>{});
#endif
    default: refuse_level(isa);
  }
}

template <class Table>
const Table& table_of(Isa isa) {
  return by_isa(
      isa, [](auto tag) -> const Table& { return table(tag, static_cast<const Table*>(nullptr)); });
}

#ifdef WEFT_THIS_ISA
using ThisIsa = IsaTag<Isa::WEFT_THIS_ISA>;
#endif

}  // namespace weft::kernels
