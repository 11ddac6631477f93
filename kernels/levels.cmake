# The instruction sets that the CPU kernels are compiled for. `native`: those that this machine uses, which
# builds fastest; `all`: one binary for every x86-64; or some by name.
set(weft_all_levels plain avx2 avx512 avx512_bf16 amx)
set(WEFT_LEVELS all CACHE STRING "Instruction sets of the kernels: native, all, or a list of ${weft_all_levels}")

# Those that this machine executes, found by trying.
function(weft_executed_levels variable)
  try_run(ran compiled SOURCE_FROM_CONTENT print_levels.cc [[
    #include <cstdio>
    #include "core/base/isa.h"
    int main() {
      for (const weft::Isa isa : weft::machine_isas()) std::printf("%s;", weft::name_of(isa).data());
    }
  ]] SOURCES ${CMAKE_SOURCE_DIR}/core/base/isa.cc ${CMAKE_SOURCE_DIR}/core/base/error.cc
    CMAKE_FLAGS -DINCLUDE_DIRECTORIES=${CMAKE_SOURCE_DIR}
    COMPILE_DEFINITIONS -DWEFT_LEVELS=""
    LINK_LIBRARIES fmt::fmt
    CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON
    COMPILE_OUTPUT_VARIABLE problem
    RUN_OUTPUT_VARIABLE levels)
  if(NOT compiled OR NOT ran EQUAL 0)
    message(FATAL_ERROR "WEFT_LEVELS=native: cannot find the instruction sets of this machine; name them:\n${problem}")
  endif()
  string(REGEX REPLACE ";$" "" levels "${levels}")
  set(${variable} ${levels} PARENT_SCOPE)
endfunction()

if(WEFT_LEVELS STREQUAL all)
  set(levels ${weft_all_levels})
elseif(WEFT_LEVELS STREQUAL native)
  weft_executed_levels(executed)
  # The highest one, and below the ones that only multiply bf16 the one that does the rest.
  list(GET executed -1 levels)
else()
  set(levels ${WEFT_LEVELS})
  foreach(level ${levels})
    if(NOT level IN_LIST weft_all_levels)
      message(FATAL_ERROR "WEFT_LEVELS: '${level}' is not one of native, all, ${weft_all_levels}")
    endif()
  endforeach()
endif()
if(levels MATCHES "avx512_bf16|amx")
  list(APPEND levels avx512)
endif()
set(WEFT_BUILT_LEVELS "")
set(weft_level_definitions "")
foreach(level ${weft_all_levels})
  if(level IN_LIST levels)
    list(APPEND WEFT_BUILT_LEVELS ${level})
    string(TOUPPER ${level} name)
    list(APPEND weft_level_definitions WEFT_LEVEL_${name})
  endif()
endforeach()
message(STATUS "Instruction sets: ${WEFT_BUILT_LEVELS}")
