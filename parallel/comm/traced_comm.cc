#include "parallel/comm/traced_comm.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "core/parameter.h"
#include "parallel/comm/check_views.h"

namespace weft {
namespace {

// A stated call, in words of 8 characters: a signature, then the place in the step,
// then whether that is in a layer.
constexpr int64_t kSignature = 24, kPlace = 15, kWords = kSignature + kPlace + 1;

void put(const std::string& text, int64_t words, int64_t* to) {
  std::memcpy(to, text.data(), std::min(text.size(), static_cast<size_t>(words * 8)));
}

std::string text_at(const int64_t* from, int64_t words) {
  const char* text = reinterpret_cast<const char*>(from);
  return {text, strnlen(text, static_cast<size_t>(words * 8))};
}

std::string signature_of(const int64_t* words) { return text_at(words, kSignature); }
std::string place_of(const int64_t* words) { return text_at(words + kSignature, kPlace); }
bool in_layer(const int64_t* words) { return words[kWords - 1] != 0; }

// "all_reduce sum(f32 [4]) in step 3, forward of layer 7"
std::string call_of(const int64_t* words) {
  return fmt::format("{} in {}", signature_of(words), place_of(words));
}

// Tags of the signatures of transfers: apart from those that callers choose and those of pending
// collectives (communicator.cc).
constexpr int kStatedTags = 24576;

}  // namespace

CommCost& CommCost::operator+=(const CommCost& other) {
  calls += other.calls;
  bytes += other.bytes;
  seconds += other.seconds;
  return *this;
}

CommCost CommTally::of_axis(const std::string& axis) const {
  CommCost sum;
  const auto found = costs_.find(axis);
  if (found == costs_.end()) return sum;
  for (const auto& [operation, cost] : found->second) sum += cost;
  return sum;
}

std::map<std::string, int64_t> CommTally::bytes_by_axis() const {
  std::map<std::string, int64_t> bytes;
  for (const auto& [axis, operations] : costs_) bytes[axis] = of_axis(axis).bytes;
  return bytes;
}

std::map<std::string, int64_t> CommTally::calls_by_axis() const {
  std::map<std::string, int64_t> calls;
  for (const auto& [axis, operations] : costs_) calls[axis] = of_axis(axis).calls;
  return calls;
}

double CommTally::seconds() const {
  double sum = 0;
  for (const auto& [axis, operations] : costs_) sum += of_axis(axis).seconds;
  return sum;
}

template <class Call>
void TracedComm::counted(const char* operation, int64_t bytes, Call&& call) {
  const auto start = std::chrono::steady_clock::now();
  tally_.activity().enter(axis_.c_str(), operation, start);
  call();  // one that throws is not left: the message says where it was
  const auto end = std::chrono::steady_clock::now();
  tally_.activity().leave(end);
  const double seconds = std::chrono::duration<double>(end - start).count();
  tally_.of(axis_, operation) += CommCost{1, bytes, seconds};
  note(Trace::Kind::kCall, operation, bytes, start, end);
}

void TracedComm::note(Trace::Kind kind, const char* operation, int64_t bytes, Trace::Time begin,
                      Trace::Time end) {
  tally_.trace().add({.kind = kind,
                      .name = operation,
                      .axis = axis_.c_str(),
                      .layer = tally_.activity().layer(),
                      .bytes = bytes,
                      .begin = begin,
                      .end = end});
}

std::vector<int64_t> TracedComm::gather_to_compare(std::span<const int64_t> mine) {
  tally_.activity().enter(axis_.c_str(), "comparing calls", std::chrono::steady_clock::now());
  std::vector<int64_t> all = inner_->hosts().gather(mine);
  tally_.activity().leave(std::chrono::steady_clock::now());
  return all;
}

void TracedComm::state_call(const std::string& signature, int64_t* words) const {
  const Activity::Now now = tally_.activity().now();
  put(signature, kSignature, words);
  put(place_text(now), kPlace, words + kSignature);
  words[kWords - 1] = now.layer >= 0 ? 1 : 0;
}

// Stages are in different layers at the same time; the ranks of one never are.
bool TracedComm::alike(const int64_t* one, const int64_t* other) const {
  if (signature_of(one) != signature_of(other)) return false;
  const bool compared =
      axis_.find(name_of(Axis::kPipe)) == std::string::npos && (in_layer(one) || in_layer(other));
  return !compared || place_of(one) == place_of(other);
}

void TracedComm::compare(const std::string& signature) {
  if (!compares()) return;
  std::vector<int64_t> mine(kWords);
  state_call(signature, mine.data());
  const std::vector<int64_t> all = gather_to_compare(mine);
  for (int r = 1; r < size(); ++r) {
    const int64_t *first = all.data(), *other = first + r * kWords;
    if (alike(first, other)) continue;
    throw Error("ranks of {} disagree: rank 0 calls {}; rank {} calls {}", axis_, call_of(first), r,
                call_of(other));
  }
}

void TracedComm::compare_amounts(const char* call, const char* unit, std::span<const int64_t> sent,
                                 std::span<const int64_t> expected) {
  if (!compares()) return;
  const int64_t n = size();
  std::vector<int64_t> mine(sent.begin(), sent.end());
  mine.insert(mine.end(), expected.begin(), expected.end());
  const std::vector<int64_t> all = gather_to_compare(mine);
  for (int64_t from = 0; from < n; ++from) {
    for (int64_t to = 0; to < n; ++to) {
      const int64_t leaves = all[static_cast<size_t>(from * 2 * n + to)];
      const int64_t comes = all[static_cast<size_t>(to * 2 * n + n + from)];
      if (leaves == comes) continue;
      throw Error(
          "ranks of {} disagree in {}, {}: rank {} sends {} {} to rank {}, which expects {}", axis_,
          call, place_text(tally_.activity().now()), from, leaves, unit, to, comes);
    }
  }
}

void TracedComm::all_reduce(Exec& exec, View inout, ReduceOp op) {
  compare(signature(op == ReduceOp::kSum ? "all_reduce sum" : "all_reduce max", inout));
  const int64_t bytes = 2 * (size() - 1) * bytes_of(inout) / size();
  counted("all_reduce", bytes, [&] { inner_->all_reduce(exec, inout, op); });
}

void TracedComm::all_gather(Exec& exec, ConstView mine, View all) {
  compare(signature("all_gather", mine));
  counted("all_gather", (size() - 1) * bytes_of(mine),
          [&] { inner_->all_gather(exec, mine, all); });
}

void TracedComm::reduce_scatter(Exec& exec, ConstView all, View mine) {
  compare(signature("reduce_scatter", mine));
  counted("reduce_scatter", (size() - 1) * bytes_of(mine),
          [&] { inner_->reduce_scatter(exec, all, mine); });
}

void TracedComm::compare_all_to_all(ConstView send, std::span<const int64_t> send_rows,
                                    ConstView recv, std::span<const int64_t> recv_rows) {
  compare(row_signature(send));
  check_all_to_all(*this, send, send_rows, recv, recv_rows);
  compare_amounts("all_to_all_v", "rows", send_rows, recv_rows);
}

int64_t TracedComm::bytes_to_others(ConstView send, std::span<const int64_t> send_rows) const {
  const int64_t rows = send.rows() - send_rows[static_cast<size_t>(rank())];
  return rows * send.width() * size_of(send.dtype);
}

void TracedComm::all_to_all_v(Exec& exec, ConstView send, std::span<const int64_t> send_rows,
                              View recv, std::span<const int64_t> recv_rows) {
  compare_all_to_all(send, send_rows, recv, recv_rows);
  counted("all_to_all_v", bytes_to_others(send, send_rows),
          [&] { inner_->all_to_all_v(exec, send, send_rows, recv, recv_rows); });
}

int64_t TracedComm::bytes_sent(std::span<const Transfer> together) const {
  int64_t bytes = 0;
  for (const Transfer& one : together) {
    if (one.kind == Transfer::Kind::kSend && one.peer != rank()) bytes += bytes_of(one.data);
  }
  return bytes;
}

// The signatures that both ends of transfers state, sent beside the data. The receiving end
// compares: it is the one that a mistake would give wrong numbers or keep waiting.
class TracedComm::StatedTransfers {
 public:
  StatedTransfers(TracedComm& comm, std::span<const Transfer> together) : comm_(comm) {
    if (!comm.compares()) return;
    using Message = HostGroup::Message;
    mine_.resize(together.size() * kWords);
    theirs_.resize(mine_.size());
    std::vector<Message> messages;
    for (size_t i = 0; i < together.size(); ++i) {
      const Transfer& one = together[i];
      comm.state_call(fmt::format("{} {}", name_of(one.data.dtype), one.data.shape),
                      mine_.data() + i * kWords);
      if (one.peer == comm.rank()) continue;
      const bool receives = one.kind == Transfer::Kind::kRecv;
      if (receives) expected_.emplace_back(i, one.peer);
      messages.push_back({receives ? Message::Kind::kReceive : Message::Kind::kSend, one.peer,
                          std::span(receives ? theirs_ : mine_).subspan(i * kWords, kWords),
                          one.tag + kStatedTags});
    }
    pending_ = comm.inner_->hosts().start(messages);
  }

