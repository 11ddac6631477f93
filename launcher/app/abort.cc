#include "launcher/app/abort.h"

#include <array>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <new>
#include <thread>

#include <fmt/format.h>

#include "core/base/error.h"
#include "parallel/layout/launch.h"

namespace weft {
namespace {

// The only variable that the signal handler writes.
volatile std::sig_atomic_t stop_signals = 0;

void on_stop_signal(int signal) {
  if (signal == SIGINT && stop_signals > 0) {
    std::signal(SIGINT, SIG_DFL);
    std::raise(SIGINT);
  }
  stop_signals = 1;
}

using Handler = void (*)(int);
constexpr std::array kSignals = {SIGINT, SIGTERM, SIGUSR1};
std::array<Handler, kSignals.size()> previous_handlers;

}  // namespace

std::string located(const Station& station, std::string_view what) {
  return fmt::format("rank {}{}{}{}{}{}:\n  {}", station.rank,
                     station.coordinates.empty() ? "" : " (", station.coordinates,
                     station.coordinates.empty() ? "" : ")", station.doing.empty() ? "" : ", ",
                     station.doing, what);
}

void let_first_rank_speak(std::chrono::milliseconds patience) {
  if (this_launch().rank > 0) std::this_thread::sleep_for(patience);
}

int report_failure(std::exception_ptr failure, const Station* station) {
  const auto say = [&](std::string_view what) {
    let_first_rank_speak(kOwnFailure);
    fmt::print(stderr, "weft: {}\n", station ? located(*station, what) : std::string(what));
  };
  try {
    std::rethrow_exception(failure);
  } catch (const ConfigError& e) {
    let_first_rank_speak(kEverybodysMistake);
    fmt::print(stderr, "weft: {}\n", e.what());
    return kExitUser;
  } catch (const std::bad_alloc&) {
    say("out of memory; reduce train.micro_batch, train.sequence or model.hidden");
  } catch (const std::exception& e) {
    say(e.what());
  } catch (...) {
    say("failed for an unknown reason");
  }
  return kExitFailed;
}

StopRequest::StopRequest() {
  stop_signals = 0;
  for (size_t i = 0; i < kSignals.size(); ++i) {
    previous_handlers[i] = std::signal(kSignals[i], on_stop_signal);
  }
}

StopRequest::~StopRequest() {
  for (size_t i = 0; i < kSignals.size(); ++i) std::signal(kSignals[i], previous_handlers[i]);
}

bool StopRequest::requested() const { return stop_signals != 0; }

}  // namespace weft
