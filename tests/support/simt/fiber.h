#pragma once

#include <cstddef>
#include <span>

// A flow of control with a stack of its own, switched by hand: what emulated CUDA threads run on.
// An unfinished fiber is dropped without unwinding, so bodies own nothing.
namespace simt {

class Fiber {
 public:
  using Body = void (*)(Fiber& self, void* argument);  // must neither throw nor return

  Fiber();  // stands for the flow that constructs it, so that others can switch back to it
  Fiber(std::span<std::byte> stack, Body body, void* argument);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Called by the running fiber. Returns when another one switches back; a fiber that has not run,
  // or was restarted, begins its body.
  void switch_to(Fiber& next);
  // The next switch to this fiber begins its body again; its unfinished work is dropped.
  void restart();

 private:
  struct Entry;
  void arrive(void* kept);  // on this fiber's stack, after a switch

  std::span<std::byte> stack_;  // of the constructing flow: known to address sanitizer alone
  Body body_ = nullptr;
  void* argument_ = nullptr;
  void* context_ = nullptr;   // where it continues
  void* identity_ = nullptr;  // thread sanitizer's
  bool owns_stack_ = false;
};

}  // namespace simt
