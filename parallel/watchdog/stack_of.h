#pragma once

#include <pthread.h>

#include <string>

namespace weft {

// Functions of weft that a thread of this process is in, innermost first:
// "GradientSync::reduce_gradients < Trainer::step". The thread is interrupted (SIGURG, which is
// ignored where nobody handles it), notes where it is, and goes on. Without the machinery of
// communicators, whose call is known by other means; without functions local to a file, which have
// no name at run time. Empty when the thread does not answer.
std::string stack_of(pthread_t thread);

}  // namespace weft
