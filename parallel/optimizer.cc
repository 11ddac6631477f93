#include "parallel/optimizer.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "core/memory/host_table.h"
#include "kernels/model/adamw.h"
#include "kernels/rows/reductions.h"

namespace weft {
namespace {

constexpr int64_t kAlign = 16;  // elements; 64 bytes in f32

}  // namespace

Optimizer::Optimizer(ParameterStore& store, Pool& pool, const AdamOptions& options)
    : Optimizer(store, pool, options, std::make_shared<Mesh>(), nullptr) {}

Optimizer::Optimizer(ParameterStore& store, Pool& pool, const AdamOptions& options,
                     std::shared_ptr<const Mesh> mesh, GradientSync& sync)
    : Optimizer(store, pool, options, std::move(mesh), &sync) {}

Optimizer::Optimizer(ParameterStore& store, Pool& pool, const AdamOptions& options,
                     std::shared_ptr<const Mesh> mesh, GradientSync* sync)
    : store_(store),
      options_(options),
      mesh_(std::move(mesh)),
      own_sync_(sync != nullptr ? nullptr
                                : std::make_unique<GradientSync>(store, *mesh_, Zero::kWhole)),
      sync_(sync != nullptr ? *sync : *own_sync_),
      pool_(pool) {
  int64_t moments = 0;
  for (size_t i = 0; i < store.all().size(); ++i) {
    const Parameter& p = store.all()[i];
    const IndexRange rows = sync_.of(i).rows;
    const int64_t width = row_width(p.shape);
    owned_.push_back({rows.begin * width, rows.size() * width, moments});
    moments += (owned_.back().count + kAlign - 1) / kAlign * kAlign;
  }
  m_ = Arena(pool.ledger(), Label::kMoments, moments * 4, pool.backing());
  v_ = Arena(pool.ledger(), Label::kMoments, moments * 4, pool.backing());
  std::vector<std::string> names;
  for (const Parameter& p : store.all()) names.push_back(p.spec.name);
  know_all(std::move(names));
}

void Optimizer::know_all(std::vector<std::string> names) {
  std::map<std::string, size_t> here;
  for (size_t i = 0; i < store_.all().size(); ++i) here[store_.all()[i].spec.name] = i;
  std::sort(names.begin(), names.end());
  by_name_.clear();
  for (const std::string& name : names) {
    const auto found = here.find(name);
    by_name_.push_back(found == here.end() ? kElsewhere : found->second);
  }
}

Tensor Optimizer::part(const Tensor& of, size_t index) const {
  const Owned& owned = owned_[index];
  return of.reshaped({of.elements()}).slice(owned.begin, owned.count);
}

Tensor Optimizer::moment(const Arena& arena, size_t index) const {
  return arena.tensor(owned_[index].moments * 4, {owned_[index].count}, DType::kF32);
}

// `owned`: the rows this rank owns of a tensor that is cut like the parameter.
void Optimizer::add_pieces(const std::string& name, size_t index, const Tensor& owned,
                           std::vector<SavedTensor>& out) const {
  const ParameterSpec& spec = store_.all()[index].spec;
  for (const OwnedPiece& piece : pieces_of(spec, mesh_->here(), sync_.of(index).rows)) {
    const Shape& extent = piece.box.extent;
    const Tensor part = owned.slice(piece.begin - owned_[index].begin, extent.elements());
    out.push_back({name, spec.global, {piece.box}, part.reshaped(extent)});
  }
}

std::vector<SavedTensor> Optimizer::tensors_to_save() const {
  std::vector<SavedTensor> tensors;
  for (size_t i = 0; i < owned_.size(); ++i) {
    if (!sync_.of(i).answers) continue;
    const Parameter& p = store_.all()[i];
    add_pieces("parameters/" + p.spec.name, i, part(p.master, i), tensors);
    add_pieces("adam/m/" + p.spec.name, i, moment(m_, i), tensors);
    add_pieces("adam/v/" + p.spec.name, i, moment(v_, i), tensors);
  }
  return tensors;
}

std::vector<SavedTensor> Optimizer::moments_to_load() const {
  std::vector<SavedTensor> tensors;
  for (size_t i = 0; i < owned_.size(); ++i) {
    const std::string& name = store_.all()[i].spec.name;
    add_pieces("adam/m/" + name, i, moment(m_, i), tensors);
    add_pieces("adam/v/" + name, i, moment(v_, i), tensors);
  }
  return tensors;
}

double Optimizer::gradient_norm(Exec& exec) const { return gradient_norm(exec, {}); }

double Optimizer::gradient_norm(Exec& exec, std::span<double> beside) const {
  const auto own = std::ssize(beside), names = std::ssize(by_name_);
  const Tensor packed = exec.zeros({own + names}, DType::kF64);
  const ConstView mine{beside.data(), {own}, own, DType::kF64, {}};
  if (own > 0) exec.copy(mine, packed.slice(0, own));
  for (int64_t k = 0; k < names; ++k) {
    const size_t i = by_name_[static_cast<size_t>(k)];
    if (i == kElsewhere) continue;
    const Parameter& p = store_.all()[i];
    if (!sync_.of(i).answers || p.spec.buffer || owned_[i].count == 0) continue;
    kernels::sum_of_squares(exec, part(p.grad, i), packed.slice(own + k, 1));
  }
  mesh_->world().all_reduce(exec, packed, ReduceOp::kSum);
  const std::vector<double> sums = download<double>(exec, packed);
  std::copy_n(sums.begin(), own, beside.begin());
  return std::sqrt(std::accumulate(sums.begin() + own, sums.end(), 0.0));
}

void Optimizer::step(Exec& exec, double lr, double grad_scale, int64_t step) {
  kernels::AdamW adam{.lr = lr,
                      .beta1 = options_.beta1,
                      .beta2 = options_.beta2,
                      .epsilon = options_.epsilon,
                      .weight_decay = 0.0,
                      .grad_scale = grad_scale,
                      .step = step};
  sync_.complete_values(exec);  // a pending gather reads what changes now
  for (size_t i = 0; i < owned_.size(); ++i) {
    Parameter& p = store_.all()[i];
    if (p.spec.buffer) continue;
    ++p.version;
    if (owned_[i].count == 0) continue;
    adam.weight_decay = p.spec.weight_decay ? options_.weight_decay : 0.0;
    const bool copied = p.value.dtype() != DType::kF32;
    kernels::adamw(exec, adam, part(p.master, i), part(p.grad, i), moment(m_, i), moment(v_, i),
                   copied ? part(p.value, i).view() : View{});
  }
  sync_.values_changed();
  if (!stale_) release_stale_masters();
}

void Optimizer::release_stale_masters() {
  stale_ = std::make_unique<ReleasedPages>(pool_.ledger(), Label::kMaster, pool_.backing());
  for (size_t i = 0; i < owned_.size(); ++i) {
    const Parameter& p = store_.all()[i];
    if (p.value.dtype() == DType::kF32)
      continue;  // the value itself, of which every rank needs all
    const int64_t end = owned_[i].begin + owned_[i].count;
    const Tensor master = p.master.reshaped({p.master.elements()});
    stale_->release(master.slice(0, owned_[i].begin));
    stale_->release(master.slice(end, master.elements() - end));
  }
}

}  // namespace weft
