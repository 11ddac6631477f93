#pragma once

#include <gtest/gtest.h>

#include "core/base/isa.h"
#include "tests/support/near.h"
#include "tests/support/rig.h"

namespace weft::test {

// States between chunks that forward keeps change no bit of any result, at values that fill lines
// of memory and some that do not, with a document without tokens. `c` has everything else.
template <class Problem, class Case>
void expect_same_bits_from_kept_states(Case c) {
  c.documents = {0, 130, 130, 135};
  c.key = 24;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int64_t value : {64, 24}) {
      c.value = value, c.dtype = dtype;
      for (const Isa isa : available_isas()) {
        Rig rig(1, isa);
        Problem p(rig, c), other(rig, c);
        other.keeps = true;
        p.run(rig.exec);
        other.run(rig.exec);
        const auto got = p.results(), kept = other.results();
        for (size_t i = 0; i < got.size(); ++i) {
          EXPECT_TRUE(SameBits(got[i], kept[i])) << name_of(isa) << ", result " << i;
        }
      }
    }
  }
}

}  // namespace weft::test
