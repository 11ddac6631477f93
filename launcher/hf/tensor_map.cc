#include "launcher/hf/tensor_map.h"

#include <algorithm>

namespace weft {
namespace {

Slice whole_of(const Shape& shape) {
  Slice slice{shape, shape};
  for (int dim = 0; dim < shape.dims(); ++dim) slice.offset[dim] = 0;
  return slice;
}

int64_t rows_of(const Shape& shape) { return shape.dims() == 0 ? 1 : shape[0]; }

}  // namespace

TensorMap::TensorMap(const ParameterStore& model) {
  for (const Parameter& p : model.all()) {
    model_.emplace(p.spec.name, p.spec.global);
    weights_.push_back(p.spec.name);
  }
}

const Shape& TensorMap::shape_of(const std::string& weft) const {
  const auto found = model_.find(weft);
  WEFT_CHECK(found != model_.end(), "the model has no weight {}", weft);
  return found->second;
}

void TensorMap::add(TensorLink link, const Shape& hf_shape) {
  const int64_t width = hf_shape.elements() / std::max<int64_t>(1, rows_of(hf_shape));
  WEFT_CHECK(link.box.extent.elements() == link.rows.rows() * width,
             "{} takes {} elements, {} rows of {} {} have {}", link.weft,
             link.box.extent.elements(), link.rows.rows(), link.hf, hf_shape,
             link.rows.rows() * width);
  const auto [found, added] = tensors_.emplace(link.hf, hf_shape);
  WEFT_CHECK(found->second == hf_shape, "{} is {} and {}", link.hf, found->second, hf_shape);
  if (added) order_.push_back(link.hf);
  links_.push_back(std::move(link));
}

void TensorMap::whole(const std::string& weft, const std::string& hf) {
  whole(weft, hf, shape_of(weft));
}

void TensorMap::whole(const std::string& weft, const std::string& hf, const Shape& hf_shape) {
  add({weft, whole_of(shape_of(weft)), hf, {.run = rows_of(hf_shape)}}, hf_shape);
}

void TensorMap::expert(const std::string& weft, int64_t index, int64_t begin, int64_t rows,
                       const std::string& hf) {
  const int64_t width = shape_of(weft)[2];
  add({weft, {{index, begin, 0}, {1, rows, width}}, hf, {.run = rows}}, {rows, width});
}

void TensorMap::rows(const std::string& weft, const Rows& mine, const std::string& hf,
                     const Shape& hf_shape, const RowRuns& theirs) {
  Slice box = whole_of(shape_of(weft));
  box.offset[0] = mine.begin;
  box.extent[0] = mine.count;
  add({weft, box, hf, theirs}, hf_shape);
}

bool TensorMap::ignores(const std::string& hf) const {
  // Old folders contain the frequencies of the rotation, which follow from the config.
  if (hf.ends_with("rotary_emb.inv_freq")) return true;
  return std::any_of(ignored_.begin(), ignored_.end(), [&](const std::string& name) {
    return name.ends_with('.') ? hf.starts_with(name) : hf == name;
  });
}

void TensorMap::check() const {
  std::map<std::string, int64_t> weft, hf;
  for (const TensorLink& link : links_) {
    weft[link.weft] += link.box.extent.elements();
    hf[link.hf] += link.box.extent.elements();
  }
  for (const auto& [name, shape] : model_) {
    WEFT_CHECK(weft[name] == shape.elements(), "{} of {} elements of {} are linked", weft[name],
               shape.elements(), name);
  }
  for (const auto& [name, shape] : tensors_) {
    WEFT_CHECK(hf[name] == shape.elements(), "{} of {} elements of {} are linked", hf[name],
               shape.elements(), name);
  }
}

}  // namespace weft
