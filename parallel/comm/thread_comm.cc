#include "parallel/comm/thread_comm.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <numeric>
#include <thread>
#include <vector>

#include "parallel/comm/check_views.h"
#include "parallel/comm/reduction.h"
#include "parallel/comm/thread_group.h"

namespace weft {

ThreadGroup::ThreadGroup(int size, ThreadGroupOptions options)
    : state_(std::make_shared<State>(size, std::move(options), std::make_shared<ThreadHub>())) {
  WEFT_CHECK(size > 0, "a group of {} ranks", size);
}

std::unique_ptr<ThreadComm> ThreadGroup::communicator(int rank) const {
  WEFT_CHECK(rank >= 0 && rank < state_->size, "rank {} of {}", rank, state_->size);
  return std::unique_ptr<ThreadComm>(new ThreadComm(state_, rank));
}

void ThreadGroup::fail(const std::string& why) const { state_->hub->fail(why); }

int ThreadComm::size() const { return state_->size; }

// A rank that throws inside a call, for whatever reason, would leave the others waiting.
template <class Call>
void ThreadComm::guarded(Call&& call) {
  try {
    call();
  } catch (const std::exception& error) {
    state_->hub->fail(fmt::format("{} failed: {}", name_, error.what()));
    throw;
  }
}

// Ranks copy out of each other's memory, as with tensors.
class ThreadComm::Hosts final : public HostGroup {
 public:
  explicit Hosts(ThreadComm& comm) : comm_(comm) {}
  int rank() const override { return comm_.rank_; }
  int size() const override { return comm_.size(); }
  std::string_view name() const override { return comm_.name_; }

  void barrier() override {
    comm_.guarded([&] {
      state().agree(rank(), {"barrier", nullptr, nullptr, {}, {}, nullptr});
      state().part();
    });
  }
  void gather_into(std::span<const int64_t> mine, std::span<int64_t> all) override {
    collect("gather", mine, 0, static_cast<int64_t>(mine.size()), all);
  }
  void exchange_into(std::span<const int64_t> to_each, std::span<int64_t> from_each) override {
    const auto count = static_cast<int64_t>(to_each.size()) / size();
    collect("exchange", to_each, rank() * count, count, from_each);
  }
  std::unique_ptr<Pending> start(std::span<const Message> together) override;

 private:
  ThreadGroup::State& state() { return *comm_.state_; }

  // The `count` numbers from `begin` on of every rank's.
  void collect(const char* call, std::span<const int64_t> mine, int64_t begin, int64_t count,
               std::span<int64_t> all) {
    comm_.guarded([&] {
      const std::string same = fmt::format("{}({} numbers)", call, mine.size());
      state().agree(rank(), {same, mine.data(), all.data(), {}, {}, nullptr});
      for (int r = 0; r < size() && count > 0; ++r) {
        const auto* from = static_cast<const int64_t*>(state().posting(r).from) + begin;
        std::copy(from, from + count, all.data() + r * count);
      }
      state().part();
    });
  }

  ThreadComm& comm_;
};

ThreadComm::ThreadComm(std::shared_ptr<ThreadGroup::State> state, int rank)
    : state_(std::move(state)),
      rank_(rank),
      name_(fmt::format("{}[{}/{}]", state_->options.name, rank, state_->size)),
      hosts_(std::make_unique<Hosts>(*this)) {}

ThreadComm::~ThreadComm() = default;

void ThreadComm::all_reduce(Exec&, View inout, ReduceOp op) {
  guarded([&] {
    check_all_reduce(*this, inout);
    const char* call = op == ReduceOp::kSum ? "all_reduce sum" : "all_reduce max";
    state_->agree(rank_, {signature(call, inout), inout.data, inout.data, {}, {}, nullptr});
    // Every rank reduces a slice of its own and writes it to all, in place: nobody else touches it.
    const int64_t count = inout.shape.elements(), ranks = size();
    Reduction slice{op, {}, {}, count * rank_ / ranks, count * (rank_ + 1) / ranks, 0};
    for (int r = 0; r < size(); ++r) {
      slice.from.push_back(state_->posting(r).from);
      slice.to.push_back(state_->posting(r).to);
    }
    slice.run(inout.dtype);
    state_->part();
  });
}

void ThreadComm::all_gather(Exec&, ConstView mine, View all) {
  guarded([&] {
    check_all_gather(*this, mine, all);
    state_->agree(rank_, {signature("all_gather", mine), mine.data, all.data, {}, {}, nullptr});
    const int64_t bytes = bytes_of(mine);
    for (int r = 0; r < size() && bytes > 0; ++r) {
      char* to = static_cast<char*>(all.data) + r * bytes;
      const void* from = state_->posting(r).from;
      if (to != from) std::memcpy(to, from, static_cast<size_t>(bytes));  // `mine` may lie in `all`
    }
    state_->part();
  });
}

void ThreadComm::reduce_scatter(Exec&, ConstView all, View mine) {
  guarded([&] {
    check_reduce_scatter(*this, all, mine);
    state_->agree(rank_, {signature("reduce_scatter", mine), all.data, mine.data, {}, {}, nullptr});
    const int64_t count = mine.shape.elements();
    Reduction part{ReduceOp::kSum,      {},           {mine.data}, rank_ * count,
                   (rank_ + 1) * count, rank_ * count};
    for (int r = 0; r < size(); ++r) part.from.push_back(state_->posting(r).from);
    part.run(mine.dtype);
    state_->part();
  });
}

void ThreadComm::all_to_all_v(Exec&, ConstView send, std::span<const int64_t> send_rows, View recv,
                              std::span<const int64_t> recv_rows) {
  guarded([&] {
    check_all_to_all(*this, send, send_rows, recv, recv_rows);
    state_->agree(rank_, {row_signature(send),
                          send.data,
                          recv.data,
                          {send_rows.begin(), send_rows.end()},
                          {recv_rows.begin(), recv_rows.end()},
                          nullptr});
    check_row_counts();
    const int64_t row = send.width() * size_of(send.dtype);
    char* to = static_cast<char*>(recv.data);
    for (int r = 0; r < size(); ++r) {
      const auto& theirs = state_->posting(r);
      const int64_t before =
          std::accumulate(theirs.send.begin(), theirs.send.begin() + rank_, int64_t{0});
      const auto bytes = static_cast<size_t>(recv_rows[r] * row);
      if (bytes > 0) std::memcpy(to, static_cast<const char*>(theirs.from) + before * row, bytes);
      to += bytes;
    }
    state_->part();
  });
}

void ThreadComm::check_row_counts() {
  for (int from = 0; from < size(); ++from) {
    for (int to = 0; to < size(); ++to) {
      const int64_t sent = state_->posting(from).send[static_cast<size_t>(to)];
      const int64_t expected = state_->posting(to).recv[static_cast<size_t>(from)];
      if (sent == expected) continue;
      state_->part();  // all ranks see the same and come here
      throw Error(
          "ranks of {} disagree in all_to_all_v: rank "
          "{} sends {} rows to rank {}, which expects {}",
          state_->options.name, from, sent, to, expected);
    }
  }
}

// Sends are on offer before anything waits, so no order of a group can block another's.
class ThreadComm::Exchange final : public Pending {
 public:
  Exchange(ThreadComm& comm, std::span<const Transfer> together)
      : comm_(comm), transfers_(together.begin(), together.end()), messages_(together.size()) {
    comm_.guarded([&] {
      for (size_t i = 0; i < transfers_.size(); ++i) {
        check_transfer(comm_, transfers_[i]);
        messages_[i].data = transfers_[i].data;
        messages_[i].tag = transfers_[i].tag;
      }
      sends([&](int peer, Message& m) { state().post(comm_.rank_, peer, m); });
    });
  }
  ~Exchange() override {
    sends([&](int peer, Message& m) { state().withdraw(comm_.rank_, peer, m); });
  }

