#include "parallel/comm/thread_comm.h"
#include "core/host_access.h"

#include <atomic>
#include <cmath>
#include <numeric>
#include <vector>

#include "parallel/comm/self_comm.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

using namespace std::chrono_literals;

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kI32, DType::kI64};

// A small whole number for (rank, element): exact in every type, also when five are summed.
int value(int rank, int64_t i) { return static_cast<int>((rank * 7 + i * 3) % 11) - 5; }

void set(const Tensor& t, int64_t i, double x) {
  switch (t.dtype()) {
    case DType::kF32: host<float>(t)[i] = static_cast<float>(x); break;
    case DType::kBF16: host<bf16>(t)[i] = to_bf16(static_cast<float>(x)); break;
    case DType::kI32: host<int32_t>(t)[i] = static_cast<int32_t>(x); break;
    default: host<int64_t>(t)[i] = static_cast<int64_t>(x);
  }
}

Tensor filled(Exec& exec, Shape shape, DType dtype, int rank) {
  Tensor t = exec.empty(shape, dtype);
  for (int64_t i = 0; i < t.elements(); ++i) set(t, i, value(rank, i));
  return t;
}

class ThreadCommOf : public testing::TestWithParam<int> {
 protected:
  const int ranks = GetParam();
};

// Elements: none, fewer than ranks, one more than the reduction's block.
const std::vector<int64_t> kSizes = {0, 1, 3, 1025};

TEST_P(ThreadCommOf, ReducesToAll) {
  run_ranks(ranks, [&](Communicator& comm, Exec& exec) {
    EXPECT_EQ(comm.size(), ranks);
    EXPECT_EQ(comm.name(), fmt::format("world[{}/{}]", comm.rank(), ranks));
    for (const DType dtype : kTypes) {
      for (const int64_t size : kSizes) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
          const Tensor mine = filled(exec, {size}, dtype, comm.rank());
          comm.all_reduce(exec, mine, op);
          std::vector<double> want(static_cast<size_t>(size));
          for (int64_t i = 0; i < size; ++i) {
            double sum = 0, most = -100;
            for (int r = 0; r < ranks; ++r)
              sum += value(r, i), most = std::max<double>(most, value(r, i));
            want[static_cast<size_t>(i)] = op == ReduceOp::kSum ? sum : most;
          }
          EXPECT_EQ(numbers(mine), want);
        }
      }
    }
  });
}

TEST_P(ThreadCommOf, GathersFromAll) {
  run_ranks(ranks, [&](Communicator& comm, Exec& exec) {
    for (const DType dtype : kTypes) {
      for (const int64_t size : kSizes) {
        const Tensor mine = filled(exec, {size}, dtype, comm.rank());
        const Tensor all = exec.zeros({ranks, size}, dtype);
        comm.all_gather(exec, mine, all);
        std::vector<double> want;
        for (int r = 0; r < ranks; ++r) {
          for (int64_t i = 0; i < size; ++i) want.push_back(value(r, i));
        }
        EXPECT_EQ(numbers(all), want);
        const Tensor in_place = exec.zeros({ranks, size}, dtype);
        for (int64_t i = 0; i < size; ++i) set(in_place.row(comm.rank()), i, value(comm.rank(), i));
        comm.all_gather(exec, in_place.row(comm.rank()), in_place);
        EXPECT_EQ(numbers(in_place), want);
      }
    }
  });
}

TEST_P(ThreadCommOf, ReducesAndScatters) {
  run_ranks(ranks, [&](Communicator& comm, Exec& exec) {
    for (const DType dtype : kTypes) {
      for (const int64_t size : kSizes) {
        const Tensor all = filled(exec, {ranks, size}, dtype, comm.rank());
        const Tensor mine = exec.zeros({size}, dtype);
        comm.reduce_scatter(exec, all, mine);
        std::vector<double> want(static_cast<size_t>(size));
        for (int64_t i = 0; i < size; ++i) {
          for (int r = 0; r < ranks; ++r)
            want[static_cast<size_t>(i)] += value(r, comm.rank() * size + i);
        }
        EXPECT_EQ(numbers(mine), want);
      }
    }
  });
}

