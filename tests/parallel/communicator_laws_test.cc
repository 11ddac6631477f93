// Laws of every communicator, for every transport. Linked twice: with threads as ranks,
// and with the processes of mpirun.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "core/host_access.h"
#include "parallel/comm/traced_comm.h"
#include "tests/parallel/communicator_places.h"
#include "tests/support/near.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kI32, DType::kI64};

// None, fewer than ranks, one more than the reduction's block, and enough to be reduced in shares.
constexpr int64_t kSizes[] = {0, 1, 3, 1025, 40'001};

// A small whole number for (rank, element): exact in every type, also when four are summed.
int64_t value(int rank, int64_t i) { return (rank * 7 + i * 3) % 11 - 5; }

void set(const Tensor& t, int64_t i, int64_t x) {
  if (t.dtype() == DType::kF32)
    host<float>(t)[i] = static_cast<float>(x);
  else if (t.dtype() == DType::kBF16)
    host<bf16>(t)[i] = to_bf16(static_cast<float>(x));
  else if (t.dtype() == DType::kI32)
    host<int32_t>(t)[i] = static_cast<int32_t>(x);
  else
    host<int64_t>(t)[i] = x;
}

template <class F>
Tensor made(Exec& exec, Shape shape, DType dtype, F&& f) {
  const Tensor t = exec.empty(shape, dtype);
  for (int64_t i = 0; i < t.elements(); ++i) set(t, i, f(i));
  return t;
}

class CommunicatorLaws : public testing::TestWithParam<Place> {
 protected:
  const int ranks = GetParam().ranks;
  void on_ranks(const std::function<void(Communicator&, const Splitter&, Exec&)>& body) {
    GetParam().run(body);
  }
};

TEST_P(CommunicatorLaws, ReducesToAll) {
  on_ranks([&](Communicator& comm, const Splitter&, Exec& exec) {
    ASSERT_EQ(comm.size(), ranks);
    for (const DType dtype : kTypes) {
      for (const int64_t size : kSizes) {
        for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
          const Tensor mine =
              made(exec, {size}, dtype, [&](int64_t i) { return value(comm.rank(), i); });
          comm.all_reduce(exec, mine, op);
          const Tensor want = made(exec, {size}, dtype, [&](int64_t i) {
            int64_t out = value(0, i);
            for (int r = 1; r < ranks; ++r) {
              out = op == ReduceOp::kSum ? out + value(r, i) : std::max(out, value(r, i));
            }
            return out;
          });
          EXPECT_TRUE(SameBits(mine, want)) << name_of(dtype) << " " << size;
        }
      }
    }
  });
}