  void compare() {
    if (!pending_) return;
    pending_->wait();
    for (const auto& [i, peer] : expected_) {
      const int64_t *theirs = theirs_.data() + i * kWords, *mine = mine_.data() + i * kWords;
      if (comm_.alike(theirs, mine)) continue;
      throw Error("ranks of {} disagree: rank {} sends {}; rank {} receives {}", comm_.axis_, peer,
                  call_of(theirs), comm_.rank(), call_of(mine));
    }
  }

 private:
  TracedComm& comm_;
  std::vector<int64_t> mine_, theirs_;            // [transfers, kWords]
  std::vector<std::pair<size_t, int>> expected_;  // received transfers, and from whom
  std::unique_ptr<Pending> pending_;              // given up before the memory goes away
};

void TracedComm::transfer(Exec& exec, std::span<const Transfer> together) {
  StatedTransfers(*this, together).compare();
  counted("transfer", bytes_sent(together), [&] { inner_->transfer(exec, together); });
}

// Counts the time of waiting for what was started, at `begun`.
class TracedComm::Timed final : public Pending {
 public:
  Timed(TracedComm& comm, const char* operation, Trace::Time begun, std::unique_ptr<Pending> inner,
        std::unique_ptr<StatedTransfers> stated = nullptr)
      : comm_(comm),
        operation_(operation),
        begun_(begun),
        inner_(std::move(inner)),
        stated_(std::move(stated)) {}

