#include "launcher/train/fault.h"

#include <charconv>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <optional>
#include <thread>

#include "core/base/error.h"
#include "core/files/system_calls.h"

namespace weft {
namespace {

void pause() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

// Reads a number from the front of `text`, and the colon behind it.
bool take_number(std::string_view& text, int64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  if (text.empty()) return true;
  if (text.front() != ':') return false;
  text.remove_prefix(1);
  return !text.empty();
}

bool is_moment(std::string_view name) {
  for (int m = 0; m < static_cast<int>(SaveMoment::kCount); ++m) {
    if (name == name_of(static_cast<SaveMoment>(m))) return true;
  }
  return false;
}

}  // namespace

struct Fault::CallsThatFail {
  std::optional<sys::Failing> order;
};

Fault::Fault(const std::string& spec) : spec_(spec) {
  if (spec.empty()) return;
  std::string_view rest = spec;
  int64_t rank = 0;
  if (!take_number(rest, rank) || !take_number(rest, step_)) refuse();
  rank_ = static_cast<int>(rank);
  const size_t colon = rest.find(':');
  const std::string_view first = rest.substr(0, colon),
                         second = colon == rest.npos ? "" : rest.substr(colon + 1);
  if (first == "forward" || first == "backward") {
    std::string_view number = second;
    int64_t layer = 0;
    if (!take_number(number, layer) || !number.empty()) refuse();
    where_ = fmt::format("{}:{}", first, layer);
    effect_ = Effect::kThrow;
  } else if (is_moment(first)) {
    where_ = first;
    effect_ = Effect::kKill;
    if (colon != rest.npos) read_effect(second);
  } else {
    effect_ = Effect::kThrow;
    if (!rest.empty()) read_effect(rest);
  }
}

void Fault::read_effect(std::string_view word) {
  constexpr std::string_view kSlowUntil = "slow=", kCall = "call=";
  if (word.starts_with(kSlowUntil) && word.size() > kSlowUntil.size()) {
    effect_ = Effect::kSlow;
    until_ = word.substr(kSlowUntil.size());
  } else if (where_.empty() && word.starts_with(kCall)) {
    effect_ = Effect::kFailCall;
    call_ = word.substr(kCall.size());
    sys::failure_from(call_);  // refuses what cannot be read
    failing_ = std::make_shared<CallsThatFail>();
  } else if (!where_.empty()) {
    if (word != "fails") refuse();
    effect_ = Effect::kThrow;
  } else if (word == "killed") {
    effect_ = Effect::kKill;
  } else if (word == "stopped") {
    effect_ = Effect::kStop;
  } else if (word == "hang") {
    effect_ = Effect::kHang;
  } else if (word == "asked") {
    effect_ = Effect::kUntilAsked;
  } else {
    refuse();
  }
}

void Fault::refuse() const {
  throw ConfigError(
      "--fault {}: not RANK:STEP[:killed|stopped|hang|asked|slow=FILE|call=CALL:ERROR], "
      "RANK:STEP:forward|backward:LAYER or RANK:STEP:MOMENT[:fails|slow=FILE] with a moment of a "
      "save (begun, written, synced, indexed, described, replacing, renamed, published, pruning)",
      spec_);
}

bool Fault::happens(int rank, int64_t step, std::string_view where) const {
  return effect_ != Effect::kNone && rank == rank_ && step == step_ && where == where_;
}

void Fault::strike(const std::function<void()>& progress) const {
  if (effect_ == Effect::kThrow) throw Error("injected: --fault {}", spec_);
  if (effect_ == Effect::kKill) std::raise(SIGKILL);
  if (effect_ == Effect::kStop) std::raise(SIGSTOP);
  while (effect_ == Effect::kHang) pause();
  if (effect_ == Effect::kFailCall) failing_->order.emplace(sys::failure_from(call_));
  // A test that ended early has removed the folder.
  const std::filesystem::path until = until_;
  while (effect_ == Effect::kSlow && !std::filesystem::exists(until) &&
         std::filesystem::exists(until.parent_path())) {
    pause();
    if (progress) progress();
  }
}

void Fault::before_step(int rank, int64_t step, const std::function<bool()>& asked_to_stop) const {
  if (!happens(rank, step, "")) return;
  while (effect_ == Effect::kUntilAsked && !asked_to_stop()) pause();
  strike({});
}

void Fault::in_layer(int rank, int64_t step, std::string_view phase, int64_t layer) const {
  if (effect_ == Effect::kNone) return;
  if (happens(rank, step, fmt::format("{}:{}", phase, layer))) strike({});
}

void Fault::in_save(int rank, int64_t step, SaveMoment moment, const SaveProgress& progress) const {
  if (happens(rank, step, name_of(moment))) strike(progress);
}

}  // namespace weft
