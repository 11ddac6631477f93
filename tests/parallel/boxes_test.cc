#include "parallel/checkpoint/boxes.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/base/rng.h"

namespace weft::test {
namespace {

// Random boxes of tensors of up to four dims, copied in parts of random sizes and in any order,
// compared with a single copy.
TEST(BoxCopy, OfPartsCopiesWhatOneCopyWould) {
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
    std::vector<float> once(static_cast<size_t>(to.elements()), -1), parts = once, placed = once;
    copy_box({reinterpret_cast<const char*>(source.data()), from, from_offset},
             {reinterpret_cast<char*>(once.data()), to, to_offset}, extent);
    std::vector<bool> inside(4 * source.size(), false);  // by byte: whether it is in the box
    for (const float copied : once) {
      if (copied > 0) std::fill_n(inside.begin() + 4 * (static_cast<int64_t>(copied) - 1), 4, true);
    }
    const auto to_box = [&](std::vector<float>& data) -> BoxIn {
      return {reinterpret_cast<char*>(data.data()), to, to_offset};
    };
    const BoxCopy copy(from, from_offset, to_box(parts), extent);
    const BoxCopy place(from, from_offset, to_box(placed), extent);
    const auto bytes = std::as_bytes(std::span(source));
    std::vector<BoxCopy::Range> ranges;
    for (int64_t at = 0; at < std::ssize(bytes);) {
      const int64_t end = std::min(std::ssize(bytes), at + 1 + draw(97));
      ranges.insert(ranges.begin() + draw(std::ssize(ranges) + 1), {at, end});
      at = end;
    }
    for (const BoxCopy::Range& r : ranges) {
      const auto part = [&](BoxCopy::Range x) {
        return bytes.subspan(static_cast<size_t>(x.begin), static_cast<size_t>(x.end - x.begin));
      };
      copy.copy(r.begin, part(r));
      // The needed range of a part is known, and its target if the part is contiguous there.
      const BoxCopy::Range needed = place.within(r);
      const auto begin = inside.begin() + r.begin, end = inside.begin() + r.end;
      const auto first = std::find(begin, end, true);
      EXPECT_EQ(needed.empty(), first == end);
      if (needed.empty()) continue;
      const auto last = std::find(std::reverse_iterator(end), std::reverse_iterator(begin), true);
      EXPECT_EQ(needed.begin, first - inside.begin());
      EXPECT_EQ(needed.end, last.base() - inside.begin());
      if (std::byte* const there = place.place_of(needed)) {
        std::copy(part(needed).begin(), part(needed).end(), there);
      } else {
        place.copy(needed.begin, part(needed));
      }
    }
    const std::string what = fmt::format("{} at {} of {}", extent, from_offset, from);
    EXPECT_EQ(once, parts) << what;
    EXPECT_EQ(once, placed) << what;
  }
}

}  // namespace
}  // namespace weft::test
