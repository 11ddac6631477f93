#include "parallel/comm/host_group.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "core/base/error.h"

namespace weft {

std::vector<int64_t> HostGroup::gather(std::span<const int64_t> mine) {
  std::vector<int64_t> all(mine.size() * static_cast<size_t>(size()));
  gather_into(mine, all);
  return all;
}

std::vector<double> HostGroup::gather(std::span<const double> mine) {
  std::vector<int64_t> bits;
  for (const double x : mine) bits.push_back(std::bit_cast<int64_t>(x));
  std::vector<double> all;
  for (const int64_t x : gather(bits)) all.push_back(std::bit_cast<double>(x));
  return all;
}

std::vector<int64_t> HostGroup::exchange(std::span<const int64_t> to_each) {
  WEFT_CHECK(std::ssize(to_each) % size() == 0, "{} numbers for {} ranks of {}", to_each.size(),
             size(), name());
  std::vector<int64_t> from_each(to_each.size());
  exchange_into(to_each, from_each);
  return from_each;
}

double HostGroup::sum(double mine) {
  const std::vector<double> all = gather(std::span<const double>(&mine, 1));
  return std::accumulate(all.begin(), all.end(), 0.0);
}

int64_t HostGroup::sum(int64_t mine) {
  const std::vector<int64_t> all = gather(std::span<const int64_t>(&mine, 1));
  return std::accumulate(all.begin(), all.end(), int64_t{0});
}

int64_t HostGroup::max(int64_t mine) {
  const std::vector<int64_t> all = gather(std::span<const int64_t>(&mine, 1));
  return *std::max_element(all.begin(), all.end());
}

std::vector<int64_t> HostGroup::sums(std::span<const int64_t> mine) {
  const std::vector<int64_t> all = gather(mine);
  std::vector<int64_t> total(mine.size());
  for (size_t i = 0; i < all.size(); ++i) total[i % mine.size()] += all[i];
  return total;
}

std::vector<std::string> HostGroup::gather_texts(const std::string& mine) {
  const auto length = static_cast<int64_t>(mine.size());
  const std::vector<int64_t> lengths = gather(std::span<const int64_t>(&length, 1));
  const int64_t words = (*std::max_element(lengths.begin(), lengths.end()) + 7) / 8;
  std::vector<int64_t> packed(static_cast<size_t>(words));
  std::memcpy(packed.data(), mine.data(), mine.size());
  const std::vector<int64_t> all = gather(packed);
  std::vector<std::string> texts;
  for (size_t r = 0; r < lengths.size(); ++r) {
    texts.emplace_back(
        reinterpret_cast<const char*>(all.data()) + static_cast<int64_t>(r) * words * 8,
        static_cast<size_t>(lengths[r]));
  }
  return texts;
}

std::string HostGroup::text_of_first(const std::string& mine) {
  return gather_texts(rank() == 0 ? mine : "").front();
}

void SelfHosts::gather_into(std::span<const int64_t> mine, std::span<int64_t> all) {
  std::copy(mine.begin(), mine.end(), all.begin());
}

void SelfHosts::exchange_into(std::span<const int64_t> to_each, std::span<int64_t> from_each) {
  std::copy(to_each.begin(), to_each.end(), from_each.begin());
}

std::unique_ptr<Pending> SelfHosts::start(std::span<const Message> together) {
  WEFT_CHECK(together.empty(), "{} has no other rank to send to", name_);
  return std::make_unique<Done>();
}

}  // namespace weft
