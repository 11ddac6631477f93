#include "launcher/train/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace weft {

double learning_rate(const OptimizerConfig& c, int64_t step, int64_t steps) {
  const auto now = static_cast<double>(step + 1), end = static_cast<double>(steps);
  const auto warmup = static_cast<double>(c.warmup);
  if (now < warmup) return c.lr * now / warmup;
  if (c.schedule == "constant") return c.lr;
  const double start = c.schedule == "wsd" ? std::max(warmup, end * (1.0 - c.decay)) : warmup;
  const double part = end > start ? std::clamp((now - start) / (end - start), 0.0, 1.0) : 1.0;
  const double left =
      c.schedule == "wsd" ? 1.0 - part : 0.5 * (1.0 + std::cos(std::numbers::pi * part));
  return c.min_lr + (c.lr - c.min_lr) * left;
}

}  // namespace weft