// Rank r sends (2 r + q) mod 4 rows to rank q: some pairs exchange nothing.
TEST_P(ThreadCommOf, SendsRowsFromAllToAll) {
  const auto rows = [](int from, int to) -> int64_t { return (2 * from + to) % 4; };
  run_ranks(ranks, [&](Communicator& comm, Exec& exec) {
    for (const DType dtype : kTypes) {
      std::vector<int64_t> send_rows, recv_rows;
      for (int r = 0; r < ranks; ++r) {
        send_rows.push_back(rows(comm.rank(), r));
        recv_rows.push_back(rows(r, comm.rank()));
      }
      const auto total = [](const auto& v) {
        return std::accumulate(v.begin(), v.end(), int64_t{0});
      };
      const Tensor send = exec.zeros({total(send_rows), 3}, dtype);
      const Tensor recv = exec.zeros({total(recv_rows), 3}, dtype);
      int64_t at = 0;
      for (int to = 0; to < ranks; ++to) {
        for (int64_t i = 0; i < 3 * rows(comm.rank(), to); ++i) {
          set(send, at++, 20 * comm.rank() + 4 * to + static_cast<double>(i) / 3);
        }
      }
      comm.all_to_all_v(exec, send, send_rows, recv, recv_rows);
      std::vector<double> want;
      for (int from = 0; from < ranks; ++from) {
        for (int64_t i = 0; i < 3 * rows(from, comm.rank()); ++i) {
          const Tensor one = exec.zeros({1}, dtype);  // rounds as the type does
          set(one, 0, 20 * from + 4 * comm.rank() + static_cast<double>(i) / 3);
          want.push_back(numbers(one)[0]);
        }
      }
      EXPECT_EQ(numbers(recv), want);
    }
  });
}

// A ring in both directions, receives listed before sends, two messages per direction: any of these
// would deadlock if done in sequence.
TEST_P(ThreadCommOf, TransfersInGroupsWithoutWaitingForEachOther) {
  run_ranks(ranks, [&](Communicator& comm, Exec& exec) {
    const int next = (comm.rank() + 1) % ranks, before = (comm.rank() + ranks - 1) % ranks;
    const Tensor a = filled(exec, {5}, DType::kF32, comm.rank());
    const Tensor b = filled(exec, {2, 2}, DType::kI64, comm.rank());
    const Tensor from_before = exec.zeros({5}), from_next = exec.zeros({2, 2}, DType::kI64);
    using Kind = Transfer::Kind;
    const std::vector<Transfer> group = {{Kind::kRecv, before, from_before},
                                         {Kind::kSend, next, a},
                                         {Kind::kSend, before, b},
                                         {Kind::kRecv, next, from_next}};
    for (int round = 0; round < 3; ++round) {
      if (ranks <= 2)
        break;  // both neighbours are the same rank: order within a pair is then by list
      comm.transfer(exec, group);
      for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(host<float>(from_before)[i], value(before, i));
      for (int64_t i = 0; i < 4; ++i) EXPECT_EQ(host<int64_t>(from_next)[i], value(next, i));
    }
    const Tensor one = exec.zeros({5}), two = exec.zeros({5});
    const Tensor other = filled(exec, {5}, DType::kF32, comm.rank() + 10);
    comm.transfer(exec, std::vector<Transfer>{{Kind::kRecv, before, one},
                                              {Kind::kRecv, before, two},
                                              {Kind::kSend, next, a},
                                              {Kind::kSend, next, other}});
    for (int64_t i = 0; i < 5; ++i) {  // messages between two ranks keep their order
      EXPECT_EQ(host<float>(one)[i], value(before, i));
      EXPECT_EQ(host<float>(two)[i], value(before + 10, i));
    }
    comm.transfer(exec, {});
  });
}

TEST_P(ThreadCommOf, TransfersAmongSomeRanksOnly) {
  if (ranks < 2) return;
  run_ranks(ranks, [&](Communicator& comm, Exec& exec) {
    const Tensor data = filled(exec, {3}, DType::kF32, comm.rank());
    if (comm.rank() == 0)
      comm.transfer(exec, std::vector<Transfer>{{Transfer::Kind::kSend, 1, data}});
    if (comm.rank() == 1)
      comm.transfer(exec, std::vector<Transfer>{{Transfer::Kind::kRecv, 0, data}});
    EXPECT_EQ(host<float>(data)[2], value(std::max(0, comm.rank() == 1 ? 0 : comm.rank()), 2));
    comm.hosts().barrier();
  });
}

TEST_P(ThreadCommOf, NobodyPassesABarrierAlone) {
  std::atomic<int> before = 0;
  run_ranks(ranks, [&](Communicator& comm, Exec&) {
    for (int round = 1; round <= 20; ++round) {
      ++before;
      comm.hosts().barrier();
      EXPECT_EQ(before.load(), round * ranks);
      comm.hosts().barrier();
    }
  });
}

