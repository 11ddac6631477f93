#include "core/parameter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <numeric>
#include <optional>

#include "core/permutation.h"
#include "core/rng.h"

namespace weft {
namespace {

constexpr int64_t kAlign = 16;        // elements; 64 bytes in f32
constexpr int64_t kChunk = 1 << 16;   // elements per task

struct Range {
  int64_t begin, end;
};

// Part `index` of `extent` cut into `parts`, whole units, the last ones shorter or empty.
Range part_of(int64_t extent, int64_t unit, int index, int parts) {
  WEFT_CHECK(unit > 0 && extent % unit == 0, "{} rows are not whole units of {}", extent, unit);
  const int64_t units = extent / unit;
  const int64_t per_part = (units + parts - 1) / parts;
  return {std::min(units, per_part * index) * unit, std::min(units, per_part * (index + 1)) * unit};
}

void apply_split(const Split& split, const Coordinates& here, std::vector<Slice>& slices) {
  const Coordinates::Place place = here[split.axis];
  if (place.size == 1) return;
  WEFT_CHECK(place.size % split.replicas == 0, "{} ranks cannot share slices in {}s", place.size,
             split.replicas);
  const int index = place.index / split.replicas, parts = place.size / split.replicas;
  std::vector<Slice> cut;
  for (const Slice& slice : slices) {
    const int64_t extent = slice.extent[split.dim];
    const std::vector<int64_t> blocks = split.blocks.empty() ? std::vector{extent} : split.blocks;
    WEFT_CHECK(std::accumulate(blocks.begin(), blocks.end(), int64_t{0}) == extent,
               "blocks do not add up to {} rows", extent);
    int64_t start = slice.offset[split.dim];
    for (const int64_t block : blocks) {
      const Range part = part_of(block, split.unit, index, parts);
      Slice piece = slice;
      piece.offset[split.dim] = start + part.begin;
      piece.extent[split.dim] = part.end - part.begin;
      cut.push_back(piece);
      start += block;
    }
  }
  slices = std::move(cut);
}

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
// columns in random order and of random sign: so that an element is a function of its place, and no
// rank needs the whole matrix. Matrices of a stack have orders and signs of their own.
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
      matrices_.push_back({line(seed, name + ".rows", rows_), line(seed, name + ".columns", columns_)});
    }
  }
  float operator()(int64_t index) const {
    const Matrix& matrix = matrices_[static_cast<size_t>(index / (rows_ * columns_))];
    const Place &i = matrix.along_rows[static_cast<size_t>(index / columns_ % rows_)],
                &j = matrix.along_columns[static_cast<size_t>(index % columns_)];
    const double angle = 2 * std::numbers::pi * static_cast<double>(i.at * j.at % n_) /
                         static_cast<double>(n_);
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

// The dim along which the local tensor stacks its slices.
int stacked_dim(const ParameterSpec& spec) {
  for (const Split& split : spec.splits) {
    if (!split.blocks.empty()) return split.dim;
  }
  return 0;
}

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

void initialize_one(Exec& exec, Parameter& p, uint64_t seed) {
  const RandomStream stream(seed, p.spec.name);
  std::optional<Orthogonal> orthogonal;
  if (p.spec.init.kind == Init::Kind::kOrthogonal) orthogonal.emplace(p.spec, seed);
  float* out = p.master.data<float>();
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

Tensor joined(const std::vector<Parameter*>& parameters, Tensor Parameter::* part) {
  WEFT_CHECK(!parameters.empty(), "no parameters to join");
  const Tensor& first = parameters.front()->*part;
  int64_t rows = 0;
  for (const Parameter* p : parameters) {
    const Tensor& t = p->*part;
    WEFT_CHECK(t.shape().dims() == 2 && t.shape()[1] == first.shape()[1],
               "{} {} cannot be joined with {}", p->spec.name, t.shape(), first.shape());
    WEFT_CHECK(static_cast<char*>(t.raw()) == static_cast<char*>(first.raw()) +
                                                  rows * first.shape()[1] * size_of(first.dtype()),
               "{} does not touch the parameter before it", p->spec.name);
    rows += t.shape()[0];
  }
  return Tensor::borrow(first.raw(), {rows, first.shape()[1]}, first.dtype());
}

}  // namespace

std::string_view name_of(Axis axis) {
  static constexpr std::array<std::string_view, static_cast<size_t>(Axis::kCount)> kNames = {
      "pipe", "data", "sequence", "tensor", "expert_data", "expert", "expert_tensor"};
  return kNames[static_cast<size_t>(axis)];
}

std::vector<Slice> slices_of(const ParameterSpec& spec, const Coordinates& here) {
  const auto stacks = [](const Split& split) { return !split.blocks.empty(); };
  WEFT_CHECK(std::count_if(spec.splits.begin(), spec.splits.end(), stacks) <= 1,
             "{} is cut into blocks twice: a local tensor stacks along one dim", spec.name);
  Slice whole{spec.global, spec.global};
  for (int dim = 0; dim < spec.global.dims(); ++dim) whole.offset[dim] = 0;
  std::vector<Slice> slices = {whole};
  for (const Split& split : spec.splits) apply_split(split, here, slices);
  return slices;
}

Shape local_shape(const ParameterSpec& spec, const Coordinates& here) {
  const std::vector<Slice> slices = slices_of(spec, here);
  Shape shape = slices.front().extent;
  const int stacked = stacked_dim(spec);
  for (size_t i = 1; i < slices.size(); ++i) shape[stacked] += slices[i].extent[stacked];
  return shape;
}

Parameter& ParameterStore::declare(ParameterSpec spec) {
  WEFT_CHECK(!values_.data(), "{} declared after the store was allocated", spec.name);
  WEFT_CHECK(find(spec.name) == nullptr, "{} declared twice", spec.name);
  Parameter p;
  p.slices = slices_of(spec, here_);
  p.shape = local_shape(spec, here_);
  p.offset = elements_;
  p.spec = std::move(spec);
  elements_ += (p.shape.elements() + kAlign - 1) / kAlign * kAlign;
  return parameters_.emplace_back(std::move(p));
}

void ParameterStore::allocate(Ledger& ledger, DType compute, Gradients gradients) {
  values_ = Arena(ledger, Label::kParameters, elements_ * size_of(compute));
  if (compute != DType::kF32) masters_ = Arena(ledger, Label::kMaster, elements_ * 4);
  if (gradients == Gradients::kAllocate) grads_ = Arena(ledger, Label::kGradients, elements_ * 4);
  for (Parameter& p : parameters_) {
    p.value = Tensor::borrow(static_cast<char*>(values_.data()) + p.offset * size_of(compute),
                             p.shape, compute);
    p.master = p.value;
    if (masters_.data()) {
      p.master =
          Tensor::borrow(static_cast<float*>(masters_.data()) + p.offset, p.shape, DType::kF32);
      if (p.spec.f32) p.value = p.master;
    }
    if (grads_.data()) {
      p.grad = Tensor::borrow(static_cast<float*>(grads_.data()) + p.offset, p.shape, DType::kF32);
    }
  }
}

void ParameterStore::initialize(Exec& exec, uint64_t seed) {
  for (Parameter& p : parameters_) initialize_one(exec, p, seed);
  publish(exec);
}

void ParameterStore::publish(Exec& exec) {
  for (Parameter& p : parameters_) ++p.version;
  if (!masters_.data()) return;
  const auto* from = static_cast<const float*>(masters_.data());
  auto* to = static_cast<bf16*>(values_.data());
  exec.threads.run((elements_ + kChunk - 1) / kChunk, [&](int64_t task) {
    const int64_t end = std::min(elements_, (task + 1) * kChunk);
    for (int64_t i = task * kChunk; i < end; ++i) to[i] = to_bf16(from[i]);
  });
}

void ParameterStore::zero_gradients(Exec& exec) {
  auto* grads = static_cast<float*>(grads_.data());
  WEFT_CHECK(grads != nullptr, "this store was allocated without gradients");
  exec.threads.run((elements_ + kChunk - 1) / kChunk, [&](int64_t task) {
    const int64_t begin = task * kChunk, end = std::min(elements_, begin + kChunk);
    std::memset(grads + begin, 0, static_cast<size_t>(end - begin) * sizeof(float));
  });
}

Parameter* ParameterStore::find(std::string_view name) {
  for (Parameter& p : parameters_) {
    if (p.spec.name == name) return &p;
  }
  return nullptr;
}

Tensor joined_values(const std::vector<Parameter*>& parameters) {
  return joined(parameters, &Parameter::value);
}

Tensor joined_grads(const std::vector<Parameter*>& parameters) {
  return joined(parameters, &Parameter::grad);
}

}  // namespace weft
