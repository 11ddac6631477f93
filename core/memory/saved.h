#pragma once

#include <functional>
#include <memory>
#include <typeinfo>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace weft {

struct Exec;

// Values that forward saves for backward: typed frames, one stack per micro-batch in flight.
// Backward pops in the reverse order of forward's pushes; popping a frame of another type is an
// error.
class SavedStack {
 public:
  template <class T>
  void push(T value) {
    frames_.push_back(std::make_unique<Holder<T>>(std::move(value)));
  }

  template <class T>
  T pop() {
    T value = std::move(top<T>());
    frames_.pop_back();
    return value;
  }

  template <class T>
  T& top() {
    WEFT_CHECK(!frames_.empty(), "backward asks for a {}, but forward saved nothing more",
               typeid(T).name());
    auto* holder = dynamic_cast<Holder<T>*>(frames_.back().get());
    WEFT_CHECK(holder != nullptr, "backward asks for a {}, forward saved a {} last",
               typeid(T).name(), frames_.back()->type().name());
    return holder->value;
  }

  // Work that computes weight gradients only: run at once, or appended to a list if the stack has
  // one, which the schedule runs when it would wait (zero bubble). Captured values must not change
  // afterwards.
  using Later = std::vector<std::function<void(Exec&)>>;
  template <class Work>
  void weight_work(Exec& exec, Work&& work) {
    if (later_ != nullptr)
      later_->emplace_back(std::forward<Work>(work));
    else if (holds_ > 0)
      held_.emplace_back(std::forward<Work>(work));
    else
      work(exec);
  }
  void put_off_to(Later* later) { later_ = later; }
  // Between hold() and run_held() weight work is deferred, so that it can overlap a transfer. Pairs
  // may be nested: an inner run_held() runs all deferred work.
  void hold() { ++holds_; }
  void run_held(Exec& exec) {
    --holds_;
    for (const auto& work : std::exchange(held_, {})) work(exec);
  }
  // Pushes the frames of another stack.
  void append(SavedStack&& other) {
    for (auto& frame : other.frames_) frames_.push_back(std::move(frame));
    other.frames_.clear();
  }
  // An empty stack that defers work as this one does.
  SavedStack inner() const {
    SavedStack stack;
    stack.later_ = later_;
    return stack;
  }

  size_t depth() const { return frames_.size(); }
  bool empty() const { return frames_.empty(); }
  void clear() { frames_.clear(); }

 private:
  struct Frame {
    virtual ~Frame() = default;
    virtual const std::type_info& type() const = 0;
  };
  template <class T>
  struct Holder final : Frame {
    explicit Holder(T v) : value(std::move(v)) {}
    const std::type_info& type() const override { return typeid(T); }
    T value;
  };
  std::vector<std::unique_ptr<Frame>> frames_;
  Later* later_ = nullptr;
  int holds_ = 0;
  Later held_;
};

}  // namespace weft