TEST_P(ThreadCommOf, SplitsIntoGroups) {
  run_ranks(ranks, [&](ThreadComm& comm, Exec& exec) {
    // Even and odd ranks; within a group the order is reversed.
    const auto part = comm.split(comm.rank() % 2, -comm.rank(), "tensor");
    const int parity = comm.rank() % 2, members = (ranks + 1 - parity) / 2;
    EXPECT_EQ(part->size(), members);
    EXPECT_EQ(part->rank(), members - 1 - comm.rank() / 2);
    const Tensor sum = filled(exec, {4}, DType::kF32, comm.rank());
    part->all_reduce(exec, sum, ReduceOp::kSum);
    for (int64_t i = 0; i < 4; ++i) {
      double want = 0;
      for (int r = parity; r < ranks; r += 2) want += value(r, i);
      EXPECT_EQ(host<float>(sum)[i], want);
    }
    EXPECT_EQ(comm.split(comm.rank() == 0 ? 0 : -1, 0, "first") != nullptr, comm.rank() == 0);
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, ThreadCommOf, testing::Range(1, 6));

TEST(ThreadComm, SumsInRankOrder) {
  // (1e8 + 1) - 1e8 is 0 in f32 from the left, and would be 1 in another order.
  run_ranks(3, [](Communicator& comm, Exec& exec) {
    const float parts[] = {1e8f, 1.0f, -1e8f};
    const Tensor x = exec.empty({1});
    host<float>(x)[0] = parts[comm.rank()];
    comm.all_reduce(exec, x, ReduceOp::kSum);
    EXPECT_EQ(host<float>(x)[0], 0.0f);
  });
}

TEST(ThreadComm, RoundsSumsOfBf16Once) {
  // 256 + 1 + 1 is 258, which bf16 has; intermediate rounding gives 256.
  run_ranks(3, [](Communicator& comm, Exec& exec) {
    const Tensor x = exec.empty({1}, DType::kBF16);
    set(x, 0, comm.rank() == 0 ? 256 : 1);
    comm.all_reduce(exec, x, ReduceOp::kSum);
    EXPECT_EQ(to_float(host<bf16>(x)[0]), 258.0f);
  });
}

TEST(ThreadComm, KeepsNanInAMaximum) {
  run_ranks(3, [](Communicator& comm, Exec& exec) {
    const Tensor x = exec.zeros({1});
    if (comm.rank() == 1) host<float>(x)[0] = std::nanf("");
    comm.all_reduce(exec, x, ReduceOp::kMax);
    EXPECT_TRUE(std::isnan(host<float>(x)[0]));
  });
}

// Runs `call`, in which ranks disagree; all of them must throw, with both calls in the message.
template <class Call>
void expect_disagreement(int ranks, const std::vector<std::string>& parts, Call call) {
  std::atomic<int> thrown = 0;
  run_ranks(ranks, [&](ThreadComm& comm, Exec& exec) {
    const std::string message = message_of<Error>([&] { call(comm, exec); });
    for (const std::string& part : parts) {
      EXPECT_NE(message.find(part), std::string::npos) << message << " lacks " << part;
    }
    ++thrown;
  });
  EXPECT_EQ(thrown.load(), ranks);
}

TEST(ThreadComm, TellsAllRanksAboutAnotherShape) {
  expect_disagreement(
      3, {"rank 0 calls all_reduce sum(f32 [4])", "rank 2 calls all_reduce sum(f32 [5])"},
      [](Communicator& comm, Exec& exec) {
        const Tensor x = exec.zeros({comm.rank() == 2 ? 5 : 4});
        comm.all_reduce(exec, x, ReduceOp::kSum);
      });
}

TEST(ThreadComm, TellsAllRanksAboutAnotherType) {
  expect_disagreement(2, {"all_gather(f32 [4])", "all_gather(i32 [4])"},
                      [](Communicator& comm, Exec& exec) {
                        const DType type = comm.rank() == 0 ? DType::kF32 : DType::kI32;
                        comm.all_gather(exec, exec.zeros({4}, type), exec.zeros({2, 4}, type));
                      });
}

TEST(ThreadComm, TellsAllRanksAboutAnotherOperation) {
  expect_disagreement(2, {"rank 0 calls barrier", "rank 1 calls all_reduce max(f32 [4])"},
                      [](Communicator& comm, Exec& exec) {
                        if (comm.rank() == 0) return comm.hosts().barrier();
                        comm.all_reduce(exec, exec.zeros({4}), ReduceOp::kMax);
                      });
}

TEST(ThreadComm, TellsAllRanksAboutRowCountsThatDoNotMatch) {
  expect_disagreement(2, {"rank 0 sends 3 rows to rank 1, which expects 2"},
                      [](Communicator& comm, Exec& exec) {
                        const bool zero = comm.rank() == 0;
                        const std::vector<int64_t> send =
                            zero ? std::vector<int64_t>{0, 3} : std::vector<int64_t>{0, 0};
                        const std::vector<int64_t> recv =
                            zero ? std::vector<int64_t>{0, 0} : std::vector<int64_t>{2, 0};
                        comm.all_to_all_v(exec, exec.zeros({zero ? 3 : 0, 2}), send,
                                          exec.zeros({zero ? 0 : 2, 2}), recv);
                      });
}

TEST(ThreadComm, TellsBothSidesOfATransferThatDoesNotMatch) {
  expect_disagreement(2, {"rank 0 sends f32 [4] to rank 1", "receives f32 [3]"},
                      [](Communicator& comm, Exec& exec) {
                        const bool zero = comm.rank() == 0;
                        const Transfer one{zero ? Transfer::Kind::kSend : Transfer::Kind::kRecv,
                                           1 - comm.rank(), exec.zeros({zero ? 4 : 3})};
                        comm.transfer(exec, {&one, 1});
                      });
}

TEST(ThreadComm, AnExceptionReleasesTheOthersAndComesOut) {
  std::atomic<int> released = 0;
  const std::string message = message_of<ConfigError>([&] {
    run_ranks(4, [&](ThreadComm& comm, Exec& exec) {
      const auto pair = comm.split(comm.rank() / 2, 0, "pair");
      if (comm.rank() == 1) throw ConfigError("the reason");
      try {
        const Tensor x = exec.zeros({3});
        if (comm.rank() == 0) pair->hosts().barrier();  // split groups are released too
        if (comm.rank() == 2)
          comm.transfer(exec, std::vector<Transfer>{{Transfer::Kind::kSend, 3, x}});
        if (comm.rank() == 3)
          comm.transfer(exec, std::vector<Transfer>{{Transfer::Kind::kRecv, 1, x}});
      } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("world[1/4] failed: the reason"),
                  std::string::npos);
        ++released;
        throw;
      }
    });
  });
  EXPECT_EQ(message, "the reason");
  EXPECT_EQ(released.load(), 3);
}

