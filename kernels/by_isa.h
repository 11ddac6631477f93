#pragma once

#include <utility>

#include "core/isa.h"

namespace weft::kernels {

// Names an instruction set at compile time. A file under kernels/cpu is compiled once per set and
// defines its table as an overload on ThisIsa; kernels/*.cc picks one at run time:
//   cpu/norm.h    const NormTable& norm_table(IsaTag<Isa::kAvx2>);      (and the other three)
//   cpu/norm.cc   const NormTable& norm_table(ThisIsa) { static constexpr NormTable t{...}; return t; }
//   norm.cc       const NormTable& table = by_isa(exec.isa, [](auto isa) -> const NormTable& {
//                   return norm_table(isa); });
template <Isa isa>
struct IsaTag {};
// AMX adds tiles to AVX-512 and changes nothing else: a family without a kernel of its own for tiles
// declares no overload for it and is served by the AVX-512 one (CMakeLists.txt compiles only the GEMM for it).
template <>
struct IsaTag<Isa::kAmx> : IsaTag<Isa::kAvx512> {};

template <class Pick>
decltype(auto) by_isa(Isa isa, Pick&& pick) {
  switch (isa) {
    case Isa::kAmx: return pick(IsaTag<Isa::kAmx>{});
    case Isa::kAvx512: return pick(IsaTag<Isa::kAvx512>{});
    case Isa::kAvx2: return pick(IsaTag<Isa::kAvx2>{});
    default: return pick(IsaTag<Isa::kPlain>{});
  }
}

#ifdef WEFT_THIS_ISA
using ThisIsa = IsaTag<Isa::WEFT_THIS_ISA>;
#endif

}  // namespace weft::kernels
