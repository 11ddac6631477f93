#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/comm/communicator.h"

// Small things that all ranks of a group must know alike. Collective; every rank gets the same
// bits.
namespace weft {

// [size, mine...]: as many numbers from every rank.
std::vector<int64_t> gather_numbers(Exec& exec, Communicator& comm, std::span<const int64_t> mine);
std::vector<double> gather_numbers(Exec& exec, Communicator& comm, std::span<const double> mine);

double sum_over(Exec& exec, Communicator& comm, double mine);  // added in rank order
int64_t sum_over(Exec& exec, Communicator& comm, int64_t mine);
int64_t max_over(Exec& exec, Communicator& comm, int64_t mine);

// Texts of any length, by rank.
std::vector<std::string> gather_texts(Exec& exec, Communicator& comm, const std::string& mine);
// That of rank 0.
std::string text_of_first(Exec& exec, Communicator& comm, const std::string& mine);

}  // namespace weft
