#include "layers/basic/token_mix.h"

#include <gtest/gtest.h>

#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {
namespace {

constexpr int64_t kWidth = 5;

TEST(PreviousToken, IsTheRowBeforeOrWhatEntered) {
  Rig rig;
  const PreviousToken previous(kWidth);
  const Sequence sequence = make_sequence({0, 1, 1, 4});  // the second document is empty
  const Tensor x = rig.normal("x", {4, kWidth}), before = rig.exec.empty(x.shape());
  State state = {rig.normal("state", {3, 1, kWidth})};
  const Tensor history = state[0].reshaped({3, kWidth});
  SavedStack saved;
  previous.forward(rig.exec, {x, before}, sequence, &state, saved);
  EXPECT_TRUE(SameBits(before.row_range(0, 1), history.row_range(0, 1)));
  EXPECT_TRUE(SameBits(before.row_range(1, 1), history.row_range(2, 1)));
  EXPECT_TRUE(SameBits(before.row_range(2, 2), x.row_range(1, 2)));
  const Tensor last = state[0].reshaped({3, kWidth});
  EXPECT_TRUE(SameBits(last.row_range(0, 1), x.row_range(0, 1)));
  EXPECT_TRUE(SameBits(last.row_range(1, 1), history.row_range(1, 1)));
  EXPECT_TRUE(SameBits(last.row_range(2, 1), x.row_range(3, 1)));
}

// <d_before, before> + <d_last, last> is linear in x and the state: its value is <dx, x> +
// <d_state, state>.
TEST(PreviousToken, BackwardIsTheTranspose) {
  Rig rig;
  const PreviousToken previous(kWidth);
  const Sequence sequence = make_sequence({0, 1, 1, 4, 9});
  const Tensor x = rig.normal("x", {9, kWidth}), before = rig.exec.empty(x.shape());
  const Tensor entering = rig.normal("state", {4, 1, kWidth});
  const Tensor d_before = rig.normal("d_before", x.shape()), dx = rig.exec.zeros(x.shape());
  const Tensor d_last = rig.normal("d_last", entering.shape());
  State state = {entering}, d_state = {d_last};
  SavedStack saved;
  previous.forward(rig.exec, {x, before}, sequence, &state, saved);
  previous.backward(rig.exec, {x, before}, sequence, d_before, &d_state, {dx}, saved);
  const auto dot = [](const Tensor& a, const Tensor& b) {
    const auto p = numbers(a), q = numbers(b);
    double sum = 0;
    for (size_t i = 0; i < p.size(); ++i) sum += p[i] * q[i];
    return sum;
  };
  EXPECT_NEAR(dot(dx, x) + dot(d_state[0], entering), dot(d_before, before) + dot(d_last, state[0]),
              1e-5);
}

}  // namespace
}  // namespace weft::test
