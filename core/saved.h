#pragma once

#include <memory>
#include <typeinfo>
#include <utility>
#include <vector>

#include "core/error.h"

namespace weft {

// What forward keeps for backward: typed frames, one stack per micro-batch in flight. Backward pops in
// the reverse order of forward's pushes; a frame of another type than expected is a bug and says so.
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
};

}  // namespace weft
