// Where the weights of every mixer start: one row per weight, its values written down from the
// published models, not from the code. A matrix without a row must start normal(0, 0.02); anything
// else needs a row, so that vectors of a new mixer cannot be forgotten.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <variant>

#include "parallel/parameter_values.h"
#include "tests/layers/mixer_cases.h"

namespace weft::test {
namespace {

constexpr int64_t kLayers = 3;
constexpr int64_t kWide = 36;   // of the residual stream
constexpr int64_t kHeads = 36;  // enough to tell distributions of one number per head apart
constexpr int64_t kDk = 8;      // as law_options has them
constexpr uint64_t kSeeds = 2;

// Element n of `count` in layer l.
struct Place {
  int64_t n, count, l;
  double at() const { return static_cast<double>(n); }
  double late() const { return static_cast<double>(l) / static_cast<double>(kLayers - 1); }
  double rest() const { return 1.0 - static_cast<double>(l) / static_cast<double>(kLayers); }
};

using Each = std::function<double(const Place&)>;
struct Spread {  // independent numbers of this distribution function, between low and high
  std::function<double(double)> below;
  double low, high;
};
struct Orthogonal {  // rows, or columns where they are fewer, of length `gain` at right angles
  double gain;
};
using Start = std::variant<Each, Spread, Orthogonal>;

Start all(double value) {
  return Each([=](const Place&) { return value; });
}
Start normal(double deviation) {
  return Spread{[=](double x) { return 0.5 * std::erfc(-x / (deviation * std::sqrt(2.0))); },
                -8 * deviation, 8 * deviation};
}
Start uniform(double low, double high) {
  return Spread{[=](double x) { return (x - low) / (high - low); }, low, high};
}
// Distribution of x = log A, A uniform.
Start log_of_uniform(double low, double high) {
  return Spread{[=](double x) { return (std::exp(x) - low) / (high - low); },
                low > 0 ? std::log(low) : -INFINITY, std::log(high)};
}
// softplus(x) = dt with log dt uniform between log 1e-3 and log 1e-1.
Start steps() {
  const auto share = [](double x) {
    return (std::log(std::log1p(std::exp(x))) - std::log(1e-3)) / (std::log(1e-1) - std::log(1e-3));
  };
  return Spread{share, std::log(std::expm1(1e-3)), std::log(std::expm1(1e-1))};
}
// Xavier's with a gain of 2^{-5/2}.
Start xavier(int64_t in, int64_t out) {
  const double limit = std::pow(2.0, -2.5) * std::sqrt(6.0 / static_cast<double>(in + out));
  return uniform(-limit, limit);
}
Start log_of_count(int64_t states) {
  return Each([=](const Place& p) { return std::log(static_cast<double>(p.n % states + 1)); });
}
Start linspace(double first, double last) {
  return Each([=](const Place& p) {
    return first + (last - first) * static_cast<double>(p.n % kHeads) / (kHeads - 1.0);
  });
}

// RWKV-6: mixing weights of the previous token, 1 - (n / D)^power minus an offset in late layers.
double mix6(double n, double power, double off = 0) { return 1 - std::pow(n / kWide, power) - off; }
Start mu6() {
  return Each([](const Place& p) { return mix6(p.at(), p.rest()); });
}
Start biases6() {  // of r, w, k, v, g
  return Each([](const Place& p) {
    const int64_t which = p.n / kWide;
    const double n = static_cast<double>(p.n % kWide);
    if (which == 0 || which == 4) return mix6(n, p.rest() / 2);
    return which == 3 ? mix6(n, p.rest(), 0.3 * p.late()) : mix6(n, p.rest());
  });
}
// Along the channels of all heads; each memory of a mixture has its own.
Start decay6(int64_t channels) {
  return Each([=](const Place& p) {
    const double x = static_cast<double>(p.n % channels) / static_cast<double>(channels - 1);
    return -6 + 5 * std::pow(x, 0.7 + 1.3 * p.late());
  });
}
Start bonus6() {
  return Each([](const Place& p) {
    const double x = p.at() / static_cast<double>(p.count - 1);
    return p.late() * (1 - x) + 0.1 * (static_cast<double>((p.n + 1) % 3) - 1);
  });
}

// RWKV-7, D channels in heads of width d.
Start mix7(double power) {
  return Each([=](const Place& p) { return 1 - std::pow(p.at() / kWide, power * p.rest()); });
}
double zigzag(int64_t n, int64_t width) {
  const double half = static_cast<double>(width - 1) / 2;
  const double z = (static_cast<double>(n % width) - half) / half;
  return z * std::abs(z);
}
Start decay7(int64_t channels, int64_t width) {
  return Each([=](const Place& p) {
    const double x = static_cast<double>(p.n % channels) / static_cast<double>(channels - 1);
    return -6 + 6 * std::pow(x, 1 + std::pow(p.late(), 0.3)) + 0.5 + 2.5 * zigzag(p.n, width);
  });
}
Start ramp7(int64_t channels, int64_t width, double base, double line, double zz) {
  return Each([=](const Place& p) {
    const double x = static_cast<double>(p.n % channels) / static_cast<double>(channels - 1);
    return base + line * (x - 0.5) + zz * zigzag(p.n, width);
  });
}
constexpr int64_t kD7 = 9;  // width of a head of the mixer: 36 / 4

// The first matching row applies. `mixer`: "*" is any; `when`: text in the options.
struct Row {
  std::string mixer, when, weight;
  Start start;
};

const std::vector<Row>& rows() {
  constexpr int64_t kKeys = kHeads * kDk, kKvKeys = kKeys / 2;
  const double residual = 0.02 / std::sqrt(2.0 * kLayers);
  static const std::vector<Row> table = {
      {"gla", "", "gk_proj.0.weight", xavier(kWide, 16)},
      {"gla", "", "gk_proj.1.weight", xavier(16, kKvKeys)},
      {"gla", "", "gk_proj.1.bias", all(0)},
      {"gated_deltanet", "", "A_log", log_of_uniform(0, 16)},
      {"gated_deltanet", "", "dt_bias", steps()},
      {"kda", "", "A_log", log_of_uniform(1, 16)},
      {"kda", "", "dt_bias", steps()},
      {"rebased", "", "gamma", all(1)},
      {"rebased", "", "beta", all(0)},
      {"gfw", "", "a_proj.bias", all(0)},
      {"gfw", "", "c_proj.bias", all(0)},
      {"gateloop", "", "a_proj.bias", all(0)},
      {"gateloop", "", "p_proj.bias", all(0)},
      {"ttt", "", "eta_proj.bias", all(0)},
      {"ttt", "inner_norm", "ln.weight", all(1)},
      {"ttt", "inner_norm", "ln.bias", all(0)},
      {"ttt", "inner_norm", "M0", normal(0.02)},
      {"ttt", "inner_norm", "n0", all(0)},
      {"titans", "", "theta_proj.bias", all(0)},
      {"titans", "", "alpha_proj.bias", all(-4)},
      {"titans", "", "eta_proj.bias", all(0)},
      {"s4", "", "log_dt", uniform(std::log(1e-3), std::log(1e-1))},
      {"s4", "", "A_log", log_of_count(5)},
      {"s4", "", "B", all(1)},
      {"s4", "", "C", normal(1 / std::sqrt(5.0))},
      {"s4", "", "D", all(1)},
      {"mamba", "", "A_log", log_of_count(5)},
      {"mamba", "", "D", all(1)},
      {"mamba", "", "dt_proj.weight", uniform(-1 / std::sqrt(3.0), 1 / std::sqrt(3.0))},
      {"mamba", "", "dt_proj.bias", steps()},
      {"mamba", "select_norm", "dt_norm.weight", all(1)},
      {"mamba", "select_norm", "b_norm.weight", all(1)},
      {"mamba", "select_norm", "c_norm.weight", all(1)},
      {"mamba2", "", "A_log", log_of_uniform(1, 16)},
      {"mamba2", "", "dt_bias", steps()},
      {"mamba2", "", "D", all(1)},
      {"mamba2", "", "norm.weight", all(1)},
      {"hgrn2", "", "g_norm.weight", all(1)},
      {"hgrn2", "lower_bound = 0.3", "lower_bound", all(0.3)},
      {"hgrn2", "", "hgrn2.lower_bounds", all(0)},
      {"gsa", "", "g_norm.weight", all(1)},
      {"rwkv6", "", "x_proj.0.mu", mu6()},
      {"rwkv6", "", "x_proj.0.weight", all(0)},
      {"rwkv6", "", "x_proj.2.weight", uniform(-0.01, 0.01)},
      {"rwkv6", "", "x_bias", biases6()},
      {"rwkv6", "", "w_lora.0.weight", all(0)},
      {"rwkv6", "", "w_lora.2.weight", uniform(-0.01, 0.01)},
      {"rwkv6", "", "w_lora.2.bias", decay6(kKvKeys)},
      {"rwkv6", "", "bonus", bonus6()},
      {"rwkv6", "", "g_norm.weight", all(1)},
      {"rwkv6", "", "g_norm.bias", all(0)},
      {"rwkv7", "", "x_r", mix7(0.2)},
      {"rwkv7", "", "x_w", mix7(0.9)},
      {"rwkv7", "", "x_k", mix7(0.7)},
      {"rwkv7", "", "x_v", mix7(0.7)},
      {"rwkv7", "", "x_a", mix7(0.9)},
      {"rwkv7", "", "x_g", mix7(0.2)},
      {"rwkv7", "", "w0", decay7(kWide, kD7)},
      {"rwkv7", "", "a0", ramp7(kWide, kD7, -0.19, 0.4, 0.3)},
      {"rwkv7", "", "v0", ramp7(kWide, kD7, 0.73, -0.4, 0)},
      {"rwkv7", "", "k_k", ramp7(kWide, kD7, 0.71, -0.1, 0)},
      {"rwkv7", "", "k_a", all(1.02)},
      {"rwkv7", "", "r_k", all(-0.04)},
      {"rwkv7", "", "w1", all(0)},
      {"rwkv7", "", "a1", all(0)},
      {"rwkv7", "", "v1", all(0)},
      {"rwkv7", "", "g1", all(0)},
      {"rwkv7", "", "w2", Orthogonal{0.1}},
      {"rwkv7", "", "a2", Orthogonal{0.1}},
      {"rwkv7", "", "v2", Orthogonal{0.1}},
      {"rwkv7", "", "g2", Orthogonal{0.1}},
      {"rwkv7", "", "r_proj.weight", Orthogonal{1}},
      {"rwkv7", "", "v_proj.weight", Orthogonal{1}},
      {"rwkv7", "", "k_proj.weight", Orthogonal{0.1}},
      {"rwkv7", "", "o_proj.weight", all(0)},
      {"rwkv7", "", "g_norm.weight",
       Each([](const Place& p) { return std::pow((p.l + 1.0) / kLayers, 0.7); })},
      {"rwkv7", "", "g_norm.bias", all(0)},
      {"mlstm", "", "igate.weight", all(0)},
      {"mlstm", "", "igate.bias", normal(0.1)},
      {"mlstm", "", "fgate.weight", all(0)},
      {"mlstm", "", "fgate.bias", linspace(3, 6)},
      {"mlstm", "", "norm.weight", all(1)},
      {"fox", "", "fgate_proj.bias", all(0)},
      {"fox", "pro", "q_norm.weight", all(1)},
      {"fox", "pro", "k_norm.weight", all(1)},
      {"fox", "pro", "out_norm.weight", all(1)},
      {"softmax", "qk_norm_offset", "q_norm.weight", all(0)},  // counted from one
      {"softmax", "qk_norm_offset", "k_norm.weight", all(0)},
      {"softmax", "qk_norm", "q_norm.weight", all(1)},
      {"softmax", "qk_norm", "k_norm.weight", all(1)},
      {"softmax", "bias", "q_proj.bias", all(0)},
      {"softmax", "bias", "k_proj.bias", all(0)},
      {"softmax", "bias", "v_proj.bias", all(0)},
      {"liger", "bias", "q_proj.bias", all(0)},
      {"liger", "bias", "k_proj.bias", all(0)},
      {"liger", "bias", "v_proj.bias", all(0)},
      {"mla", "", "kv_a_norm.weight", all(1)},
      {"mla", "q_rank", "q_a_norm.weight", all(1)},
      // Memories start as the mixers of their recurrences; routed ones have one more dimension.
      {"mom", "'gla'\ngate_rank = 5", "gk_proj.0.weight", xavier(kWide, 5)},
      {"mom", "'gla'\ngate_rank = 5", "shared_gk.0.weight", xavier(kWide, 5)},
      {"mom", "'gla'\ngate_rank = 5", "gk_proj.1.weight", xavier(5, kKeys)},
      {"mom", "'gla'\ngate_rank = 5", "shared_gk.1.weight", xavier(5, kKeys)},
      {"mom", "'gla'", "gk_proj.0.weight", xavier(kWide, 16)},
      {"mom", "'gla'", "shared_gk.0.weight", xavier(kWide, 16)},
      {"mom", "'gla'", "gk_proj.1.weight", xavier(16, kKeys)},
      {"mom", "'gla'", "shared_gk.1.weight", xavier(16, kKeys)},
      {"mom", "'gla'", "gk_proj.1.bias", all(0)},
      {"mom", "'gla'", "shared_gk.1.bias", all(0)},
      {"mom", "'gated_deltanet'", "A_log", log_of_uniform(0, 16)},
      {"mom", "'kda'", "A_log", log_of_uniform(1, 16)},
      {"mom", "'mamba2'", "A_log", log_of_uniform(1, 16)},
      {"mom", "", "dt_bias", steps()},
      {"mom", "'mamba2'", "D", all(1)},
      {"mom", "'rebased'", "gamma", all(1)},
      {"mom", "'rebased'", "beta", all(0)},
      {"mom", "'gfw'", "a_proj.bias", all(0)},
      {"mom", "'gfw'", "shared_a.bias", all(0)},
      {"mom", "'gfw'", "c_proj.bias", all(0)},
      {"mom", "'gfw'", "shared_c.bias", all(0)},
      {"mom", "'gateloop'", "a_proj.bias", all(0)},
      {"mom", "'gateloop'", "shared_a.bias", all(0)},
      {"mom", "'gateloop'", "p_proj.bias", all(0)},
      {"mom", "'gateloop'", "shared_p.bias", all(0)},
      {"mom", "'ttt'", "eta_proj.bias", all(0)},
      {"mom", "'ttt'", "shared_eta.bias", all(0)},
      {"mom", "'titans'", "theta_proj.bias", all(0)},
      {"mom", "'titans'", "shared_theta.bias", all(0)},
      {"mom", "'titans'", "alpha_proj.bias", all(-4)},
      {"mom", "'titans'", "shared_alpha.bias", all(-4)},
      {"mom", "'titans'", "eta_proj.bias", all(0)},
      {"mom", "'titans'", "shared_eta.bias", all(0)},
      {"mom", "'mlstm'", "i_proj.weight", all(0)},
      {"mom", "'mlstm'", "shared_i.weight", all(0)},
      {"mom", "'mlstm'", "i_proj.bias", normal(0.1)},
      {"mom", "'mlstm'", "shared_i.bias", normal(0.1)},
      {"mom", "'mlstm'", "f_proj.weight", all(0)},
      {"mom", "'mlstm'", "shared_f.weight", all(0)},
      {"mom", "'mlstm'", "f_proj.bias", linspace(3, 6)},
      {"mom", "'mlstm'", "shared_f.bias", linspace(3, 6)},
      {"mom", "'rwkv6'", "w_proj.0.weight", all(0)},
      {"mom", "'rwkv6'", "shared_w.0.weight", all(0)},
      {"mom", "'rwkv6'", "w_proj.1.weight", uniform(-0.01, 0.01)},
      {"mom", "'rwkv6'", "shared_w.1.weight", uniform(-0.01, 0.01)},
      {"mom", "'rwkv6'", "w_proj.1.bias", decay6(kKeys)},
      {"mom", "'rwkv6'", "shared_w.1.bias", decay6(kKeys)},
      {"mom", "'rwkv6'", "bonus", bonus6()},
      {"mom", "'rwkv7'", "w_proj.0.weight", all(0)},
      {"mom", "'rwkv7'", "shared_w.0.weight", all(0)},
      {"mom", "'rwkv7'", "a_proj.0.weight", all(0)},
      {"mom", "'rwkv7'", "shared_a.0.weight", all(0)},
      {"mom", "'rwkv7'", "w_proj.1.weight", Orthogonal{0.1}},
      {"mom", "'rwkv7'", "shared_w.1.weight", Orthogonal{0.1}},
      {"mom", "'rwkv7'", "a_proj.1.weight", Orthogonal{0.1}},
      {"mom", "'rwkv7'", "shared_a.1.weight", Orthogonal{0.1}},
      {"mom", "'rwkv7'", "w_proj.1.bias", decay7(kKeys, kDk)},
      {"mom", "'rwkv7'", "shared_w.1.bias", decay7(kKeys, kDk)},
      {"mom", "'rwkv7'", "a_proj.1.bias", ramp7(kKeys, kDk, -0.19, 0.4, 0.3)},
      {"mom", "'rwkv7'", "shared_a.1.bias", ramp7(kKeys, kDk, -0.19, 0.4, 0.3)},
      {"mom", "'rwkv7'", "k_k", ramp7(kKeys, kDk, 0.71, -0.1, 0)},
      {"mom", "'rwkv7'", "k_a", all(1.02)},
      // Common parts: projections into the residual stream are scaled by their number; a
      // convolution of four taps starts as in PyTorch.
      {"*", "", "o_proj.weight", normal(residual)},
      {"*", "", "out_proj.weight", normal(residual)},
      {"*", "", "o_norm.weight", all(1)},
      {"*", "", "q_conv1d.weight", uniform(-0.5, 0.5)},
      {"*", "", "k_conv1d.weight", uniform(-0.5, 0.5)},
      {"*", "", "v_conv1d.weight", uniform(-0.5, 0.5)},
      {"*", "", "conv1d.weight", uniform(-0.5, 0.5)},
      {"*", "", "conv1d.bias", uniform(-0.5, 0.5)}};
  return table;
}

// Kolmogorov's distance between the numbers and the distribution. For n numbers that follow it,
// sqrt(n) times the distance is above 2.5 once in 130,000 times, whatever the distribution. It
// detects shifts better than wrong widths, so the mean of |2 F(x) - 1|, which is 1/2 with deviation
// sqrt(1/12n), is tested too. A few thousand numbers suffice.
constexpr double kFar = 2.5, kDeviations = 5;
constexpr size_t kEnough = 4096;

testing::AssertionResult follows(const Spread& spread, const std::vector<double>& all) {
  std::vector<double> x;
  const size_t every = all.size() / kEnough + 1;
  for (size_t i = 0; i < all.size(); i += every) x.push_back(all[i]);
  std::sort(x.begin(), x.end());
  if (x.front() < spread.low - 1e-6 || x.back() > spread.high + 1e-6) {
    return testing::AssertionFailure() << "numbers from " << x.front() << " to " << x.back()
                                       << " leave " << spread.low << " to " << spread.high;
  }
  const auto n = static_cast<double>(x.size());
  double distance = 0, width = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double below = spread.below(x[i]);
    width += std::abs(2 * below - 1) / n;
    distance = std::max(
        {distance, below - static_cast<double>(i) / n, static_cast<double>(i + 1) / n - below});
  }
  if (std::abs(width - 0.5) * std::sqrt(12 * n) > kDeviations) {
    return testing::AssertionFailure() << n << " numbers lie " << width << " from the median";
  }
  if (distance * std::sqrt(n) <= kFar) return testing::AssertionSuccess();
  return testing::AssertionFailure() << n << " numbers are " << distance << " from the expected, "
                                     << kFar / std::sqrt(n) << " allowed";
}

// x: one matrix after the other.
testing::AssertionResult at_right_angles(double gain, const std::vector<double>& x,
                                         const Shape& shape) {
  const int64_t rows = shape[shape.dims() - 2], columns = shape[shape.dims() - 1];
  const int64_t lines = std::min(rows, columns), length = std::max(rows, columns);
  const int64_t along = rows <= columns ? 1 : columns, between = rows <= columns ? columns : 1;
  for (size_t begin = 0; begin < x.size(); begin += static_cast<size_t>(rows * columns)) {
    for (int64_t a = 0; a < lines; ++a) {
      for (int64_t b = 0; b <= a; ++b) {
        double sum = 0;
        for (int64_t i = 0; i < length; ++i) {
          sum += x[begin + static_cast<size_t>(a * between + i * along)] *
                 x[begin + static_cast<size_t>(b * between + i * along)];
        }
        const double want = a == b ? gain * gain : 0.0;
        if (std::abs(sum - want) > 1e-5 * gain * gain) {
          return testing::AssertionFailure()
                 << a << " . " << b << " is " << sum << ", not " << want;
        }
      }
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult equals(const Each& each, const std::vector<double>& x, int64_t layer) {
  for (size_t i = 0; i < x.size(); ++i) {
    const double want = each({static_cast<int64_t>(i), static_cast<int64_t>(x.size()), layer});
    if (!(std::abs(x[i] - want) <= 1e-6 * std::max(1.0, std::abs(want)))) {
      return testing::AssertionFailure() << "element " << i << " is " << x[i] << ", not " << want;
    }
  }
  return testing::AssertionSuccess();
}

// One weight in every layer and from every seed.
struct Weight {
  Shape shape;
  std::vector<std::pair<int64_t, std::vector<double>>> values;  // with the layer

  std::vector<double> together() const {
    std::vector<double> all;
    for (const auto& [layer, x] : values) all.insert(all.end(), x.begin(), x.end());
    return all;
  }
};

// A plain mixture has a default.
std::string spelled_out(const std::string& law) {
  return law == "mom" ? "mom,inner = 'gated_deltanet'" : law;
}

// The weights of one layer.
struct Layer {
  Layer(const std::string& law, int64_t index) : scope(fmt::format("{}.", index)) {
    const OptionTable options = law_options(law, name_in(law) == "rwkv7" ? 4 : kHeads);
    const Build build{
        .store = store, .scope = scope, .hidden = kWide, .layer = index, .layers = kLayers};
    make_mixer(name_in(law), MixerBuild{build, options});
  }
  std::string name_of(const Parameter& p) const {
    return p.spec.name.starts_with(scope) ? p.spec.name.substr(scope.size()) : p.spec.name;
  }
  std::string scope;
  ParameterStore store;
};

std::map<std::string, Weight> weights_of(Rig& rig, const std::string& law) {
  std::map<std::string, Weight> weights;
  for (int64_t index = 0; index < kLayers; ++index) {
    Layer layer(law, index);
    layer.store.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kNone);
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      initialize(rig.exec, layer.store, seed);
      for (const Parameter& p : layer.store.all()) {
        Weight& w = weights[layer.name_of(p)];
        w.shape = p.shape;
        w.values.emplace_back(index, numbers(p.master));
      }
    }
  }
  return weights;
}

// The row of a weight, or none.
const Row* find(const std::string& law, const std::string& weight) {
  for (const Row& row : rows()) {
    if (row.weight != weight || (row.mixer != "*" && row.mixer != name_in(law))) continue;
    if (spelled_out(law).find(row.when) != std::string::npos) return &row;
  }
  return nullptr;
}

void expect_start(const Start& start, const Weight& w) {
  if (const auto* spread = std::get_if<Spread>(&start)) {
    EXPECT_TRUE(follows(*spread, w.together()));
    return;
  }
  for (const auto& [layer, x] : w.values) {
    if (const auto* orthogonal = std::get_if<Orthogonal>(&start)) {
      EXPECT_TRUE(at_right_angles(orthogonal->gain, x, w.shape)) << "layer " << layer;
    } else {
      EXPECT_TRUE(equals(std::get<Each>(start), x, layer)) << "layer " << layer;
    }
  }
}

class InitialValues : public testing::TestWithParam<std::string> {};

TEST_P(InitialValues, AreThePublishedOnes) {
  Rig rig;
  for (const auto& [name, weight] : weights_of(rig, GetParam())) {
    SCOPED_TRACE(name);
    const Row* row = find(GetParam(), name);
    EXPECT_TRUE(row != nullptr || (weight.shape.dims() >= 2 && name.ends_with(".weight")))
        << "has no row in the table of starts";
    expect_start(row != nullptr ? row->start : normal(0.02), weight);
  }
}

INSTANTIATE_TEST_SUITE_P(All, InitialValues, testing::ValuesIn(mixers_and_variants()),
                         name_of_case);

TEST(TableOfStarts, HasNoRowsWithoutAWeight) {
  std::set<const Row*> used;
  for (const std::string& law : mixers_and_variants()) {
    const Layer layer(law, 1);
    for (const Parameter& p : layer.store.all()) used.insert(find(law, layer.name_of(p)));
  }
  for (const Row& row : rows()) {
    EXPECT_TRUE(used.contains(&row)) << row.mixer << " has no weight " << row.weight;
  }
}

// Depths are fractions of the last layer's; a model of one layer has none.
TEST(Starts, AreNumbersInAModelOfOneLayer) {
  Rig rig;
  for (const MixerInfo& mixer : mixer_list()) {
    ParameterStore store;
    const OptionTable options = law_options(mixer.name);
    const auto made =
        make_mixer(mixer.name, MixerBuild{{.store = store, .scope = "", .hidden = kWide}, options});
    store.allocate(rig.pool, DType::kF32, ParameterStore::Gradients::kNone);
    initialize(rig.exec, store, 1);
    for (const Parameter& p : store.all()) {
      for (const double x : numbers(p.master)) ASSERT_TRUE(std::isfinite(x)) << p.spec.name;
    }
  }
}

}  // namespace
}  // namespace weft::test
