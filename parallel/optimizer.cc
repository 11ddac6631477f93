#include "parallel/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/adamw.h"
#include "kernels/elementwise.h"

namespace weft {
namespace {

// Any tensor as one row of its elements.
Tensor flat(const Tensor& t) { return t.reshaped({t.elements()}); }

}  // namespace

Optimizer::Optimizer(ParameterStore& store, Ledger& ledger, const AdamOptions& options)
    : store_(store),
      options_(options),
      m_(ledger, Label::kMoments, store.elements() * 4),
      v_(ledger, Label::kMoments, store.elements() * 4),
      by_name_(store.all().size()) {
  std::iota(by_name_.begin(), by_name_.end(), size_t{0});
  std::sort(by_name_.begin(), by_name_.end(), [&](size_t a, size_t b) {
    return store_.all()[a].spec.name < store_.all()[b].spec.name;
  });
}

Tensor Optimizer::moment(const Arena& arena, const Parameter& p) const {
  return Tensor::borrow(static_cast<float*>(arena.data()) + p.offset, p.shape, DType::kF32);
}

std::vector<SavedTensor> Optimizer::saved_tensors() const {
  std::vector<SavedTensor> tensors;
  for (const Parameter& p : store_.all()) {
    tensors.push_back({"adam/m/" + p.spec.name, p.spec.global, p.slices, moment(m_, p)});
    tensors.push_back({"adam/v/" + p.spec.name, p.spec.global, p.slices, moment(v_, p)});
  }
  return tensors;
}

double Optimizer::gradient_norm(Exec& exec) const {
  double sum = 0;
  for (const size_t i : by_name_) {
    const Parameter& p = store_.all()[i];
    if (!p.spec.buffer) sum += kernels::sum_of_squares(exec, flat(p.grad));
  }
  return std::sqrt(sum);
}

void Optimizer::step(Exec& exec, double lr, double grad_scale, int64_t step) {
  kernels::AdamW adam{.lr = lr,
                      .beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .epsilon = options_.epsilon,
                      .weight_decay = 0.0,
                      .grad_scale = grad_scale,
                      .step = step};
  for (Parameter& p : store_.all()) {
    if (p.spec.buffer) continue;
    adam.weight_decay = p.spec.weight_decay ? options_.weight_decay : 0.0;
    const bool copied = p.value.dtype() != DType::kF32;
    kernels::adamw(exec, adam, flat(p.master), flat(p.grad), flat(moment(m_, p)), flat(moment(v_, p)),
                   copied ? flat(p.value).view() : View{});
    ++p.version;
  }
}

}  // namespace weft
