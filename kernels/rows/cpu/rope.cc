#include "kernels/rows/cpu/rope.h"

#include <cmath>
#include <vector>

#include "kernels/cpu/tasks.h"
#include "kernels/rows/cpu/isa/rope.h"

namespace weft::kernels::cpu {
namespace {

// Rows of (cos | sin), one for each position that is asked for.
struct Angles {
  std::vector<double> frequency;
  int64_t half() const { return static_cast<int64_t>(frequency.size()); }

  template <class Position>
  std::vector<double> table(Exec& exec, int64_t rows, double scale, Position position) const {
    std::vector<double> out(static_cast<size_t>(rows * 2 * half()));
    for_blocks(exec, {rows, 16}, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        double* turn = out.data() + r * 2 * half();
        for (int64_t i = 0; i < half(); ++i) {
          const double angle = position(r) * frequency[static_cast<size_t>(i)];
          turn[i] = scale * std::cos(angle);
          turn[half() + i] = scale * std::sin(angle);
        }
      }
    });
    return out;
  }
};

Angles angles_of(const Rope& rope) {
  Angles angles{{rope.frequencies.begin(), rope.frequencies.end()}};
  if (!angles.frequency.empty()) return angles;
  for (int64_t i = 0; i < rope.rotary_width / 2; ++i) {
    angles.frequency.push_back(std::pow(
        rope.base, -2.0 * static_cast<double>(i) / static_cast<double>(rope.rotary_width)));
  }
  return angles;
}

}  // namespace

void rope(Exec& exec, const Rope& rope, ConstView positions, View x) {
  const int64_t rows = x.rows();
  const int32_t* p = host<int32_t>(positions);
  const auto [low, high] = std::minmax_element(p, p + rows);
  WEFT_CHECK(*low >= 0, "rope: position {}", *low);

  const Angles angles = angles_of(rope);
  const int64_t first = *low / kRopeFine, coarse_rows = *high / kRopeFine - first + 1;
  const bool each_token = rows <= coarse_rows + kRopeFine;  // few tokens, or far apart
  std::vector<double> coarse, fine;
  if (each_token) {
    coarse = angles.table(exec, rows, rope.scale, [&](int64_t r) { return p[r]; });
  } else {
    coarse = angles.table(exec, coarse_rows, rope.scale,
                          [&](int64_t r) { return static_cast<double>((first + r) * kRopeFine); });
    fine = angles.table(exec, kRopeFine, 1.0, [](int64_t r) { return static_cast<double>(r); });
  }
  const int64_t half = angles.half();
  const RopeArgs args{p,
                      rows_of(x),
                      rope.heads,
                      rope.head_width,
                      half,
                      coarse.data(),
                      each_token ? nullptr : fine.data(),
                      first,
                      rope.direction == Rope::Direction::kForward ? 1.0f : -1.0f};
  const Tensor scratch = exec.scratch({exec.threads.size(), 2 * half});
  const RowBlocks blocks = row_blocks(rows, x.width());
  const RopeTable& table = table_of<RopeTable>(exec.isa);
  exec.threads.run_on(blocks.count(), [&](int64_t b, int thread) {
    table.rotate(args, b * blocks.size, std::min(rows, (b + 1) * blocks.size),
                 host<float>(scratch) + thread * 2 * half);
  });
}

}  // namespace weft::kernels::cpu
