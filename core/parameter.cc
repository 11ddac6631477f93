#include "core/parameter.h"

#include <algorithm>
#include <numeric>

namespace weft {
namespace {

constexpr int64_t kAlign = 16;  // elements; 64 bytes in f32

struct Range {
  int64_t begin, end;
};

// Part `index` of `extent` cut into `parts` of whole units; the last ones may be shorter or empty.
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

Tensor joined(const std::vector<Parameter*>& parameters, Tensor Parameter::*part) {
  WEFT_CHECK(!parameters.empty(), "no parameters to join");
  const Tensor& first = parameters.front()->*part;
  int64_t rows = 0;
  for (const Parameter* p : parameters) {
    const Tensor& t = p->*part;
    WEFT_CHECK(t.shape().dims() == 2 && t.shape()[1] == first.shape()[1],
               "{} {} cannot be joined with {}", p->spec.name, t.shape(), first.shape());
    const int64_t before = rows * first.shape()[1] * size_of(first.dtype());
    WEFT_CHECK(static_cast<char*>(t.view().data) == static_cast<char*>(first.view().data) + before,
               "{} does not touch the parameter before it", p->spec.name);
    rows += t.shape()[0];
  }
  return Tensor::borrow(first.view().data, {rows, first.shape()[1]}, first.dtype(), first.device());
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

int stacked_dim(const ParameterSpec& spec) {
  for (const Split& split : spec.splits) {
    if (!split.blocks.empty()) return split.dim;
  }
  return 0;
}

Parameter& ParameterStore::declare(ParameterSpec spec) {
  WEFT_CHECK(!allocated(), "{} declared after the store was allocated", spec.name);
  WEFT_CHECK(find(spec.name) == nullptr, "{} declared twice", spec.name);
  Parameter p;
  p.slices = slices_of(spec, here_);
  p.shape = local_shape(spec, here_);
  p.offset = elements_;
  p.spec = std::move(spec);
  elements_ += (p.shape.elements() + kAlign - 1) / kAlign * kAlign;
  return parameters_.emplace_back(std::move(p));
}

void ParameterStore::allocate(Pool& pool, DType compute, Gradients gradients) {
  const auto arena = [&](Label label, DType type) {
    return Arena(pool.ledger(), label, elements_ * size_of(type), pool.backing());
  };
  values_ = arena(Label::kParameters, compute);
  if (compute != DType::kF32) masters_ = arena(Label::kMaster, DType::kF32);
  if (gradients == Gradients::kAllocate) grads_ = arena(Label::kGradients, DType::kF32);
  for (Parameter& p : parameters_) {
    p.value = values_.tensor(p.offset * size_of(compute), p.shape, compute);
    p.master = p.value;
    if (masters_.bytes() > 0) {
      p.master = masters_.tensor(p.offset * 4, p.shape, DType::kF32);
      if (p.spec.f32) p.value = p.master;
    }
    if (grads_.bytes() > 0) p.grad = grads_.tensor(p.offset * 4, p.shape, DType::kF32);
  }
  compute_ = compute;
}

Tensor ParameterStore::values() const { return values_.tensor(0, {elements_}, compute_); }

Tensor ParameterStore::masters() const {
  return masters_.bytes() == 0 ? values() : masters_.tensor(0, {elements_}, DType::kF32);
}

Tensor ParameterStore::gradients() const {
  WEFT_CHECK(grads_.bytes() > 0, "this store was allocated without gradients");
  return grads_.tensor(0, {elements_}, DType::kF32);
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
