#pragma once

#include <functional>
#include <string>

#include "tests/kernels/numeric.h"
#include "tests/support/tape.h"

// Scans as the laws of scan_laws_test.cc see them: a descriptor says how a scan's inputs are made
// and what one token does to the state; everything else follows from the scan's list of fields.
namespace weft::test {

struct ScanCase {
  std::vector<int32_t> documents;
  int64_t heads = 1, shared = 1;  // shared: heads of what a group of heads has in common
  int64_t key = 8, value = 8;
  bool states = true;  // entering and leaving states with cotangents
  DType dtype = DType::kF32;
  double forget = 0.1;               // size of log decays
  double beta = 0.5, spread = 0.25;  // strengths of the delta rule are within beta +- spread
  bool repeat = false;               // all tokens have the keys of the first one

  int64_t tokens() const { return documents.back(); }
  int64_t count() const { return static_cast<int64_t>(documents.size()) - 1; }
};

enum class Unit : uint8_t { kKey, kValue, kOne, kBoth };  // numbers of one head
inline int64_t size_of(Unit unit, const ScanCase& c) {
  switch (unit) {
    case Unit::kKey: return c.key;
    case Unit::kValue: return c.value;
    case Unit::kOne: return 1;
    case Unit::kBoth: return c.key * c.value;
  }
  return 0;
}

// How an input is made.
struct Values {
  Unit unit = Unit::kKey;
  // From normal numbers and, where it is made out of another input, the number of that one.
  std::function<double(double normal, double other, const ScanCase&)> make = {};
  const char* other = nullptr;
  bool unit_length = false;  // rows of every head have length one
  bool per_scan = false;     // [heads], of a field that may also be given for every token
  bool always_f32 = false;   // in this form of the scan
  // Gradients that are differences of sums of size one or more have their roundings, however little
  // is left.
  bool beside_one = false;
  // Gradients that are sums of terms of order one over all tokens, and are judged by these.
  bool may_cancel = false;
  const char* drawn_as = nullptr;  // name of the random numbers; its own where there is none
};

using Reals = std::vector<Real>;
// One head of one token, or of one document.
struct ScanStep {
  const ScanCase& c;
  double scale;
  int64_t position;        // of the token in its document
  std::vector<Reals>& in;  // fields in the order of the scan's list; empty: not given
  std::vector<Reals>& state;
  const Reals& operator[](size_t field) const { return in[field]; }
};

// Inputs and results of a run, in the order of the fields.
struct ScanTensors {
  std::vector<Tensor> in, gradient;  // undefined: not given
  std::vector<Tensor> entering, leaving, d_leaving, d_entering;
  Tensor out, d_out;
};
// Their views, possibly of columns of wider matrices.
struct ScanViews {
  std::vector<ConstView> in, entering, d_leaving;
  std::vector<View> gradient, leaving, d_entering;
  View out;
  ConstView d_out;
};

enum class Keep : uint8_t { kNothing, kStates };

class ScanDescriptor {
 public:
  struct Field {
    std::string name;
    Values values;
    bool given = false, parameter = false, gradient = false;
    int64_t heads = 0;  // in a case
    DType dtype = DType::kF32;
  };

  virtual ~ScanDescriptor() = default;
  virtual std::vector<Field> fields(const ScanCase& c) const = 0;
  virtual std::vector<std::vector<int64_t>> states(const ScanCase& c) const = 0;  // of one head
  virtual Reals step(const ScanStep& s) const = 0;
  virtual void forward(Exec& exec, const ScanCase& c, const ScanViews& v, View kept) const = 0;
  virtual void backward(Exec& exec, const ScanCase& c, const ScanViews& v,
                        ConstView kept) const = 0;
  virtual int64_t kept(Exec& exec, const ScanCase& c, const ScanViews& v) const = 0;
  virtual double scale(const ScanCase& c) const = 0;
  virtual int64_t position(const ScanCase& c, int64_t document) const = 0;  // of its first token

