#include "parallel/boxes.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/rng.h"

namespace weft::test {
namespace {

// Random boxes of tensors of up to four dims, fed in pieces of random sizes, against one copy.
TEST(BoxStream, CopiesWhatOneCopyWould) {
  const RandomStream random(11, "boxes");
  uint64_t drawn = 0;
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(random.below(drawn++, static_cast<uint64_t>(below)));
  };
  for (int round = 0; round < 300; ++round) {
    Shape extent, from, from_offset, to, to_offset;
    for (int64_t dims = draw(5); dims > 0; --dims) {
      extent.append(1 + draw(5));
      const int64_t before = draw(2) * draw(3), behind = draw(2) * draw(3);
      from.append(extent[extent.dims() - 1] + before + behind);
      from_offset.append(before);
      to.append(extent[extent.dims() - 1] + draw(3));
      to_offset.append(draw(to[to.dims() - 1] - extent[extent.dims() - 1] + 1));
    }
    std::vector<float> source(static_cast<size_t>(from.elements()));
    std::iota(source.begin(), source.end(), 1.0f);
    std::vector<float> once(static_cast<size_t>(to.elements()), -1), fed = once;
    copy_box({reinterpret_cast<const char*>(source.data()), from, from_offset},
             {reinterpret_cast<char*>(once.data()), to, to_offset}, extent);
    BoxStream stream(from, from_offset, {reinterpret_cast<char*>(fed.data()), to, to_offset},
                     extent);
    const auto bytes = std::as_bytes(std::span(source));
    for (size_t at = 0; at < bytes.size();) {
      const size_t count = std::min(bytes.size() - at, static_cast<size_t>(1 + draw(97)));
      stream.feed(static_cast<int64_t>(at), bytes.subspan(at, count));
      at += count;
    }
    EXPECT_EQ(once, fed) << fmt::format("{} at {} of {}", extent, from_offset, from);
  }
}

}  // namespace
}  // namespace weft::test
