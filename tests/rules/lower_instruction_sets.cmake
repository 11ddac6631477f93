# The kernel tests once more at each instruction set below the one the machine would choose.
add_executable(instruction_sets rules/instruction_sets.cc)
target_link_libraries(instruction_sets PRIVATE weft_core)
foreach(isa plain avx2 avx512 avx512_bf16)
  add_test(NAME kernels_at_${isa}
           COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/rules/at_instruction_set ${isa}
                   $<TARGET_FILE:instruction_sets> $<TARGET_FILE:test_kernels>)
  set_tests_properties(kernels_at_${isa} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900)
endforeach()