  std::string name;
  bool shares = false;         // groups of heads can share
  double strongest_decay = 0;  // up to which results are exact; 0: ScanCase::forget has no effect
  double weakest_decay = 0;    // below it rounding errors of states grow with every token
  bool cuts = false;           // long documents are cut into pieces
  std::vector<std::string> exact_when_repeated = {"out", "d_k", "d_beta", "d_log_decay"};
  bool keeps = true;         // backward can take states from forward
  bool states_alone = true;  // forward without outputs
  bool square = false;       // key = value
  bool one_head = false;
  bool strength = false;   // ScanCase::beta and spread have an effect
  bool repeats = true;     // stays bounded when all tokens are the same
  int32_t longest = 3000;  // documents of the laws are cut to this length
  bool forgets = true;     // otherwise roundings of bf16 at narrow widths add up beyond 1e-2
  int32_t tokens_at_widths = 131;
  int64_t key_at_lengths = 16;
  int64_t wide_value = 24;  // more than one task takes, where tasks are of some values
  std::vector<std::pair<int64_t, int64_t>> widths = {  // key, value
      {1, 3},    {1, 24},  {8, 8},   {8, 80},   {8, 128},  {5, 3},  {16, 24},
      {16, 8},   {24, 64}, {24, 80}, {24, 3},   {64, 8},   {64, 3}, {64, 24},
      {64, 128}, {64, 80}, {128, 3}, {128, 24}, {128, 128}};
  // Largest error of results in f32, relative to the largest number; gradients of scans whose
  // tokens depend on states in more than one way are less exact.
  std::function<double(const ScanCase&, Isa)> bound = [](const ScanCase& c, Isa isa) {
    return chunk_tolerance(c.dtype, isa);
  };
  double gradients = 1;

  // The case as this scan can run it.
  ScanCase fit(ScanCase c) const {
    if (square) c.value = c.key;
    if (one_head) c.heads = 1;
    if (!shares) c.shared = c.heads;
    int32_t at = 0, before = 0;
    for (int32_t& d : c.documents) {
      const int32_t tokens = std::min(d - before, longest);
      before = d;
      d = at += tokens;
    }
    return c;
  }
};

inline void store(const Tensor& t, int64_t i, double x) {
  if (t.dtype() == DType::kF32)
    host<float>(t)[i] = static_cast<float>(x);
  else
    host<bf16>(t)[i] = to_bf16(static_cast<float>(x));
}

// Tensors of a case.
struct ScanProblem {
  ScanProblem(Rig& rig, const ScanDescriptor& scan, const ScanCase& wanted)
      : scan(scan), c(scan.fit(wanted)), fields(scan.fields(c)) {
    for (const ScanDescriptor::Field& f : fields) add(rig, f);
    for (const std::vector<int64_t>& of_head : scan.states(c)) add_state(rig, of_head);
    const Shape rows{c.tokens(), c.heads * c.value};
    t.out = rig.exec.empty(rows, c.dtype), t.d_out = rig.normal("d_out", rows, 1, c.dtype);
  }

  ScanViews views() const {
    ScanViews v;
    const auto seen = [](const Tensor& x) { return x.defined() ? ConstView(x) : ConstView{}; };
    const auto wanted = [](const Tensor& x) { return x.defined() ? x.view() : View{}; };
    for (const Tensor& x : t.in) v.in.push_back(seen(x));
    for (const Tensor& x : t.gradient) v.gradient.push_back(wanted(x));
    for (const Tensor& x : t.entering) v.entering.push_back(seen(x));
    for (const Tensor& x : t.d_leaving) v.d_leaving.push_back(seen(x));
    for (const Tensor& x : t.leaving) v.leaving.push_back(wanted(x));
    for (const Tensor& x : t.d_entering) v.d_entering.push_back(wanted(x));
    v.out = t.out, v.d_out = t.d_out;
    return v;
  }
  void run(Exec& exec, Keep keep = Keep::kNothing) const { run(exec, views(), keep); }
  void run(Exec& exec, const ScanViews& v, Keep keep = Keep::kNothing) const {
    const Tensor kept = keep == Keep::kStates ? exec.empty({scan.kept(exec, c, v)}) : Tensor{};
    scan.forward(exec, c, v, kept.defined() ? kept.view() : View{});
    scan.backward(exec, c, v, kept.defined() ? ConstView(kept) : ConstView{});
  }
  // Names and tensors of all that a run gives.
  std::vector<std::pair<std::string, Tensor>> results() const {
    std::vector<std::pair<std::string, Tensor>> all{{"out", t.out}};
    for (size_t i = 0; i < fields.size(); ++i) {
      if (t.gradient[i].defined()) all.emplace_back("d_" + fields[i].name, t.gradient[i]);
    }
    for (size_t i = 0; i < t.leaving.size(); ++i) {
      if (!c.states) break;
      all.emplace_back(fmt::format("leaving state {}", i), t.leaving[i]);
      all.emplace_back(fmt::format("gradient of entering state {}", i), t.d_entering[i]);
    }
    return all;
  }

  const ScanDescriptor& scan;
  ScanCase c;
  std::vector<ScanDescriptor::Field> fields;
  ScanTensors t;

