#pragma once

#include <utility>

#include "core/dtype.h"
#include "core/isa.h"

namespace weft::kernels {

// Names an instruction set at compile time. A file under kernels/cpu is compiled once per set and
// defines its table as an overload on ThisIsa; kernels/*.cc picks one at run time:
//   cpu/norm.h    const NormTable& norm_table(IsaTag<Isa::kAvx2>);      (and the other sets)
//   cpu/norm.cc   const NormTable& norm_table(ThisIsa) { static constexpr NormTable t{...}; return t; }
//   norm.cc       const NormTable& table = by_isa(exec.isa, [](auto isa) -> const NormTable& {
//                   return norm_table(isa); });
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

template <class Pick>
decltype(auto) by_isa(Isa isa, Pick&& pick) {
  switch (isa) {
    case Isa::kAmx: return pick(IsaTag<Isa::kAmx>{});
    case Isa::kAvx512Bf16: return pick(IsaTag<Isa::kAvx512Bf16>{});
    case Isa::kAvx512: return pick(IsaTag<Isa::kAvx512>{});
    case Isa::kAvx2: return pick(IsaTag<Isa::kAvx2>{});
    default: return pick(IsaTag<Isa::kPlain>{});
  }
}

#ifdef WEFT_THIS_ISA
using ThisIsa = IsaTag<Isa::WEFT_THIS_ISA>;
#endif

}  // namespace weft::kernels
