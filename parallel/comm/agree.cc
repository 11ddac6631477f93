#include "parallel/comm/agree.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "core/host_access.h"

namespace weft {

std::vector<int64_t> gather_numbers(Exec& exec, Communicator& comm, std::span<const int64_t> mine) {
  const auto count = static_cast<int64_t>(mine.size());
  const Tensor from = exec.empty({count}, DType::kI64),
               all = exec.empty({comm.size(), count}, DType::kI64);
  std::copy(mine.begin(), mine.end(), host<int64_t>(from));
  comm.all_gather(exec, from, all);
  return {host<int64_t>(all), host<int64_t>(all) + all.elements()};
}

std::vector<double> gather_numbers(Exec& exec, Communicator& comm, std::span<const double> mine) {
  std::vector<int64_t> bits(mine.size());
  std::memcpy(bits.data(), mine.data(), mine.size_bytes());
  const std::vector<int64_t> all = gather_numbers(exec, comm, bits);
  std::vector<double> out(all.size());
  std::memcpy(out.data(), all.data(), all.size() * sizeof(double));
  return out;
}

double sum_over(Exec& exec, Communicator& comm, double mine) {
  const std::vector<double> all = gather_numbers(exec, comm, std::span<const double>(&mine, 1));
  return std::accumulate(all.begin(), all.end(), 0.0);
}

int64_t sum_over(Exec& exec, Communicator& comm, int64_t mine) {
  const std::vector<int64_t> all = gather_numbers(exec, comm, std::span<const int64_t>(&mine, 1));
  return std::accumulate(all.begin(), all.end(), int64_t{0});
}

int64_t max_over(Exec& exec, Communicator& comm, int64_t mine) {
  const std::vector<int64_t> all = gather_numbers(exec, comm, std::span<const int64_t>(&mine, 1));
  return *std::max_element(all.begin(), all.end());
}

std::vector<std::string> gather_texts(Exec& exec, Communicator& comm, const std::string& mine) {
  const auto length = static_cast<int64_t>(mine.size());
  const std::vector<int64_t> lengths =
      gather_numbers(exec, comm, std::span<const int64_t>(&length, 1));
  const int64_t words = (*std::max_element(lengths.begin(), lengths.end()) + 7) / 8;
  std::vector<int64_t> packed(static_cast<size_t>(words));
  std::memcpy(packed.data(), mine.data(), mine.size());
  const std::vector<int64_t> all = gather_numbers(exec, comm, packed);
  std::vector<std::string> texts;
  for (size_t r = 0; r < lengths.size(); ++r) {
    texts.emplace_back(
        reinterpret_cast<const char*>(all.data()) + static_cast<int64_t>(r) * words * 8,
        static_cast<size_t>(lengths[r]));
  }
  return texts;
}

std::string text_of_first(Exec& exec, Communicator& comm, const std::string& mine) {
  return gather_texts(exec, comm, comm.rank() == 0 ? mine : "").front();
}

}  // namespace weft
