#include "tests/support/simt/fiber.h"

#include <boost/context/detail/fcontext.hpp>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace simt {
namespace {

namespace context = boost::context::detail;

void leaving_for([[maybe_unused]] const void* stack, [[maybe_unused]] size_t bytes,
                 [[maybe_unused]] void** kept, [[maybe_unused]] void* identity) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_start_switch_fiber(kept, stack, bytes);
#endif
#ifdef __SANITIZE_THREAD__
  __tsan_switch_to_fiber(identity, 0);
#endif
}

void arrived([[maybe_unused]] void* kept, [[maybe_unused]] const void** from,
             [[maybe_unused]] size_t* bytes) {
#ifdef __SANITIZE_ADDRESS__
  __sanitizer_finish_switch_fiber(kept, from, bytes);
#endif
}

}  // namespace

struct Fiber::Entry {
  static void enter(context::transfer_t from) {
    auto* fiber = static_cast<Fiber*>(from.data);
    fiber->caller_ = from.fctx;
    arrived(nullptr, &fiber->caller_stack_, &fiber->caller_bytes_);
    fiber->body_(fiber->argument_);
    fiber->ended_ = true;
    fiber->leave(/*for_good=*/true);
  }
};

Fiber::Fiber(size_t stack_bytes) : stack_(new std::byte[stack_bytes]), bytes_(stack_bytes) {
#ifdef __SANITIZE_THREAD__
  own_identity_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#ifdef __SANITIZE_THREAD__
  __tsan_destroy_fiber(own_identity_);
#endif
}

void Fiber::start(Body body, void* argument) {
  body_ = body;
  argument_ = argument;
  ended_ = false;
  context_ = context::make_fcontext(stack_.get() + bytes_, bytes_, Entry::enter);
}

void Fiber::resume() {
#ifdef __SANITIZE_THREAD__
  caller_identity_ = __tsan_get_current_fiber();
#endif
  void* kept = nullptr;
  leaving_for(stack_.get(), bytes_, &kept, own_identity_);
  const context::transfer_t back = context::jump_fcontext(context_, this);
  arrived(kept, nullptr, nullptr);
  context_ = back.fctx;
}

void Fiber::suspend() { leave(/*for_good=*/false); }

void Fiber::leave(bool for_good) {
  void* kept = nullptr;
  leaving_for(caller_stack_, caller_bytes_, for_good ? nullptr : &kept, caller_identity_);
  const context::transfer_t back = context::jump_fcontext(caller_, nullptr);
  caller_ = back.fctx;
  arrived(kept, &caller_stack_, &caller_bytes_);
}

}  // namespace simt