  void wait() override {
    const auto start = std::chrono::steady_clock::now();
    comm_.tally_.activity().enter(comm_.axis_.c_str(), operation_, start);
    if (stated_) stated_->compare();
    inner_->wait();
    const auto end = std::chrono::steady_clock::now();
    comm_.tally_.activity().leave(end);
    comm_.tally_.of(comm_.axis_, operation_).seconds +=
        std::chrono::duration<double>(end - start).count();
    comm_.note(Trace::Kind::kWait, operation_, -1, start, end);
    comm_.note(Trace::Kind::kFlight, operation_, -1, begun_, end);
  }

 private:
  TracedComm& comm_;
  const char* operation_;
  Trace::Time begun_;
  std::unique_ptr<Pending> inner_;
  std::unique_ptr<StatedTransfers> stated_;
};

std::unique_ptr<Pending> TracedComm::start(Exec& exec, std::span<const Transfer> together) {
  auto stated = std::make_unique<StatedTransfers>(*this, together);
  const auto begun = Trace::Clock::now();
  std::unique_ptr<Pending> pending;
  counted("transfer", bytes_sent(together), [&] { pending = inner_->start(exec, together); });
  return std::make_unique<Timed>(*this, "transfer", begun, std::move(pending), std::move(stated));
}

template <class Start>
std::unique_ptr<Pending> TracedComm::timed(const char* operation, int64_t bytes, Start&& start) {
  const auto begun = Trace::Clock::now();
  std::unique_ptr<Pending> pending;
  counted(operation, bytes, [&] { pending = start(); });
  return std::make_unique<Timed>(*this, operation, begun, std::move(pending));
}

std::unique_ptr<Pending> TracedComm::start_all_gather(Exec& exec, ConstView mine, View all) {
  compare(signature("all_gather", mine));
  return timed("all_gather", (size() - 1) * bytes_of(mine),
               [&] { return inner_->start_all_gather(exec, mine, all); });
}

std::unique_ptr<Pending> TracedComm::start_reduce_scatter(Exec& exec, ConstView all, View mine) {
  compare(signature("reduce_scatter", mine));
  return timed("reduce_scatter", (size() - 1) * bytes_of(mine),
               [&] { return inner_->start_reduce_scatter(exec, all, mine); });
}

std::unique_ptr<Pending> TracedComm::start_all_to_all_v(Exec& exec, ConstView send,
                                                        std::span<const int64_t> send_rows,
                                                        View recv,
                                                        std::span<const int64_t> recv_rows) {
  compare_all_to_all(send, send_rows, recv, recv_rows);
  return timed("all_to_all_v", bytes_to_others(send, send_rows),
               [&] { return inner_->start_all_to_all_v(exec, send, send_rows, recv, recv_rows); });
}

std::unique_ptr<Pending> TracedComm::start_together(Exec& exec, const Collective& what,
                                                    std::vector<Transfer> parts) {
  compare(what.signature);
  std::vector<int64_t> sent(static_cast<size_t>(size())), expected(sent);
  for (const Transfer& part : parts) {
    auto& amounts = part.kind == Transfer::Kind::kSend ? sent : expected;
    amounts[static_cast<size_t>(part.peer)] += bytes_of(part.data);
  }
  compare_amounts(what.name, "bytes", sent, expected);
  return timed(what.name, bytes_sent(parts),
               [&] { return inner_->start_together(exec, what, std::move(parts)); });
}

// Counted and compared like tensors.
class TracedComm::Hosts final : public HostGroup {
 public:
  explicit Hosts(TracedComm& comm) : comm_(comm), inner_(comm.inner_->hosts()) {}
  int rank() const override { return inner_.rank(); }
  int size() const override { return inner_.size(); }
  std::string_view name() const override { return inner_.name(); }

