// Tokens and channels between tensor ranks.
#include "layers/basic/token_shards.h"
#include "core/host_access.h"
#include "parallel/parameter_values.h"

#include <gtest/gtest.h>

#include "layers/basic/channel_shards.h"
#include "layers/basic/wide_norm.h"
#include "parallel/comm/thread_comm.h"
#include "parallel/gradient_sync.h"
#include "parallel/layout/layout.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

// Counts that divide, that do not, fewer tokens than ranks, none.
TEST(TokenShards, GatherPutsPartsTogetherAndScatterAddsThemUp) {
  for (const int64_t tokens : {12, 13, 3, 1, 0}) {
    for (const int size : {1, 2, 4}) {
      run_ranks(size, [&](ThreadComm& ranks, Exec& exec) {
        Rig rig(1);
        const Tensor whole = rig.normal("x", {tokens, 5});
        const IndexRange part = even_part(tokens, ranks.rank(), size);
        const Tensor mine = whole.row_range(part.begin, part.size());
        EXPECT_TRUE(SameBits(gather_tokens(exec, &ranks, mine, tokens).view(), whole.view()));

        // Small whole numbers, so that sums are exact.
        const Tensor all = exec.empty({tokens, 5});
        for (int64_t i = 0; i < all.elements(); ++i) {
          host<float>(all)[i] = static_cast<float>(i * (ranks.rank() + 1));
        }
        const Tensor sum = scatter_tokens(exec, &ranks, all);
        EXPECT_EQ(sum.shape().rows(), part.size());
        for (int64_t i = 0; i < sum.elements(); ++i) {
          EXPECT_EQ(host<float>(sum)[i],
                    static_cast<float>((part.begin * 5 + i) * size * (size + 1) / 2));
        }
      });
    }
  }
}

TEST(ChannelShards, GatherPutsColumnsTogetherAndScatterAddsThemUp) {
  run_ranks(3, [&](ThreadComm& ranks, Exec& exec) {
    Rig rig(1);
    const Tensor whole = rig.normal("x", {7, 12});
    const View mine = whole.view().columns(ranks.rank() * 4, 4);
    EXPECT_TRUE(SameBits(gather_channels(exec, &ranks, mine).view(), whole.view()));
    const Tensor sum = scatter_channels(exec, &ranks, whole);
    std::vector<double> want = numbers(mine);
    for (double& w : want) w *= 3;
    EXPECT_TRUE(Near(sum, want, 3e-7));
  });
}

// One group over all ranks, one over two of four, whole groups on each.
TEST(WideNorm, OnSlicesOfTheChannelsIsThatOfTheRow) {
  for (const int64_t groups : {1, 2, 4, 8}) {
    for (const int size : {1, 2, 4}) {
      run_ranks(size, [&](ThreadComm& ranks, Exec& exec) {
        Rig rig(1);
        const auto norm = [&](int of, int index, Communicator* comm, ParameterStore& store,
                              bool backward) {
          const Build build{.store = store, .scope = "", .hidden = 16, .tensor_ranks = comm};
          const int64_t width = 16 / of;
          const WideNorm layer(build, "w", width, 1, groups, 1e-3f);
          store.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kAllocate);
          initialize(exec, store, 1);
          const Tensor x = exec.empty({5, width}), dy = exec.empty({5, width});
          const Tensor y = exec.empty({5, width}), dx = exec.empty({5, width});
          const Tensor weight = rig.normal("weight", {16}), all = rig.normal("x", {5, 16}),
                       d_all = rig.normal("dy", {5, 16});
          for (int64_t r = 0; r < 5; ++r) {
            std::copy_n(host<float>(all) + r * 16 + index * width, width,
                        host<float>(x) + r * width);
            std::copy_n(host<float>(d_all) + r * 16 + index * width, width,
                        host<float>(dy) + r * width);
          }
          Parameter& p = store.all()[0];
          std::copy_n(host<float>(weight) + index * width, width, host<float>(p.value));
          const Tensor inv_rms = layer.forward(exec, x, y);
          layer.backward(exec, dy, x, inv_rms, dx);
          std::vector<double> out = numbers(backward ? dx : y), grad = numbers(p.grad);
          if (backward) out.insert(out.end(), grad.begin(), grad.end());
          return out;
        };
        const int rank = ranks.rank();
        Coordinates here;
        here[Axis::kTensor] = {rank, size};
        for (const bool backward : {false, true}) {
          ParameterStore cut(here), one;
          const std::vector<double> got = norm(size, rank, &ranks, cut, backward),
                                    whole = norm(1, 0, nullptr, one, backward);
          std::vector<double> want;
          const int64_t width = 16 / size, rows = backward ? 6 : 5;
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t c = 0; c < width; ++c)
              want.push_back(whole[static_cast<size_t>(r * 16 + rank * width + c)]);
          }
          EXPECT_TRUE(Near(got, want, 1e-6)) << groups << " groups, " << size << " ranks";
        }
      });
    }
  }
}

// Ranks 0, 1 hold one slice and ranks 2, 3 another.
TEST(Replicas, SumTheirGradientsAmongThemselves) {
  run_ranks(4, [&](ThreadComm& ranks, Exec& exec) {
    const Tensor grad = exec.empty({3});
    for (int64_t i = 0; i < 3; ++i) {
      host<float>(grad)[i] = static_cast<float>(10 * ranks.rank() + i);
    }
    sum_over_replicas(exec, ranks, 2, grad);
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_EQ(host<float>(grad)[i], static_cast<float>((ranks.rank() < 2 ? 10 : 50) + 2 * i));
    }
  });
}

}  // namespace
}  // namespace weft::test
