#pragma once

#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "core/memory/exec.h"

namespace weft {

// Numbers known on the host and read by kernels: document offsets, positions, row counts, fixed
// decays. Immutable; copies share the storage.
template <class T>
class HostTable {
 public:
  HostTable() : HostTable(std::vector<T>{}) {}
  explicit HostTable(std::vector<T> values) : state_(std::make_shared<State>(std::move(values))) {}

  std::span<const T> host() const { return state_->values; }
  operator std::span<const T>() const { return host(); }
  const T& operator[](size_t i) const { return state_->values[i]; }
  size_t size() const { return state_->values.size(); }
  bool empty() const { return state_->values.empty(); }
  auto begin() const { return host().begin(); }
  auto end() const { return host().end(); }
  const T& front() const { return state_->values.front(); }
  const T& back() const { return state_->values.back(); }

  // A view for kernels of `exec`: host memory, or device memory after a single upload.
  ConstView view(Exec& exec) const {
    const auto count = static_cast<int64_t>(size());
    const ConstView here{state_->values.data(), Shape{count}, count, dtype_of<T>(), {}};
    if (exec.device().is_cpu()) return here;
    Tensor& there = state_->uploaded;
    if (!there.defined() || there.device() != exec.device()) {
      there = exec.empty({count}, dtype_of<T>());
      exec.copy(here, there);
    }
    return there;
  }

 private:
  struct State {
    explicit State(std::vector<T> v) : values(std::move(v)) {}
    std::vector<T> values;
    Tensor uploaded;
  };
  std::shared_ptr<State> state_;
};

// Elements of a contiguous view as numbers of the host: one copy, after the work that was queued
// before it. In a rehearsal, whose tensors have no memory, zeros.
template <class T>
std::vector<T> download(const Exec& exec, ConstView view) {
  WEFT_CHECK(view.dtype == dtype_of<T>(), "{} downloaded as {}", name_of(view.dtype),
             name_of(dtype_of<T>()));
  std::vector<T> out(static_cast<size_t>(view.shape.elements()));
  exec.copy(view, {out.data(), Shape{std::ssize(out)}, std::ssize(out), view.dtype, {}});
  return out;
}

}  // namespace weft
