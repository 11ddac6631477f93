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

// Timeline of one rank while recording is on. Texts are literals, or outlive the trace. A span
// costs two reads of the clock, and nothing while recording is off.
class Trace {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  enum class Kind : uint8_t {
    kWork,    // this rank computes: "forward", with layer and micro-batch
    kCall,    // a blocking call to other ranks
    kWait,    // waiting for a call that was started before
    kFlight,  // from the start of such a call to its end; overlapped work is
              // inside
  };
  struct Span {
    Kind kind = Kind::kWork;
    const char* name = "";
    const char* axis = nullptr;                                   // axis of the called ranks
    int64_t step = -1, layer = -1, micro_batch = -1, bytes = -1;  // -1: not given
    Time begin, end;
  };

  bool on() const { return on_; }
  // Called by all ranks right after a barrier: this moment aligns their clocks.
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

// Records its own lifetime as a span.
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

// The events of one rank in the format of Chrome's trace viewer and Perfetto, separated by commas:
// one process per rank, microseconds since its origin.
std::string trace_events(const Trace& trace, int rank, const std::string& title);
// A file of the events of all ranks.
void write_trace(const std::string& path, const std::vector<std::string>& ranks);

}  // namespace weft