// The sum depends on the order: the result must equal that of rank order, bit for bit.
TEST_P(CommunicatorLaws, AddsInRankOrder) {
  const auto x = [](int rank, int64_t i) {
    return std::ldexp(1.0f + static_cast<float>((i * 37 + rank * 11) % 101) / 101.0f,
                      (rank * 13 + static_cast<int>(i)) % 30);
  };
  on_ranks([&](Communicator& comm, const Splitter&, Exec& exec) {
    for (const int64_t size : {int64_t{5}, int64_t{40'001}}) {
      const Tensor sum = exec.empty({size}), want = exec.empty({size});
      const Tensor all = exec.empty({ranks, size}), part = exec.empty({size}),
                   want_part = exec.empty({size});
      for (int64_t i = 0; i < size; ++i) {
        host<float>(sum)[i] = x(comm.rank(), i);
        float w = x(0, i), p = x(0, comm.rank() * size + i);
        for (int r = 1; r < ranks; ++r) w += x(r, i), p += x(r, comm.rank() * size + i);
        host<float>(want)[i] = w;
        host<float>(want_part)[i] = p;
      }
      for (int64_t i = 0; i < ranks * size; ++i) host<float>(all)[i] = x(comm.rank(), i);
      comm.all_reduce(exec, sum, ReduceOp::kSum);
      EXPECT_TRUE(SameBits(sum, want));
      comm.reduce_scatter(exec, all, part);
      EXPECT_TRUE(SameBits(part, want_part));
    }
  });
}

TEST_P(CommunicatorLaws, RoundsABf16SumOnce) {
  on_ranks([&](Communicator& comm, const Splitter&, Exec& exec) {
    // 256 + n ones: ones vanish one by one in bf16, but not when carried in f32.
    const Tensor t = exec.empty({1}, DType::kBF16);
    host<bf16>(t)[0] = to_bf16(comm.rank() == 0 ? 256.0f : 1.0f);
    comm.all_reduce(exec, t, ReduceOp::kSum);
    EXPECT_EQ(to_float(host<bf16>(t)[0]),
              to_float(to_bf16(256.0f + static_cast<float>(ranks - 1))));
  });
}

TEST_P(CommunicatorLaws, GathersInRankOrderAlsoInPlace) {
  on_ranks([&](Communicator& comm, const Splitter&, Exec& exec) {
    for (const DType dtype : kTypes) {
      for (const int64_t size : kSizes) {
        const Tensor mine =
            made(exec, {size}, dtype, [&](int64_t i) { return value(comm.rank(), i); });
        const Tensor want = made(exec, {ranks, size}, dtype, [&](int64_t i) {
          return value(static_cast<int>(i / size), i % size);
        });
        const Tensor all = exec.zeros({ranks, size}, dtype),
                     in_place = exec.zeros({ranks, size}, dtype);
        comm.all_gather(exec, mine, all);
        EXPECT_TRUE(SameBits(all, want)) << name_of(dtype) << " " << size;
        for (int64_t i = 0; i < size; ++i)
          set(in_place, comm.rank() * size + i, value(comm.rank(), i));
        comm.all_gather(exec, in_place.row(comm.rank()), in_place);
        EXPECT_TRUE(SameBits(in_place, want)) << name_of(dtype) << " " << size;
      }
    }
  });
}

TEST_P(CommunicatorLaws, ScattersSums) {
  on_ranks([&](Communicator& comm, const Splitter&, Exec& exec) {
    for (const DType dtype : kTypes) {
      for (const int64_t size : kSizes) {
        const Tensor all =
            made(exec, {ranks, size}, dtype, [&](int64_t i) { return value(comm.rank(), i); });
        const Tensor want = made(exec, {size}, dtype, [&](int64_t i) {
          int64_t sum = 0;
          for (int r = 0; r < ranks; ++r) sum += value(r, comm.rank() * size + i);
          return sum;
        });
        const Tensor mine = exec.zeros({size}, dtype);
        comm.reduce_scatter(exec, all, mine);
        EXPECT_TRUE(SameBits(mine, want)) << name_of(dtype) << " " << size;
        comm.reduce_scatter(exec, all,
                            all.row(comm.rank()));  // the result may overwrite the input
        EXPECT_TRUE(SameBits(all.row(comm.rank()), want)) << name_of(dtype) << " " << size;
      }
    }
  });
}

// Rank f sends rank t f + 2 t rows, none when both are 0; each row contains its source and target.
TEST_P(CommunicatorLaws, SendsRowsToEverybody) {
  const auto rows = [](int from, int to) { return int64_t{from + 2 * to}; };
  on_ranks([&](Communicator& comm, const Splitter&, Exec& exec) {
    for (const int64_t width : {1, 5, 300}) {
      std::vector<int64_t> out, in;
      for (int r = 0; r < ranks; ++r) {
        out.push_back(rows(comm.rank(), r));
        in.push_back(rows(r, comm.rank()));
      }
      const auto total = [](const auto& counts) {
        return std::accumulate(counts.begin(), counts.end(), int64_t{0});
      };
      const Tensor send = exec.empty({total(out), width}, DType::kI32),
                   recv = exec.zeros({total(in), width}, DType::kI32);
      const Tensor want = exec.empty({total(in), width}, DType::kI32);
      const auto fill = [&](const Tensor& t, bool sending) {
        int32_t* p = host<int32_t>(t);
        for (int r = 0; r < ranks; ++r) {
          const int from = sending ? comm.rank() : r, to = sending ? r : comm.rank();
          for (int64_t i = 0; i < rows(from, to) * width; ++i)
            *p++ = static_cast<int32_t>(from * 100'000 + to * 10'000 + i);
        }
      };
      fill(send, true);
      fill(want, false);
      comm.all_to_all_v(exec, send, out, recv, in);
      EXPECT_TRUE(SameBits(recv, want)) << width;
    }
  });
}

// A ring in both directions at once, sends listed before receives on some ranks and after on
// others, two messages of different size to the same peer, one of them empty.
TEST_P(CommunicatorLaws, TransfersTogetherWhateverTheirOrder) {
  on_ranks([&](Communicator& comm, const Splitter&, Exec& exec) {
    const int next = (comm.rank() + 1) % ranks, before = (comm.rank() + ranks - 1) % ranks;
    const auto tagged = [&](int64_t size, int from, int tag) {
      return made(exec, {size}, DType::kI64,
                  [&](int64_t i) { return from * 1000 + tag * 100 + i; });
    };
    const Tensor a = tagged(50'000, comm.rank(), 1), b = tagged(7, comm.rank(), 2),
                 none = tagged(0, 0, 0);
    const Tensor a_in = exec.zeros({50'000}, DType::kI64), b_in = exec.zeros({7}, DType::kI64),
                 none_in = tagged(0, 0, 0);
    using Kind = Transfer::Kind;
    std::vector<Transfer> together = {{Kind::kSend, next, a},         {Kind::kSend, next, none},
                                      {Kind::kSend, next, b},         {Kind::kRecv, before, a_in},
                                      {Kind::kRecv, before, none_in}, {Kind::kRecv, before, b_in}};
    if (comm.rank() % 2 == 1) std::rotate(together.begin(), together.begin() + 3, together.end());
    comm.transfer(exec, together);
    EXPECT_TRUE(SameBits(a_in, tagged(50'000, before, 1)));
    EXPECT_TRUE(SameBits(b_in, tagged(7, before, 2)));
  });
}

// Sends without matching receives do not block the sender; tags select messages out of order.
TEST_P(CommunicatorLaws, StartsTransfersWithoutWaiting) {
  if (ranks == 1) return;
  on_ranks([&](Communicator& comm, const Splitter&, Exec& exec) {
    constexpr int64_t kSize = 50'000;  // more than MPI sends without a receiver
    const int next = (comm.rank() + 1) % ranks, before = (comm.rank() + ranks - 1) % ranks;
    const auto message = [&](int from, int tag) {
      return made(exec, {kSize}, DType::kI64, [&](int64_t i) { return from * 1000 + tag + i; });
    };
    using Kind = Transfer::Kind;
    std::vector<Tensor> kept;
    std::vector<std::unique_ptr<Pending>> sends;
    for (const int tag : {7, 3, 7}) {
      kept.push_back(message(comm.rank(), tag + 10 * static_cast<int>(kept.size())));
      const Transfer send{Kind::kSend, next, kept.back(), tag};
      sends.push_back(comm.start(exec, {&send, 1}));
    }
    const auto expect = [&](int tag, int value) {
      const Tensor in = exec.zeros({kSize}, DType::kI64);
      const Transfer receive{Kind::kRecv, before, in, tag};
      comm.start(exec, {&receive, 1})->wait();
      EXPECT_TRUE(SameBits(in, message(before, value))) << "tag " << tag;
    };
    expect(3, 13);
    expect(7, 7);
    expect(7, 27);
    for (const auto& send : sends) send->wait();
  });
}

// Two pending collectives, others in between, waited for in reverse order.
TEST_P(CommunicatorLaws, CollectivesTravelWhileTheCallerGoesOn) {
  on_ranks([&](Communicator& comm, const Splitter& split, Exec& exec) {
    CommTally tally;
    TracedComm traced(split(0, comm.rank(), "expert"), "expert", tally, Signatures::kCompare);
    constexpr int64_t kSize = 50'000;  // more than MPI sends without a receiver
    const auto gathered = [&](int64_t i) { return value(static_cast<int>(i / kSize), i % kSize); };
    const Tensor mine =
        made(exec, {kSize}, DType::kI32, [&](int64_t i) { return value(comm.rank(), i); });
    const Tensor all = exec.zeros({ranks, kSize}, DType::kI32);
    const Tensor in_place = made(exec, {ranks, kSize}, DType::kI32, [&](int64_t i) {
      return i / kSize == comm.rank() ? value(comm.rank(), i % kSize) : 0;
    });
    // Rank f sends rank t f + 2 t rows of f and t.
    std::vector<int64_t> out, in;
    std::vector<int64_t> leave, come;
    for (int r = 0; r < ranks; ++r) {
      out.push_back(comm.rank() + 2 * r);
      in.push_back(r + 2 * comm.rank());
      leave.insert(leave.end(), static_cast<size_t>(out.back()), comm.rank() * 10 + r);
      come.insert(come.end(), static_cast<size_t>(in.back()), r * 10 + comm.rank());
    }
    const auto rows = [&](const std::vector<int64_t>& of) {
      return made(exec, {std::ssize(of), 5}, DType::kI64,
                  [&](int64_t i) { return of[static_cast<size_t>(i / 5)]; });
    };
    const Tensor sent = rows(leave), received = exec.zeros({std::ssize(come), 5}, DType::kI64);
    {
      const auto first = traced.start_all_gather(exec, mine, all);
      const auto second = traced.start_all_to_all_v(exec, sent, out, received, in);
      const auto third = traced.start_all_gather(exec, in_place.row(comm.rank()), in_place);
      const Tensor sum = made(exec, {3}, DType::kI32, [&](int64_t) { return 1; });
      traced.all_reduce(exec, sum, ReduceOp::kSum);
      EXPECT_EQ(host<int32_t>(sum)[0], ranks);
      third->wait();
      second->wait();
      first->wait();
    }
    EXPECT_TRUE(SameBits(all, made(exec, {ranks, kSize}, DType::kI32, gathered)));
    EXPECT_TRUE(SameBits(in_place, all));
    EXPECT_TRUE(SameBits(received, rows(come)));
    EXPECT_EQ(tally.of("expert", "all_gather").calls, 2);
    EXPECT_EQ(tally.of("expert", "all_gather").bytes, 2 * (ranks - 1) * kSize * 4);
    EXPECT_EQ(tally.of("expert", "all_to_all_v").bytes,
              (std::ssize(leave) - out[static_cast<size_t>(comm.rank())]) * 40);
    // Ranks that start different operations get an error, as in blocking calls.
    if (ranks == 1) return;
    const bool odd = comm.rank() == ranks - 1;
    const std::string message = message_of<Error>([&] {
      const Tensor t = exec.zeros({odd ? 5 : 4}), to = exec.zeros({ranks, odd ? 5 : 4});
      traced.start_all_gather(exec, t, to)->wait();
    });
    EXPECT_NE(message.find("all_gather(f32 [4])"), std::string::npos) << message;
    std::vector<int64_t> one(static_cast<size_t>(ranks), 1), wrong = one;
    if (odd) wrong[0] = 2;
    const Tensor from = exec.zeros({ranks, 3}), to = exec.zeros({ranks + (odd ? 1 : 0), 3});
    const std::string counts =
        message_of<Error>([&] { traced.start_all_to_all_v(exec, from, one, to, wrong)->wait(); });
    EXPECT_NE(
        counts.find(fmt::format("rank 0 sends 1 rows to rank {}, which expects 2", ranks - 1)),
        std::string::npos)
        << counts;
    comm.hosts().barrier();
  });
}

TEST_P(CommunicatorLaws, HostsAgreeOnNumbersAndTexts) {
  on_ranks([&](Communicator& comm, const Splitter& split, Exec&) {
    CommTally tally;
    TracedComm traced(split(0, comm.rank(), "data"), "data", tally, Signatures::kCompare);
    for (HostGroup* hosts : {&comm.hosts(), &traced.hosts()}) {
      ASSERT_EQ(hosts->size(), ranks);
      ASSERT_EQ(hosts->rank(), comm.rank());
      std::vector<int64_t> twice;
      for (int64_t r = 0; r < ranks; ++r) twice.insert(twice.end(), {r, -r});
      const std::vector<int64_t> mine = {comm.rank(), -comm.rank()};
      EXPECT_EQ(hosts->gather(mine), twice);
      EXPECT_EQ(hosts->sum(int64_t{comm.rank()}), int64_t{ranks} * (ranks - 1) / 2);
      EXPECT_EQ(hosts->max(int64_t{comm.rank()}), ranks - 1);
      EXPECT_EQ(hosts->sums(std::vector<int64_t>{1, comm.rank()}),
                (std::vector<int64_t>{ranks, int64_t{ranks} * (ranks - 1) / 2}));
      EXPECT_EQ(hosts->gather(std::vector<int64_t>{}), std::vector<int64_t>{});
      // Rank f sends rank t the numbers f and t.
      std::vector<int64_t> out, in;
      for (int64_t r = 0; r < ranks; ++r) {
        out.insert(out.end(), {comm.rank(), r});
        in.insert(in.end(), {r, comm.rank()});
      }
      EXPECT_EQ(hosts->exchange(out), in);
      double sum = 0;  // in rank order, so to the bit
      for (int r = 0; r < ranks; ++r) sum += 0.1 * (r + 1);
      EXPECT_EQ(hosts->sum(0.1 * (comm.rank() + 1)), sum);
      std::vector<std::string> texts;
      for (int r = 0; r < ranks; ++r) texts.emplace_back(static_cast<size_t>(5 * r), 'a' + r);
      EXPECT_EQ(hosts->gather_texts(texts[static_cast<size_t>(comm.rank())]), texts);
      EXPECT_EQ(hosts->text_of_first(fmt::format("of {}", comm.rank())), "of 0");
      hosts->barrier();
    }
    EXPECT_EQ(tally.of("data", "exchange").bytes, (ranks - 1) * 16);
    if (ranks == 1) return;
    const std::string message = message_of<Error>(
        [&] { traced.hosts().gather(std::vector<int64_t>(comm.rank() == 0 ? 2 : 3)); });
    EXPECT_NE(message.find("rank 0 calls gather(2 numbers)"), std::string::npos) << message;
    comm.hosts().barrier();
  });
}

TEST_P(CommunicatorLaws, SplitsIntoGroupsThatWorkSideBySide) {
  on_ranks([&](Communicator& comm, const Splitter& split, Exec& exec) {
    const int color = comm.rank() % 2;
    const auto group = split(color, -comm.rank(), "tensor");  // in reverse order
    const int size = (ranks + 1 - color) / 2;
    ASSERT_EQ(group->size(), size);
    EXPECT_EQ(group->rank(), size - 1 - comm.rank() / 2);
    EXPECT_EQ(group->name(), fmt::format("tensor[{}/{}]", group->rank(), size));
    const Tensor t = made(exec, {3}, DType::kI32, [&](int64_t) { return comm.rank(); });
    group->all_reduce(exec, t, ReduceOp::kSum);
    int32_t sum = 0;
    for (int r = color; r < ranks; r += 2) sum += r;
    EXPECT_EQ(host<int32_t>(t)[2], sum);
    comm.hosts().barrier();
  });
}

TEST_P(CommunicatorLaws, MeshesKnowTheirNeighbours) {
  on_ranks([&](Communicator& comm, const Splitter& split, Exec& exec) {
    if (ranks == 3) return;
    const ParallelConfig degrees{.tensor = ranks == 1 ? 1 : 2};
    const Mesh mesh({degrees, comm.rank(), ranks, coordinates_of(degrees, comm.rank(), ranks)},
                    split);
    Communicator& tensor = mesh.over({Axis::kTensor});
    EXPECT_EQ(tensor.rank(), mesh.here()[Axis::kTensor].index);
    EXPECT_EQ(mesh.over({Axis::kData, Axis::kSequence}).size(), ranks / tensor.size());
    EXPECT_EQ(mesh.over({Axis::kPipe}).size(), 1);
    const Tensor all = exec.zeros({ranks}, DType::kI32);
    host<int32_t>(all)[mesh.rank()] = 1;
    mesh.world().all_reduce(exec, all, ReduceOp::kSum);
    EXPECT_EQ(std::accumulate(host<int32_t>(all), host<int32_t>(all) + ranks, 0), ranks);
    EXPECT_EQ(mesh.tally().of_axis("data").bytes + mesh.tally().of_axis("tensor").bytes +
                  mesh.tally().of_axis("tensor+sequence+data+pipe").bytes +
                  mesh.tally().of_axis("tensor+data").bytes,
              2 * (ranks - 1) * ranks * 4 / ranks);
  });
}

TEST_P(CommunicatorLaws, TracingCountsWhatLeavesTheRank) {
  on_ranks([&](Communicator& comm, const Splitter& split, Exec& exec) {
    CommTally tally;
    TracedComm traced(split(0, comm.rank(), "sequence"), "sequence", tally, Signatures::kCompare);
    const Tensor mine = exec.zeros({6}), all = exec.zeros({ranks, 6}),
                 half = exec.zeros({ranks}, DType::kBF16);
    traced.all_gather(exec, mine, all);
    traced.reduce_scatter(exec, all, mine);
    traced.all_reduce(exec, half, ReduceOp::kMax);
    const std::vector<int64_t> rows(static_cast<size_t>(ranks), 2);
    const Tensor out = exec.zeros({2 * ranks, 3}, DType::kI64),
                 in = exec.zeros({2 * ranks, 3}, DType::kI64);
    traced.all_to_all_v(exec, out, rows, in, rows);
    traced.hosts().barrier();
    EXPECT_EQ(tally.of("sequence", "all_gather").bytes, (ranks - 1) * 24);
    EXPECT_EQ(tally.of("sequence", "reduce_scatter").bytes, (ranks - 1) * 24);
    EXPECT_EQ(tally.of("sequence", "all_reduce").bytes, 2 * (ranks - 1) * 2);
    EXPECT_EQ(tally.of("sequence", "all_to_all_v").bytes, (ranks - 1) * 48);
    EXPECT_EQ(tally.of_axis("sequence").calls, 5);
    EXPECT_EQ(tally.bytes_by_axis().at("sequence"), tally.of_axis("sequence").bytes);
    traced.hosts().barrier();
  });
}

// If one rank makes a different call, every rank fails with a message that names both calls.
TEST_P(CommunicatorLaws, TracingNamesBothCallsWhenRanksDisagree) {
  if (ranks == 1) return;
  on_ranks([&](Communicator& comm, const Splitter& split, Exec& exec) {
    CommTally tally;
    TracedComm traced(split(0, comm.rank(), "data"), "data", tally, Signatures::kCompare);
    const bool odd = comm.rank() == ranks - 1;
    const std::string message = message_of<Error>([&] {
      const Tensor t = exec.zeros({odd ? 5 : 4}), all = exec.zeros({ranks, 4});
      if (odd)
        traced.all_reduce(exec, t, ReduceOp::kSum);
      else
        traced.all_gather(exec, t, all);
    });
    EXPECT_NE(message.find("all_gather(f32 [4])"), std::string::npos) << message;
    EXPECT_NE(message.find(fmt::format("rank {} calls all_reduce sum(f32 [5])", ranks - 1)),
              std::string::npos)
        << message;
    std::vector<int64_t> rows(static_cast<size_t>(ranks), 1), wrong = rows;
    if (odd) wrong[0] = 2;
    const Tensor out = exec.zeros({ranks, 3}), in = exec.zeros({ranks + (odd ? 1 : 0), 3});
    const std::string counts =
        message_of<Error>([&] { traced.all_to_all_v(exec, out, rows, in, wrong); });
    EXPECT_NE(
        counts.find(fmt::format("rank 0 sends 1 rows to rank {}, which expects 2", ranks - 1)),
        std::string::npos)
        << counts;
    comm.hosts().barrier();
  });
}

// A barrier is compared like other calls: a rank in it does not block the comparison.
TEST_P(CommunicatorLaws, TracingComparesBarriers) {
  if (ranks == 1) return;
  on_ranks([&](Communicator& comm, const Splitter& split, Exec& exec) {
    CommTally tally;
    TracedComm traced(split(0, comm.rank(), "data"), "data", tally, Signatures::kCompare);
    const bool odd = comm.rank() == ranks - 1;
    tally.activity().at(3, odd ? "saving" : "summing gradients");
    const std::string message = message_of<Error>([&] {
      const Tensor t = exec.zeros({4});
      if (odd)
        traced.hosts().barrier();
      else
        traced.all_reduce(exec, t, ReduceOp::kSum);
    });
    EXPECT_EQ(message,
              fmt::format("ranks of data disagree: rank 0 calls all_reduce sum(f32 [4]) in "
                          "step 3, summing gradients; rank {} calls barrier in step 3, saving",
                          ranks - 1));
    comm.hosts().barrier();
  });
}

// Transfers round the ring with different sizes or layers: the receiver's message names both ends
// and places.
TEST_P(CommunicatorLaws, TracingComparesTransfers) {
  if (ranks == 1) return;
  on_ranks([&](Communicator& comm, const Splitter& split, Exec& exec) {
    CommTally tally;
    const int to = (comm.rank() + 1) % ranks, from = (comm.rank() + ranks - 1) % ranks;
    // Leftover messages would disturb the next case, so each has its own communicator.
    const auto message = [&](const char* axis, int64_t received, int64_t layer, bool started) {
      TracedComm traced(split(0, comm.rank(), axis), axis, tally, Signatures::kCompare);
      const Tensor out = exec.zeros({2, 3}), in = exec.zeros({received, 3});
      const Transfer both[] = {{Transfer::Kind::kSend, to, out, 7},
                               {Transfer::Kind::kRecv, from, in, 7}};
      tally.activity().at(4, "");
      tally.activity().at("forward", layer);
      if (received == 2 && (layer == 1 || axis == std::string("pipe"))) {
        EXPECT_NO_THROW(started ? traced.start(exec, both)->wait() : traced.transfer(exec, both));
        return std::string();
      }
      return message_of<Error>(
          [&] { started ? traced.start(exec, both)->wait() : traced.transfer(exec, both); });
    };
    for (const bool started : {false, true}) {
      EXPECT_EQ(message("sequence", 2, 1, started), "");
      EXPECT_EQ(
          message("sequence", 1, 1, started),
          fmt::format("ranks of sequence disagree: rank {} sends f32 [2, 3] in step 4, forward "
                      "of layer 1; rank {} receives f32 [1, 3] in step 4, forward of layer 1",
                      from, comm.rank()));
      EXPECT_EQ(
          message("sequence", 2, 10 + comm.rank(), started),
          fmt::format("ranks of sequence disagree: rank {} sends f32 [2, 3] in step 4, forward "
                      "of layer {}; rank {} receives f32 [2, 3] in step 4, forward of layer {}",
                      from, 10 + from, comm.rank(), 10 + comm.rank()));
      EXPECT_EQ(message("pipe", 2, 10 + comm.rank(), started),
                "");  // stages run different layers
    }
    EXPECT_EQ(tally.of("pipe", "transfer").bytes, 2 * 24);  // control words do not count
    comm.hosts().barrier();
  });
}

// Equal calls in two layers of equal shape: within a stage it is a mistake, between stages not.
TEST_P(CommunicatorLaws, TracingTellsLayersApart) {
  if (ranks == 1) return;
  on_ranks([&](Communicator& comm, const Splitter& split, Exec& exec) {
    CommTally tally;
    TracedComm tensor(split(0, comm.rank(), "tensor"), "tensor", tally, Signatures::kCompare),
        pipe(split(0, comm.rank(), "pipe"), "pipe", tally, Signatures::kCompare);
    const Tensor t = exec.zeros({4});
    tally.activity().at(3, "");
    tally.activity().at("forward", 1);
    tensor.all_reduce(exec, t, ReduceOp::kSum);
    tally.activity().at("forward", comm.rank() == ranks - 1 ? 2 : 1);
    pipe.all_reduce(exec, t, ReduceOp::kSum);
    const std::string message =
        message_of<Error>([&] { tensor.all_reduce(exec, t, ReduceOp::kSum); });
    EXPECT_EQ(
        message,
        fmt::format("ranks of tensor disagree: rank 0 calls all_reduce sum(f32 [4]) in step 3, "
                    "forward of layer 1; rank {} calls all_reduce sum(f32 [4]) in step 3, "
                    "forward of layer 2",
                    ranks - 1));
    comm.hosts().barrier();
  });
}

INSTANTIATE_TEST_SUITE_P(All, CommunicatorLaws, testing::ValuesIn(places()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::test
