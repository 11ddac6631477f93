#pragma once

#include <cstddef>
#include <memory>

// A flow of control with a stack of its own, resumed and suspended by hand: what an emulated CUDA
// thread runs on. An unfinished fiber is dropped without unwinding, so bodies own nothing.
namespace simt {

class Fiber {
 public:
  using Body = void (*)(void* argument);

  explicit Fiber(size_t stack_bytes);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The body begins with the next `resume`; whatever ran before is forgotten. It must not throw.
  void start(Body body, void* argument);
  void resume();   // until the body suspends or ends
  void suspend();  // called by the body
  bool ended() const { return ended_; }

 private:
  struct Entry;

  void leave(bool for_good);

  std::unique_ptr<std::byte[]> stack_;
  size_t bytes_;
  Body body_ = nullptr;
  void* argument_ = nullptr;
  void* context_ = nullptr;  // where the body goes on
  void* caller_ = nullptr;   // where `resume` goes on
  bool ended_ = true;
  // What the sanitizers must be told about stacks that change under them.
  const void* caller_stack_ = nullptr;
  size_t caller_bytes_ = 0;
  void* own_identity_ = nullptr;
  void* caller_identity_ = nullptr;
};

}  // namespace simt