 private:
  void add(Rig& rig, const ScanDescriptor::Field& f) {
    t.in.emplace_back(), t.gradient.emplace_back();
    if (!f.given) return;
    const int64_t unit = size_of(f.values.unit, c), width = f.heads * unit;
    const bool rows = !f.parameter && !f.values.per_scan;
    const Tensor x = rig.normal(f.values.drawn_as == nullptr ? f.name : f.values.drawn_as,
                                rows ? Shape{c.tokens(), width} : Shape{width}, 1, f.dtype);
    Numbers numbers = test::numbers(x), other(numbers.size());
    for (size_t i = 0; f.values.other != nullptr && i < fields.size(); ++i) {
      if (fields[i].name == f.values.other) other = test::numbers(t.in[i]);
    }
    for (size_t i = 0; f.values.make && i < numbers.size(); ++i) {
      numbers[i] = f.values.make(numbers[i], other[i], c);
    }
    if (f.values.unit_length) make_unit(numbers, static_cast<size_t>(unit));
    const bool key = f.values.unit == Unit::kKey && (f.name != "q" && f.name != "log_decay");
    const bool same = c.repeat && rows && key;
    for (size_t i = 0; i < numbers.size(); ++i) {
      store(x, static_cast<int64_t>(i), numbers[same ? i % static_cast<size_t>(width) : i]);
    }
    t.in.back() = x;
    if (f.gradient) t.gradient.back() = rig.exec.zeros(x.shape(), f.dtype);
  }
  static void make_unit(Numbers& x, size_t width) {
    for (size_t row = 0; row < x.size(); row += width) {
      double sum = 0;
      for (size_t a = 0; a < width; ++a) sum += x[row + a] * x[row + a];
      for (size_t a = 0; a < width; ++a) x[row + a] /= std::sqrt(sum);
    }
  }
  void add_state(Rig& rig, const std::vector<int64_t>& of_head) {
    Shape shape{c.count(), c.heads};
    for (const int64_t extent : of_head) shape.append(extent);
    const std::string index = t.entering.empty() ? "" : std::to_string(t.entering.size());
    const bool given = c.states;
    t.entering.push_back(given ? rig.normal("initial" + index, shape) : Tensor{});
    t.d_leaving.push_back(given ? rig.normal("d_final" + index, shape) : Tensor{});
    t.leaving.push_back(given ? rig.exec.empty(shape) : Tensor{});
    t.d_entering.push_back(given ? rig.exec.empty(shape) : Tensor{});
  }
};

// The recurrence token by token in double, and its derivatives, step by step backwards.
class ScanReference {
 public:
  explicit ScanReference(const ScanProblem& p) : p_(p), c_(p.c), d_out_(numbers(p.t.d_out)) {
    const auto take = [](const Tensor& t, size_t size) {
      return t.defined() ? numbers(t) : Numbers(size);
    };
    for (const Tensor& t : p.t.in)
      in_.push_back(take(t, 0)), gradient.emplace_back(in_.back().size());
    const auto shapes = p.scan.states(c_);
    for (size_t i = 0; i < shapes.size(); ++i) {
      size_t size = 1;
      for (const int64_t extent : shapes[i]) size *= static_cast<size_t>(extent);
      sizes_.push_back(size);
      leaving.push_back(take(p.t.entering[i], size * heads()));
      d_entering.push_back(take(p.t.d_leaving[i], size * heads()));
    }
    out.resize(d_out_.size());
    for (int64_t d = 0; d < c_.count(); ++d) {
      for (int64_t h = 0; h < c_.heads; ++h) run(d, h);
    }
  }

  // In the order of ScanProblem::results().
  std::vector<Numbers> results() const {
    std::vector<Numbers> all{out};
    for (size_t i = 0; i < gradient.size(); ++i) {
      if (p_.t.gradient[i].defined()) all.push_back(gradient[i]);
    }
    for (size_t i = 0; c_.states && i < leaving.size(); ++i) {
      all.push_back(leaving[i]), all.push_back(d_entering[i]);
    }
    return all;
  }
  double loss() const {
    double sum = dot(out, d_out_);
    for (size_t i = 0; c_.states && i < leaving.size(); ++i) {
      sum += dot(leaving[i], numbers(p_.t.d_leaving[i]));
    }
    return sum;
  }

  Numbers out;
  std::vector<Numbers> gradient, leaving, d_entering;

 private:
  using States = std::vector<Numbers>;
  size_t heads() const { return static_cast<size_t>(c_.count() * c_.heads); }

