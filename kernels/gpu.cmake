# kernels/<group>/cuda/*.cu, compiled for every architecture where there is nvcc. Not linked into the program yet.
find_program(WEFT_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT WEFT_NVCC OR NOT WEFT_CUDA_ARCHITECTURES OR WEFT_SANITIZE)
  if(WEFT_CUDA)
    message(FATAL_ERROR "WEFT_CUDA needs nvcc (in PATH or CUDA_PATH), WEFT_CUDA_ARCHITECTURES and no "
                        "sanitizer. Without nvcc configure with the preset 'release': the CPU backend is "
                        "complete.")
  endif()
  if(NOT WEFT_NVCC)
    message(STATUS "nvcc: not found; the CUDA kernels are not compiled")
  endif()
  return()
endif()

set(CMAKE_CUDA_COMPILER ${WEFT_NVCC})
set(CMAKE_CUDA_ARCHITECTURES ${WEFT_CUDA_ARCHITECTURES})
enable_language(CUDA)
message(STATUS "nvcc: CUDA kernels are compiled for sm ${WEFT_CUDA_ARCHITECTURES}")
if(CCACHE)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()

# CMake 3.25 believes that nvcc has no C++20, and adds -std=c++17 behind whatever a target asks for.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
file(GLOB cuda_sources CONFIGURE_DEPENDS */cuda/*.cu)
add_library(weft_cuda OBJECT ${cuda_sources})
target_compile_options(weft_cuda PRIVATE -Xcompiler=-Wall,-Wextra -Werror=all-warnings)

# What links to GPU libraries: small libraries of our own beside the program, which loads them when they are asked
# for. They take what they need of weft from the program that loads them (CMAKE_ENABLE_EXPORTS).
get_filename_component(cuda_root ${WEFT_NVCC} REALPATH)
get_filename_component(cuda_root ${cuda_root} DIRECTORY)
get_filename_component(cuda_root ${cuda_root} DIRECTORY)
function(weft_find_cuda_library variable)
  find_library(${variable} ${ARGN} HINTS ${cuda_root} PATH_SUFFIXES lib64 lib targets/x86_64-linux/lib)
endfunction()
find_path(WEFT_CUDA_INCLUDE cuda_runtime_api.h HINTS ${cuda_root}/include ${cuda_root}/targets/x86_64-linux/include)
weft_find_cuda_library(WEFT_CUDART_LIBRARY cudart)
function(weft_gpu_library name) # NAME SOURCES...
  add_library(weft_${name} MODULE ${ARGN})
  target_include_directories(weft_${name} SYSTEM PRIVATE ${WEFT_CUDA_INCLUDE})
  target_link_libraries(weft_${name} PRIVATE fmt::fmt ${WEFT_CUDART_LIBRARY})
  set_target_properties(weft_${name} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
  # The program does not link it, but whoever builds the program wants it.
  set_property(GLOBAL APPEND PROPERTY WEFT_GPU_LIBRARIES weft_${name})
endfunction()
# What may be left out, unless WEFT_CUDA insists.
function(weft_left_out library what) # LIBRARY WHAT HOW TO NAME IT...
  list(JOIN ARGN " " how)
  if(WEFT_CUDA)
    message(FATAL_ERROR "WEFT_CUDA: ${library} was not found beside ${WEFT_NVCC}; install its development "
                        "package, name it with ${how}, or configure with the preset 'release', which leaves ${what} out")
  endif()
  message(STATUS "${library}: not found; left out: ${what}")
endfunction()
set(WEFT_GPU ON PARENT_SCOPE)
set(WEFT_CUDA_VERSION ${CMAKE_CUDA_COMPILER_VERSION} PARENT_SCOPE)

weft_find_cuda_library(WEFT_CUBLASLT_LIBRARY cublasLt)
if(WEFT_CUBLASLT_LIBRARY)
  weft_gpu_library(cublaslt ${CMAKE_SOURCE_DIR}/kernels/cublaslt/gemm.cc)
  target_link_libraries(weft_cublaslt PRIVATE ${WEFT_CUBLASLT_LIBRARY})
else()
  weft_left_out(cuBLASLt "its products" -DWEFT_CUBLASLT_LIBRARY=FILE)
endif()

# TransformerEngine: the unpacked wheel transformer-engine-cu13 is enough. 2.12.0 is the newest that links with
# CUDA 13.0's own cuBLAS.
set(WEFT_TE_DIR "" CACHE PATH "Folder that holds transformer_engine/common/include and libtransformer_engine.so")
find_path(WEFT_TE_INCLUDE transformer_engine/gemm.h NO_DEFAULT_PATH
          HINTS ${WEFT_TE_DIR}/transformer_engine/common/include ${WEFT_TE_DIR}/include)
find_library(WEFT_TE_LIBRARY transformer_engine NO_DEFAULT_PATH
             HINTS ${WEFT_TE_DIR}/transformer_engine/wheel_lib ${WEFT_TE_DIR}/lib ${WEFT_TE_DIR}/lib64)
if(NOT WEFT_TE_INCLUDE OR NOT WEFT_TE_LIBRARY)
  if(WEFT_TE_DIR)
    message(FATAL_ERROR "WEFT_TE_DIR=${WEFT_TE_DIR}: no transformer_engine/gemm.h or libtransformer_engine.so there")
  endif()
  message(STATUS "TransformerEngine: not asked for (WEFT_TE_DIR); its adapter is left out")
  return()
endif()
file(GLOB te_metadata ${WEFT_TE_DIR}/transformer_engine*.dist-info)
string(REGEX MATCH "-([0-9.]+)[.]dist-info" ignored "${te_metadata}")
set(te_version ${CMAKE_MATCH_1})
if(NOT te_version)
  set(te_version "of unknown version")
endif()
message(STATUS "TransformerEngine: ${te_version}")
file(GLOB te_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/kernels/te/*.cc)
weft_gpu_library(te ${te_sources})
target_include_directories(weft_te SYSTEM PRIVATE ${WEFT_TE_INCLUDE})
target_compile_definitions(weft_te PRIVATE WEFT_TE_VERSION="${te_version}")
foreach(needed nccl cublasLt cublas cudnn nvrtc)
  weft_find_cuda_library(WEFT_TE_NEEDS_${needed} ${needed} REQUIRED)
  list(APPEND te_needs ${WEFT_TE_NEEDS_${needed}})
endforeach()
# nvrtc is used by TransformerEngine but not on its own list of needs.
target_link_libraries(weft_te PRIVATE ${WEFT_TE_LIBRARY} -Wl,--no-as-needed ${te_needs})