  void wait() override {
    comm_.guarded([&] {
      for (const Transfer& one : transfers_) {
        if (one.kind == Transfer::Kind::kRecv) {
          state().receive(one.peer, comm_.rank_, one.data, one.tag);
        }
      }
      sends([&](int peer, Message& m) { state().await_done(comm_.rank_, peer, m); });
    });
  }

 private:
  using Message = ThreadGroup::State::Message;
  ThreadGroup::State& state() { return *comm_.state_; }
  template <class Visit>
  void sends(Visit&& visit) {
    for (size_t i = 0; i < transfers_.size(); ++i) {
      if (transfers_[i].kind == Transfer::Kind::kSend) visit(transfers_[i].peer, messages_[i]);
    }
  }

  ThreadComm& comm_;
  std::vector<Transfer> transfers_;
  std::vector<Message> messages_;  // others point into it
};

std::unique_ptr<Pending> ThreadComm::Hosts::start(std::span<const Message> together) {
  return std::make_unique<Exchange>(comm_, transfers_of(together));
}

std::unique_ptr<Pending> ThreadComm::start(Exec&, std::span<const Transfer> together) {
  return std::make_unique<Exchange>(*this, together);
}

void ThreadComm::transfer(Exec&, std::span<const Transfer> together) {
  Exchange(*this, together).wait();
}

std::unique_ptr<ThreadComm> ThreadComm::split(int color, int key, const std::string& axis) {
  std::unique_ptr<ThreadComm> mine;
  guarded([&] {
    state_->agree(rank_,
                  {fmt::format("split({})", axis), nullptr, nullptr, {color, key}, {}, nullptr});
    std::vector<std::pair<int64_t, int>> members;  // key, rank
    for (int r = 0; r < size(); ++r) {
      const auto& theirs = state_->posting(r).send;
      if (theirs[0] == color) members.emplace_back(theirs[1], r);
    }
    std::sort(members.begin(), members.end());
    const int leader = members[0].second;
    if (color >= 0 && rank_ == leader) {
      state_->postings[static_cast<size_t>(rank_)].child = std::make_shared<ThreadGroup::State>(
          static_cast<int>(members.size()), ThreadGroupOptions{axis, state_->options.timeout},
          state_->hub);
    }
    state_->part();  // the groups are made
    if (color >= 0) {
      const auto me =
          std::find(members.begin(), members.end(), std::pair<int64_t, int>(key, rank_));
      mine.reset(
          new ThreadComm(state_->posting(leader).child, static_cast<int>(me - members.begin())));
    }
    state_->part();  // and taken
  });
  return mine;
}

void run_ranks(int size, const std::function<void(ThreadComm&, Exec&)>& rank,
               ThreadGroupOptions options) {
  const ThreadGroup group(size, std::move(options));
  const Isa isa = chosen_isa();  // once, by one thread: finding it out runs probes
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      const auto comm = group.communicator(r);
      try {
        Ledger ledger;
        Pool pool(ledger);
        ThreadPool crew(1);
        Exec exec{crew, pool, isa};
        rank(*comm, exec);
      } catch (const std::exception& error) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        group.fail(fmt::format("{} failed: {}", comm->name(), error.what()));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace weft
