// Embedding and loss with the vocabulary split over tensor ranks, shorter or empty on the last
// rank, and token counts that do not divide.
#include <gtest/gtest.h>

#include <mutex>

#include "core/host_access.h"
#include "layers/basic/embedding.h"
#include "layers/basic/loss.h"
#include "parallel/comm/thread_comm.h"
#include "parallel/layout/layout.h"
#include "parallel/parameter_values.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"
#include "tests/support/slices.h"

namespace weft::test {
namespace {

constexpr int64_t kWidth = 6, kRows = 11;

struct Outcome {
  std::vector<double> y = std::vector<double>(kRows * kWidth), dx = y, table, head;
  double loss = 0;
};

// y of the embedding; dx and the sum of the loss for x; gradients of both tables.
Outcome run(int64_t vocab, int size, bool tied) {
  Outcome out;
  std::mutex mutex;
  run_ranks(size, [&](ThreadComm& ranks, Exec& exec) {
    Rig rig(1);
    Coordinates here;
    here[Axis::kTensor] = {ranks.rank(), size};
    ParameterStore store(here);
    const Build build{.store = store, .scope = "", .hidden = kWidth, .tensor_ranks = &ranks};
    const Embedding embedding(build, vocab);
    const LossHead head(build, vocab, tied ? &embedding.table() : nullptr);
    store.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kAllocate);
    initialize(exec, store, 5);
    const Tensor tokens = exec.empty({kRows}, DType::kI32),
                 targets = exec.empty({kRows}, DType::kI32);
    for (int64_t i = 0; i < kRows; ++i) {
      host<int32_t>(tokens)[i] = static_cast<int32_t>(i * 3 % vocab);
      host<int32_t>(targets)[i] = i == 4 ? -1 : static_cast<int32_t>((i * 5 + 1) % vocab);
    }
    const IndexRange mine = even_part(kRows, ranks.rank(), size);
    const auto part = [&](const char* name) {
      return rig.normal(name, {kRows, kWidth}).row_range(mine.begin, mine.size());
    };
    SavedStack saved;
    const Tensor y = embedding.forward(exec, tokens, saved);
    embedding.backward(exec, part("dy"), saved);
    const auto loss = head.forward(exec, part("x"), targets, 0.7f, LossHead::Gradients::kYes);
    EXPECT_EQ(head.forward(exec, part("x"), targets, 0.7f, LossHead::Gradients::kNo).loss_sum,
              loss.loss_sum);

    const std::lock_guard lock(mutex);
    const auto put = [&](const Tensor& rows, std::vector<double>& whole) {
      const std::vector<double> values = numbers(rows);
      std::copy(values.begin(), values.end(), whole.begin() + mine.begin * kWidth);
    };
    put(y, out.y);
    put(loss.dx, out.dx);
    out.loss += loss.loss_sum;
    for (const Parameter& p : store.all()) {
      std::vector<double>& grad = p.spec.name == "head.weight" ? out.head : out.table;
      grad.resize(static_cast<size_t>(vocab * kWidth));
      each_element(p, here,
                   [&](size_t local, size_t whole) { grad[whole] = host<float>(p.grad)[local]; });
    }
  });
  return out;
}

TEST(Vocabulary, CutOverRanksGivesWhatOneRankGives) {
  for (const int64_t vocab : {5, 61}) {
    for (const bool tied : {false, true}) {
      const Outcome one = run(vocab, 1, tied);
      for (const int size : {2, 4}) {
        const Outcome many = run(vocab, size, tied);
        EXPECT_EQ(many.y, one.y) << "rows and zeros add up exactly";
        EXPECT_NEAR(many.loss, one.loss, 1e-6 * one.loss);
        EXPECT_TRUE(Near(many.dx, one.dx, 1e-6));
        EXPECT_TRUE(Near(many.table, one.table, 1e-6));
        if (!tied) {
          EXPECT_TRUE(Near(many.head, one.head, 1e-6));
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft::test