  // Where the numbers of field i for a token and head begin, and how many there are.
  std::pair<size_t, size_t> place(size_t i, int64_t token, int64_t head) const {
    const ScanDescriptor::Field& f = p_.fields[i];
    const int64_t unit = size_of(f.values.unit, c_), of = head / (c_.heads / f.heads);
    const int64_t row = f.parameter || f.values.per_scan ? 0 : token;
    return {static_cast<size_t>((row * f.heads + of) * unit), static_cast<size_t>(unit)};
  }
  template <class Make>
  std::vector<Reals> inputs(int64_t token, int64_t head, Make make) const {
    std::vector<Reals> x(in_.size());
    for (size_t i = 0; i < in_.size(); ++i) {
      if (!p_.fields[i].given) continue;
      const auto [begin, count] = place(i, token, head);
      for (size_t j = 0; j < count; ++j) x[i].push_back(make(in_[i][begin + j]));
    }
    return x;
  }
  template <class Make>
  static std::vector<Reals> reals(const States& states, Make make) {
    std::vector<Reals> x(states.size());
    for (size_t i = 0; i < states.size(); ++i) {
      for (const double y : states[i]) x[i].push_back(make(y));
    }
    return x;
  }
  States part(const States& all, size_t head) const {
    States own;
    for (size_t i = 0; i < all.size(); ++i) {
      const auto begin = all[i].begin() + static_cast<ptrdiff_t>(head * sizes_[i]);
      own.emplace_back(begin, begin + static_cast<ptrdiff_t>(sizes_[i]));
    }
    return own;
  }
  void put(const States& own, size_t head, States& all) const {
    for (size_t i = 0; i < all.size(); ++i) {
      std::copy(own[i].begin(), own[i].end(),
                all[i].begin() + static_cast<ptrdiff_t>(head * sizes_[i]));
    }
  }
  Reals step(int64_t position, std::vector<Reals>& in, std::vector<Reals>& state) const {
    return p_.scan.step({c_, p_.scan.scale(c_), position, in, state});
  }

  void run(int64_t document, int64_t head) {
    const int64_t begin = c_.documents[static_cast<size_t>(document)],
                  end = c_.documents[static_cast<size_t>(document) + 1];
    const int64_t first = p_.scan.position(c_, document);
    const auto state = static_cast<size_t>(document * c_.heads + head);
    const auto out_at = [&](int64_t t) {
      return static_cast<size_t>((t * c_.heads + head) * c_.value);
    };
    std::vector<States> before{part(leaving, state)};
    for (int64_t t = begin; t < end; ++t) {
      std::vector<Reals> x = inputs(t, head, [](double v) { return Real(v); });
      std::vector<Reals> m = reals(before.back(), [](double v) { return Real(v); });
      const Reals y = step(first + t - begin, x, m);
      for (size_t j = 0; j < y.size(); ++j) out[out_at(t) + j] = y[j].value;
      States next;
      for (const Reals& part : m) {
        next.emplace_back();
        for (const Real& r : part) next.back().push_back(r.value);
      }
      before.push_back(std::move(next));
    }
    put(before.back(), state, leaving);
    States d_state = part(d_entering, state);
    for (int64_t t = end - 1; t >= begin; --t) {
      step_back(first + t - begin, t, head, before[static_cast<size_t>(t - begin)], out_at(t),
                d_state);
    }
    put(d_state, state, d_entering);
  }

  void step_back(int64_t position, int64_t token, int64_t head, const States& before, size_t out_at,
                 States& d_state) {
    Tape tape;
    const auto input = [&](double v) { return tape.input(v); };
    std::vector<Reals> x = inputs(token, head, input), m = reals(before, input);
    const std::vector<Reals> leaves = x, entering = m;
    const Reals y = step(position, x, m);
    for (size_t j = 0; j < y.size(); ++j) tape.seed(y[j], d_out_[out_at + j]);
    for (size_t i = 0; i < m.size(); ++i) {
      for (size_t j = 0; j < m[i].size(); ++j) tape.seed(m[i][j], d_state[i][j]);
    }
    tape.walk_back();
    for (size_t i = 0; i < leaves.size(); ++i) {
      const size_t at = leaves[i].empty() ? 0 : place(i, token, head).first;
      for (size_t j = 0; j < leaves[i].size(); ++j) {
        gradient[i][at + j] += tape.derivative(leaves[i][j]);
      }
    }
    for (size_t i = 0; i < entering.size(); ++i) {
      for (size_t j = 0; j < entering[i].size(); ++j) {
        d_state[i][j] = tape.derivative(entering[i][j]);
      }
    }
  }

  const ScanProblem& p_;
  const ScanCase& c_;
  Numbers d_out_;
  std::vector<Numbers> in_;
  std::vector<size_t> sizes_;
};

}  // namespace weft::test
