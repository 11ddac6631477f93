#include "parallel/layout/ownership.h"

#include <algorithm>

namespace weft {
namespace {

constexpr Axis kDenseView[] = {Axis::kTensor, Axis::kSequence, Axis::kData};
constexpr Axis kExpertView[] = {Axis::kExpertTensor, Axis::kExpert, Axis::kExpertData};

// Slowest first, so that the index among sharers follows the order of ranks.
constexpr Axis kDenseSharers[] = {Axis::kData, Axis::kSequence};
constexpr Axis kExpertSharers[] = {Axis::kExpertData};

std::span<const Axis> view_of(const ParameterSpec& spec) {
  return spec.expert ? std::span<const Axis>(kExpertView) : kDenseView;
}
std::span<const Axis> sharers_of(const ParameterSpec& spec) {
  return spec.expert ? std::span<const Axis>(kExpertSharers) : kDenseSharers;
}

// Among the ranks of one axis that hold the same slice: is this the first?
bool first_of_axis(const ParameterSpec& spec, Axis axis, Coordinates::Place place) {
  for (const Split& split : spec.splits) {
    if (split.axis == axis) return place.index % split.replicas == 0;
  }
  return place.index == 0;
}

Shape zeros_like(Shape shape) {
  for (int dim = 0; dim < shape.dims(); ++dim) shape[dim] = 0;
  return shape;
}

// Cuts the elements [begin, end) of a local tensor that lie in one of its boxes into runs that are
// boxes themselves.
struct Cutter {
  const Shape& local;
  const Slice& slice;  // where the box lies in the global tensor
  const Shape& start;  // and in the local one
  int64_t begin, end;  // whole rows
  std::vector<OwnedPiece>& out;

  bool full_behind(int dim) const {
    for (int d = dim + 1; d < local.dims(); ++d) {
      if (slice.extent[d] != local[d]) return false;
    }
    return true;
  }

  int64_t stride(int dim) const {
    int64_t product = 1;
    for (int d = dim + 1; d < local.dims(); ++d) product *= local[d];
    return product;
  }

  // Dims before `dim` are fixed in `at` (relative to the box); `base` is where that part starts in
  // the local tensor.
  void cut(int dim, Shape at, Shape extent, int64_t base) {
    const int64_t step = stride(dim), count = slice.extent[dim];
    const auto inner = [&](int64_t i) {
      at[dim] = i, extent[dim] = 1;
      cut(dim + 1, at, extent, base + (start[dim] + i) * step);
    };
    if (!full_behind(dim)) {
      for (int64_t i = 0; i < count; ++i) inner(i);
      return;
    }
    const int64_t from = std::max(begin - base - start[dim] * step, int64_t{0});
    const int64_t to = std::min(end - base - start[dim] * step, count * step);
    if (from >= to) return;
    const int64_t first = (from + step - 1) / step, last = to / step;
    if (first > last) return inner(last);  // inside one index
    if (from % step != 0) inner(first - 1);
    if (first < last) {
      at[dim] = first, extent[dim] = last - first;
      emit(at, extent, base + (start[dim] + first) * step);
    }
    if (to % step != 0) inner(last);
  }

  void emit(Shape at, const Shape& extent, int64_t local_begin) {
    for (int dim = 0; dim < at.dims(); ++dim) at[dim] += slice.offset[dim];
    out.push_back({{at, extent}, local_begin});
  }
};

}  // namespace

int64_t row_width(const Shape& local) { return local.dims() < 2 ? 1 : local.back(); }

int64_t row_count(const Shape& local) {
  if (local.elements() == 0) return 0;
  return local.elements() / row_width(local);
}

Ownership ownership_of(const ParameterSpec& spec, const Coordinates& here, Zero zero) {
  Ownership own;
  for (const Axis axis : spec.partial_over) {
    if (here[axis].size > 1) own.partial_over.push_back(axis);
  }
  for (const Split& split : spec.splits) {
    if (split.axis == Axis::kTensor && here[Axis::kTensor].size > 1) own.replicas = split.replicas;
  }
  own.answers = spec.held_by.empty() || spec.held_by.front() == here[Axis::kPipe].index;
  const std::span<const Axis> sharers = sharers_of(spec);
  for (const Axis axis : view_of(spec)) {
    if (std::find(sharers.begin(), sharers.end(), axis) != sharers.end()) continue;
    own.answers = own.answers && first_of_axis(spec, axis, here[axis]);
  }
  for (const Axis axis : sharers) {
    own.share.index = own.share.index * here[axis].size + here[axis].index;
    own.share.size *= here[axis].size;
    if (here[axis].size > 1) own.shared_over.push_back(axis);
  }
  const int64_t rows = row_count(local_shape(spec, here));
  if (zero == Zero::kSharded && !spec.buffer) {
    own.rows_per_share = (rows + own.share.size - 1) / own.share.size;
    own.rows = {std::min(rows, own.rows_per_share * own.share.index),
                std::min(rows, own.rows_per_share * (own.share.index + 1))};
  } else {
    own.rows_per_share = rows;
    own.rows = {0, rows};
    own.answers = own.answers && own.share.index == 0;
  }
  return own;
}

std::vector<OwnedPiece> pieces_of(const ParameterSpec& spec, const Coordinates& here,
                                  IndexRange rows) {
  const Shape local = local_shape(spec, here);
  const int64_t width = row_width(local);
  std::vector<OwnedPiece> out;
  if (rows.size() <= 0) return out;
  if (local.dims() == 0) return {{{local, local}, 0}};
  const std::vector<Slice> slices = slices_of(spec, here);
  int stacked = 0;
  for (const Split& split : spec.splits) {
    if (!split.blocks.empty()) stacked = split.dim;
  }
  Shape start = zeros_like(local);
  for (const Slice& slice : slices) {
    Cutter cutter{local, slice, start, rows.begin * width, rows.end * width, out};
    cutter.cut(0, zeros_like(local), slice.extent, 0);
    start[stacked] += slice.extent[stacked];
  }
  return out;
}

}  // namespace weft
