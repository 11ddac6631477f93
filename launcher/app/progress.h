#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace weft {

std::string format_count(double count);       // three digits: "412", "19.9k", "1.25M"
std::string format_bytes(int64_t bytes);      // "812M", "3.2G" (powers of 1024)
std::string format_duration(double seconds);  // "42s", "6m02s", "1h05m", "2d03h"

// Numbers of one step. Columns that do not apply to a run (no experts, one rank) are omitted.
struct StepReport {
  int64_t step = 0;  // from 1
  int64_t steps = 0;
  double loss = 0;
  std::optional<double> aux_loss = {};
  double grad_norm = 0;
  double lr = 0;
  double step_ms = 0;
  double tokens_per_s = 0;
  std::optional<double> mfu = {};   // share of the peak, 0 to 1
  std::optional<double> comm = {};  // share of the step spent waiting for other ranks, 0 to 1
  std::optional<double> expert_load = {};  // largest load over mean, worst layer
  int64_t memory = 0;                      // peak bytes
  double eta_seconds = 0;
  bool skipped = false;  // gradients were not finite: nothing was changed
};

// One line of fixed columns:
// step   120/1000  loss 3.8214  aux 0.0102  |g| 0.71  lr 9.9e-05  412 ms  19.9k tok/s  mfu 31% ...
std::string step_line(const StepReport& report);

// Permanent lines and, on a terminal, one live line below them that is rewritten in place. If the
// output is not a terminal there is no live line.
class Progress {
 public:
  explicit Progress(std::FILE* out = stdout);
  Progress(std::FILE* out, bool terminal, int columns);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void line(const std::string& text);
  void live(const std::string& text);  // at most ten times a second; more calls cost nothing
  void clear();                        // removes the live line, before other output

 private:
  std::FILE* out_;
  bool terminal_;
  int columns_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace weft
