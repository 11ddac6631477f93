#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft {

// Steps first to last of a run, counted from 1. None: {0, -1}.
struct StepRange {
  int64_t first = 0, last = -1;
  bool empty() const { return last < first; }
  bool contains(int64_t step) const { return step >= first && step <= last; }
};
// "3", "3-5" or ""; nullopt for anything else.
std::optional<StepRange> parse_steps(const std::string& text);

// What one rank did and when, while asked to note it. Texts are literals, or outlive the trace.
// Noting a span costs two looks at the clock and no more; switched off, not even those.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  enum class Kind : uint8_t {
    kWork,    // of this rank: "forward", with what it belongs to
    kCall,    // to other ranks, as often as these are counted
    kWait,    // for a call that was started before
    kFlight,  // from the start of such a call until it was over; what is computed meanwhile is
              // inside
  };
  struct Span {
    Kind kind = Kind::kWork;
    const char* name = "";
    const char* axis = nullptr;                                   // of the ranks that are called
    int64_t step = -1, layer = -1, micro_batch = -1, bytes = -1;  // -1: not said
    Time begin, end;
  };

  bool on() const { return on_; }
  // All ranks at once, behind a barrier: their clocks are compared by this moment.
  void start() {
    on_ = true;
    origin_ = Clock::now();
  }
  void stop() { on_ = false; }
  void add(const Span& span) {
    if (on_) spans_.push_back(span);
  }
  void clear() { spans_.clear(); }

  const std::vector<Span>& spans() const { return spans_; }
  Time origin() const { return origin_; }

 private:
  bool on_ = false;
  Time origin_;
  std::vector<Span> spans_;
};

// Notes its own life.
class TraceScope {
 public:
  TraceScope(Trace& trace, const char* name, int64_t layer = -1, int64_t micro_batch = -1)
      : trace_(trace.on() ? &trace : nullptr) {
    if (trace_ == nullptr) return;
    span_.name = name;
    span_.layer = layer;
    span_.micro_batch = micro_batch;
    span_.begin = Trace::Clock::now();
  }
  ~TraceScope() {
    if (trace_ == nullptr) return;
    span_.end = Trace::Clock::now();
    trace_->add(span_);
  }
  void of_step(int64_t step) { span_.step = step; }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Trace* trace_;
  Trace::Span span_;
};

// The events of one rank as Chrome's trace viewer and Perfetto read them, separated by commas: a
// process per rank, microseconds from its origin.
std::string trace_events(const Trace& trace, int rank, const std::string& title);
// A file of the events of all ranks.
void write_trace(const std::string& path, const std::vector<std::string>& ranks);

}  // namespace weft
