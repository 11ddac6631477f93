#include "tests/support/simt/fiber.h"

#include <boost/context/detail/fcontext.hpp>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace simt {
namespace {

namespace context = boost::context::detail;

// The fiber that was left by the last switch of this thread.
constinit thread_local Fiber* left = nullptr;

}  // namespace

struct Fiber::Entry {
  static void enter(context::transfer_t from) {
    auto* self = static_cast<Fiber*>(from.data);
    left->context_ = from.fctx;
    self->arrive(nullptr);
    self->body_(*self, self->argument_);
  }
};

Fiber::Fiber() {
#ifdef __SANITIZE_THREAD__
  identity_ = __tsan_get_current_fiber();
#endif
}

Fiber::Fiber(std::span<std::byte> stack, Body body, void* argument)
    : stack_(stack), body_(body), argument_(argument), owns_stack_(true) {
#ifdef __SANITIZE_THREAD__
  identity_ = __tsan_create_fiber(0);
#endif
  restart();
}

Fiber::~Fiber() {
#ifdef __SANITIZE_THREAD__
  if (owns_stack_) __tsan_destroy_fiber(identity_);
#endif
}

void Fiber::restart() {
#ifdef __SANITIZE_ADDRESS__
  __asan_unpoison_memory_region(stack_.data(), stack_.size());  // left by frames that were dropped
#endif
  context_ = context::make_fcontext(stack_.data() + stack_.size(), stack_.size(), Entry::enter);
}

void Fiber::switch_to(Fiber& next) {
  [[maybe_unused]] void* kept = nullptr;
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(&kept, next.stack_.data(), next.stack_.size());
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(next.identity_, 0);
#endif
  left = this;
  const context::transfer_t back = context::jump_fcontext(next.context_, &next);
  left->context_ = back.fctx;
  arrive(kept);
}

void Fiber::arrive([[maybe_unused]] void* kept) {
#ifdef __SANITIZE_ADDRESS__
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(kept, &bottom, &bytes);
  if (!left->owns_stack_) {
    left->stack_ = {static_cast<std::byte*>(const_cast<void*>(bottom)), bytes};
  }
#endif
}

}  // namespace simt
