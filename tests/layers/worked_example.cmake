# The worked example of layers/mixers/README.md as its readers would add it: the code block as a file, the line
# in a copy of mixers.def, and the laws of every mixer over it.
set(page ${CMAKE_SOURCE_DIR}/layers/mixers/README.md)
set(definitions ${CMAKE_SOURCE_DIR}/layers/mixers/mixers.def)
set(example ${CMAKE_CURRENT_BINARY_DIR}/worked_example)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page} ${definitions})

file(READ ${page} text)
string(FIND "${text}" "```cpp\n" begin)
if(begin EQUAL -1)
  message(FATAL_ERROR "layers/mixers/README.md has no example any more")
endif()
math(EXPR begin "${begin} + 7")
string(SUBSTRING "${text}" ${begin} -1 text)
string(FIND "${text}" "```" end)
string(SUBSTRING "${text}" 0 ${end} code)
string(REGEX MATCH "WEFT_MIXER\\([^`]*\\)" line "${text}")
string(REGEX REPLACE "WEFT_MIXER\\(([a-z0-9_]+),.*" "\\1" name "${line}")

file(CONFIGURE OUTPUT ${example}/layers/mixers/${name}.cc CONTENT "${code}" @ONLY)
file(READ ${definitions} lines)
file(CONFIGURE OUTPUT ${example}/layers/mixers/mixers.def CONTENT "${lines}${line}\n" @ONLY)

# The registry comes first here, so that the library's own is not linked; the laws are compiled already.
add_executable(test_worked_example
  ${CMAKE_SOURCE_DIR}/layers/mixers/registry.cc ${example}/layers/mixers/${name}.cc
  "$<FILTER:$<TARGET_OBJECTS:test_layers>,INCLUDE,(mixer|tensor)_laws_test>")
target_include_directories(test_worked_example BEFORE PRIVATE ${example})
target_link_libraries(test_worked_example PRIVATE weft_test_support GTest::gtest_main)
add_test(NAME layers.worked_example COMMAND test_worked_example --gtest_brief=1 --gtest_filter=*${name}
         --gtest_output=xml:${CMAKE_BINARY_DIR}/results/layers.worked_example.xml)
set_tests_properties(layers.worked_example PROPERTIES TIMEOUT 900)
