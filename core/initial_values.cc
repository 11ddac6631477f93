#include "core/initial_values.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <optional>

#include "core/base/permutation.h"
#include "core/base/rng.h"
#include "core/host_access.h"

namespace weft {
namespace {

constexpr int64_t kChunk = 1 << 16;  // elements per task

float initial_value(const Init& init, const RandomStream& stream, uint64_t index) {
  switch (init.kind) {
    case Init::Kind::kZeros: return 0.0f;
    case Init::Kind::kConstant: return static_cast<float>(init.a);
    case Init::Kind::kNormal: return static_cast<float>(init.a + init.b * stream.normal(index));
    case Init::Kind::kLogOfUniform: {
      // 1 - [0, 1) is never zero, nor is its logarithm infinite.
      const double share = 1.0 - stream.uniform(index);
      return static_cast<float>(std::log(init.a + (init.b - init.a) * share));
    }
    case Init::Kind::kTimeStep: {
      const double low = std::log(init.a), high = std::log(init.b);
      const double dt = std::max(std::exp(low + (high - low) * stream.uniform(index)), 1e-4);
      return static_cast<float>(dt + std::log(-std::expm1(-dt)));
    }
    case Init::Kind::kEach: return static_cast<float>(init.value(static_cast<int64_t>(index)));
    default: return static_cast<float>(init.a + (init.b - init.a) * stream.uniform(index));
  }
}

// The Hartley matrix (cos + sin)(2 pi i j / n) / sqrt(n), which is orthogonal, with its rows and
// columns in random order and of random sign: so an element is a function of its index, and no rank
// needs the whole matrix. Each matrix of a stack has its own order and signs.
class Orthogonal {
 public:
  Orthogonal(const ParameterSpec& spec, uint64_t seed) : gain_(spec.init.a) {
    const bool stack = spec.global.dims() == 3;
    WEFT_CHECK(stack || spec.global.dims() == 2, "{} is {}: only a matrix can be orthogonal",
               spec.name, spec.global);
    rows_ = spec.global[stack ? 1 : 0];
    columns_ = spec.global[stack ? 2 : 1];
    n_ = std::max(rows_, columns_);
    for (int64_t m = 0; m < (stack ? spec.global[0] : 1); ++m) {
      const std::string name = stack ? spec.name + "." + std::to_string(m) : spec.name;
      matrices_.push_back(
          {line(seed, name + ".rows", rows_), line(seed, name + ".columns", columns_)});
    }
  }
  float operator()(int64_t index) const {
    const Matrix& matrix = matrices_[static_cast<size_t>(index / (rows_ * columns_))];
    const Place &i = matrix.along_rows[static_cast<size_t>(index / columns_ % rows_)],
                &j = matrix.along_columns[static_cast<size_t>(index % columns_)];
    const double angle =
        2 * std::numbers::pi * static_cast<double>(i.at * j.at % n_) / static_cast<double>(n_);
    const double scale = gain_ * i.sign * j.sign / std::sqrt(static_cast<double>(n_));
    return static_cast<float>(scale * (std::cos(angle) + std::sin(angle)));
  }

 private:
  struct Place {
    int64_t at;
    double sign;
  };
  struct Matrix {
    std::vector<Place> along_rows, along_columns;
  };
  std::vector<Place> line(uint64_t seed, const std::string& name, int64_t count) const {
    const Permutation order(seed, name, n_);
    const RandomStream signs(seed, name);
    std::vector<Place> places;
    for (int64_t i = 0; i < count; ++i)
      places.push_back({order(i), signs.bits(static_cast<uint64_t>(i)) & 1 ? 1.0 : -1.0});
    return places;
  }

  int64_t rows_ = 0, columns_ = 0, n_ = 0;
  double gain_;
  std::vector<Matrix> matrices_;
};

// Flat index, in a tensor of the extents `whole`, of element `i` of the box `extent` at `offset`.
int64_t flat_index(const Shape& whole, const Shape& offset, const Shape& extent, int64_t i) {
  int64_t index = 0, stride = 1;
  for (int dim = whole.dims() - 1; dim >= 0; --dim) {
    index += (offset[dim] + i % extent[dim]) * stride;
    i /= extent[dim];
    stride *= whole[dim];
  }
  return index;
}

void fill_one(Exec& exec, Parameter& p, uint64_t seed) {
  const RandomStream stream(seed, p.spec.name);
  std::optional<Orthogonal> orthogonal;
  if (p.spec.init.kind == Init::Kind::kOrthogonal) orthogonal.emplace(p.spec, seed);
  float* out = host<float>(p.master);
  const int stacked = stacked_dim(p.spec);
  Shape local = p.shape;  // where the slice starts in the local tensor
  for (int dim = 0; dim < local.dims(); ++dim) local[dim] = 0;
  for (const Slice& slice : p.slices) {
    const int64_t count = slice.extent.elements();
    exec.threads.run((count + kChunk - 1) / kChunk, [&](int64_t task) {
      const int64_t end = std::min(count, (task + 1) * kChunk);
      for (int64_t i = task * kChunk; i < end; ++i) {
        const int64_t global = flat_index(p.spec.global, slice.offset, slice.extent, i);
        out[flat_index(p.shape, local, slice.extent, i)] =
            orthogonal ? (*orthogonal)(global)
                       : initial_value(p.spec.init, stream, static_cast<uint64_t>(global));
      }
    });
    if (local.dims() > 0) local[stacked] += slice.extent[stacked];
  }
}

}  // namespace

void fill_initial_values(Exec& exec, ParameterStore& store, uint64_t seed) {
  const HostScope open(exec);
  for (Parameter& p : store.all()) fill_one(exec, p, seed);
}

}  // namespace weft