TEST(ThreadComm, AWrongArgumentReleasesTheOthersToo) {
  const std::string message = message_of<Error>([&] {
    run_ranks(2, [&](Communicator& comm, Exec& exec) {
      const Tensor x = exec.zeros({3}), all = exec.zeros({comm.rank() == 0 ? 2 : 3, 3});
      comm.all_gather(exec, x, all);
    });
  });
  EXPECT_NE(message.find("does not make f32 [3, 3]"), std::string::npos) << message;
}

TEST(ThreadComm, ATimeoutSaysWhoWaitsWhere) {
  const std::string message = message_of<Error>([&] {
    run_ranks(3,
              [&](Communicator& comm, Exec& exec) {
                const Tensor x = exec.zeros({3});
                if (comm.rank() == 0) comm.hosts().barrier();
                if (comm.rank() == 1) {
                  comm.transfer(exec, std::vector<Transfer>{{Transfer::Kind::kRecv, 2, x}});
                }
              },
              {"world", 50ms});
  });
  EXPECT_NE(message.find("waited 50 ms"), std::string::npos) << message;
  EXPECT_NE(message.find("rank 2 is not waiting here"), std::string::npos) << message;
}

TEST(SelfComm, IsAGroupOfOne) {
  Rig rig(1);
  SelfComm comm("data");
  EXPECT_EQ(comm.name(), "data[0/1]");
  EXPECT_EQ(comm.size(), 1);
  const Tensor x = rig.normal("x", {3, 2}), y = rig.exec.zeros({3, 2}),
               all = rig.exec.zeros({1, 3, 2});
  const Tensor copy = rig.exec.zeros({3, 2});
  comm.reduce_scatter(rig.exec, x, copy);
  EXPECT_TRUE(SameBits(copy, x));
  comm.all_reduce(rig.exec, copy, ReduceOp::kSum);
  EXPECT_TRUE(SameBits(copy, x));
  comm.all_gather(rig.exec, x, all);
  EXPECT_TRUE(SameBits(all.row(0), x));
  const int64_t rows[] = {3}, wrong[] = {2};
  comm.all_to_all_v(rig.exec, x, rows, y, rows);
  EXPECT_TRUE(SameBits(y, x));
  EXPECT_THROW(comm.all_to_all_v(rig.exec, x, rows, y, wrong), Error);
  const Tensor z = rig.exec.zeros({3, 2});
  comm.transfer(rig.exec, std::vector<Transfer>{{Transfer::Kind::kRecv, 0, z},
                                                {Transfer::Kind::kSend, 0, x}});
  EXPECT_TRUE(SameBits(z, x));
  EXPECT_THROW(comm.transfer(rig.exec, std::vector<Transfer>{{Transfer::Kind::kRecv, 0, z}}),
               Error);
  EXPECT_THROW(comm.all_reduce(rig.exec, x.view().columns(0, 1), ReduceOp::kSum), Error);
  comm.hosts().barrier();
}

}  // namespace
}  // namespace weft::test