  void barrier() override {
    comm_.compare("barrier");
    comm_.counted("barrier", 0, [&] { inner_.barrier(); });
  }
  void gather_into(std::span<const int64_t> mine, std::span<int64_t> all) override {
    comm_.compare(fmt::format("gather({} numbers)", mine.size()));
    comm_.counted("gather", (size() - 1) * static_cast<int64_t>(mine.size_bytes()),
                  [&] { inner_.gather_into(mine, all); });
  }
  void exchange_into(std::span<const int64_t> to_each, std::span<int64_t> from_each) override {
    comm_.compare(fmt::format("exchange({} numbers)", to_each.size()));
    comm_.counted("exchange", (size() - 1) * static_cast<int64_t>(to_each.size_bytes()) / size(),
                  [&] { inner_.exchange_into(to_each, from_each); });
  }
  std::unique_ptr<Pending> start(std::span<const Message> together) override {
    return inner_.start(together);
  }

 private:
  TracedComm& comm_;
  HostGroup& inner_;
};

TracedComm::TracedComm(std::unique_ptr<Communicator> inner, std::string axis, CommTally& tally,
                       Signatures signatures)
    : inner_(std::move(inner)),
      axis_(std::move(axis)),
      tally_(tally),
      signatures_(signatures),
      hosts_(std::make_unique<Hosts>(*this)) {}

TracedComm::~TracedComm() = default;

}  // namespace weft
