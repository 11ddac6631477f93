// Decoding with latent attention caches one row of shared key and latent per token, for any number
// of heads.
#include <gtest/gtest.h>

#include "core/host_access.h"
#include "tests/layers/mixer_cases.h"

namespace weft::test {
namespace {

class LatentCache : public Gradients {};

TEST_F(LatentCache, HoldsOneNarrowRowPerToken) {
  Made made(rig, rig.exec, "mla,rope_width = 4\nrope = true\nkv_rank = 6");
  const Sequence sequence = make_sequence({0, 19});
  MixerState state;
  SavedStack saved;
  StepContext step;
  made.mixer->forward(rig.exec, rig.normal("x", {19, kHidden}), {sequence, &state, &step}, saved);
  const State* latents = part_of(&state, "latents");
  ASSERT_EQ(latents->size(), 2u);  // rows, and how many are used
  EXPECT_EQ((*latents)[0].shape().back(), 4 + 6);
  EXPECT_EQ(host<int32_t>((*latents)[1])[0], 19);
}

}  // namespace
}  // namespace weft::test
