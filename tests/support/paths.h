#pragma once

#include <string>

namespace weft::test {

// `path` inside the project's folder: in_project("tests/golden").
std::string in_project(const std::string& path);

// The built program.
const std::string& weft_program();

// The program that trains for tests under mpirun (tests/support/rank_jobs.h).
std::string training_ranks_program();

}  // namespace weft::test
