#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/comm/pending.h"

namespace weft {

// Numbers and texts that the hosts of a group agree on: counts, sizes, messages, never tensors. No
// device takes part, so a value is there when the call returns. Calls are collective and give the
// same bits on every rank.
class HostGroup {
 public:
  virtual ~HostGroup() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view name() const = 0;  // "sequence[2/4]", as of the communicator

  virtual void barrier() = 0;
  // all [size, mine...]: as many numbers from every rank.
  virtual void gather_into(std::span<const int64_t> mine, std::span<int64_t> all) = 0;
  // Row r of `to_each` goes to rank r; row r of `from_each` comes from it. [size, n] both.
  virtual void exchange_into(std::span<const int64_t> to_each, std::span<int64_t> from_each) = 0;

  // One message between two ranks. Those of one tag arrive in the order in which they were sent.
  struct Message {
    enum class Kind : uint8_t { kSend, kReceive } kind;
    int peer;
    std::span<int64_t> numbers;  // a send only reads
    int tag = 0;
  };
  [[nodiscard]] virtual std::unique_ptr<Pending> start(std::span<const Message> together) = 0;

  std::vector<int64_t> gather(std::span<const int64_t> mine);
  std::vector<double> gather(std::span<const double> mine);
  std::vector<int64_t> exchange(std::span<const int64_t> to_each);

  double sum(double mine);  // added in rank order
  int64_t sum(int64_t mine);
  int64_t max(int64_t mine);
  std::vector<int64_t> sums(std::span<const int64_t> mine);  // element by element

  // Texts of any length, by rank.
  std::vector<std::string> gather_texts(const std::string& mine);
  // The text of rank 0.
  std::string text_of_first(const std::string& mine);
};

// One rank alone.
class SelfHosts final : public HostGroup {
 public:
  explicit SelfHosts(std::string name = "self[0/1]") : name_(std::move(name)) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string_view name() const override { return name_; }
  void barrier() override {}
  void gather_into(std::span<const int64_t> mine, std::span<int64_t> all) override;
  void exchange_into(std::span<const int64_t> to_each, std::span<int64_t> from_each) override;
  std::unique_ptr<Pending> start(std::span<const Message> together) override;

 private:
  std::string name_;
};

}  // namespace weft
