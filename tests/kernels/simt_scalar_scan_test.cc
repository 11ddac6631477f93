// The CUDA kernels of the scalar scan, executed by the emulator: kernels/scan/cuda/scalar_scan.cu
// as nvcc compiles it, without a GPU.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/host_access.h"
#include "kernels/rows/normalizer.h"
#include "kernels/scan/cuda/scalar_scan.h"
#include "kernels/scan/scalar_scan.h"
#include "launcher/verify/golden.h"
#include "tests/support/near.h"
#include "tests/support/paths.h"
#include "tests/support/rig.h"
#include "tests/support/simt/grid.h"

namespace weft::test {
namespace {

namespace cuda = kernels::cuda;

ConstView seen(const Tensor& t) { return t.defined() ? ConstView(t) : ConstView{}; }
View wanted(const Tensor& t) { return t.defined() ? t.view() : View{}; }
float* numbers_of(const Tensor& t) { return t.defined() ? host<float>(t) : nullptr; }

template <class To, class From>
cuda::ScanMatrix<To> matrix(const From& v) {
  return {v.data, v.row_stride, v.dtype == DType::kBF16};
}

// The contract of kernels/scan/scalar_scan.h by way of the CUDA kernels. Scratch begins as NaNs.
class EmulatedScan {
 public:
  EmulatedScan(Exec& exec, const kernels::ScalarScan& in) : exec_(exec) {
    p_.q = matrix<const void>(in.q), p_.k = matrix<const void>(in.k);
    p_.v = matrix<const void>(in.v);
    if (in.log_decay.data != nullptr) {
      const bool every_token = in.log_decay.shape.dims() > 1;
      p_.log_decay = {host<float>(in.log_decay), every_token ? in.log_decay.row_stride : 0};
    }
    p_.heads = static_cast<int>(in.heads), p_.kv_heads = static_cast<int>(in.kv_heads);
    p_.key = static_cast<int>(in.key), p_.value = static_cast<int>(in.value);
    p_.scale = in.scale;
    chunks_ = cuda::chunks_before(in.documents, cuda::scan_chunk(p_));
    p_.documents = in.documents.data(), p_.chunks_before = chunks_.data();
    p_.document_count = static_cast<int>(in.documents.size()) - 1;
    p_.chunk_count = chunks_.back(), p_.token_count = in.documents.back();
  }

  void forward(const Tensor& initial, View out, const Tensor& final_state) {
    const Tensor scratch = poisoned(cuda::scan_forward_scratch(p_));
    cuda::scan_forward(p_, {numbers_of(initial), matrix<void>(out), numbers_of(final_state)},
                       host<float>(scratch), nullptr);
  }
  void backward(const Tensor& initial, ConstView d_out, const Tensor& d_final,
                const kernels::ScalarScanGradients& g) {
    const Tensor scratch = poisoned(cuda::scan_backward_scratch(p_));
    cuda::ScanBackward io{numbers_of(initial),
                          matrix<const void>(d_out),
                          numbers_of(d_final),
                          matrix<void>(g.dq),
                          matrix<void>(g.dk),
                          matrix<void>(g.dv),
                          {},
                          nullptr};
    if (g.d_log_decay.data != nullptr) {
      io.d_log_decay = {host<float>(g.d_log_decay), g.d_log_decay.row_stride};
    }
    if (g.d_initial_state.data != nullptr) io.d_initial_state = host<float>(g.d_initial_state);
    cuda::scan_backward(p_, io, host<float>(scratch), nullptr);
  }

 private:
  Tensor poisoned(int64_t floats) {
    const Tensor t = exec_.scratch({floats + 1});
    std::fill_n(host<float>(t), floats, std::numeric_limits<float>::quiet_NaN());
    return t;
  }

  Exec& exec_;
  cuda::ScanProblem p_;
  std::vector<int32_t> chunks_;
};

// Inputs by name, and a set of results.
struct Case {
  std::vector<int32_t> documents;
  int64_t heads = 2, kv_heads = 2, key = 16, value = 24;
  DType dtype = DType::kF32;
  bool decays = true, states = true;
  double forget = 0.1;
};
struct Inputs {
  Inputs(Rig& rig, const Case& c) : documents(c.documents) {
    const int64_t tokens = documents.back(), n = static_cast<int64_t>(documents.size()) - 1;
    const Shape state{n, c.heads, c.key, c.value};
    q = rig.normal("q", {tokens, c.heads * c.key}, 1, c.dtype);
    k = rig.normal("k", {tokens, c.kv_heads * c.key}, 1, c.dtype);
    v = rig.normal("v", {tokens, c.kv_heads * c.value}, 1, c.dtype);
    d_out = rig.normal("d_out", {tokens, c.heads * c.value}, 1, c.dtype);
    if (c.decays) {
      g = rig.normal("g", {tokens, c.heads}, c.forget);
      for (int64_t i = 0; i < g.elements(); ++i) host<float>(g)[i] = -std::abs(host<float>(g)[i]);
    }
    if (c.states) initial = rig.normal("initial", state), d_final = rig.normal("d_final", state);
    in = {q,       k,          v,     seen(g), documents,
          c.heads, c.kv_heads, c.key, c.value, 1 / std::sqrt(static_cast<float>(c.key))};
  }

  std::vector<int32_t> documents;
  Tensor q, k, v, g, d_out, initial, d_final;
  kernels::ScalarScan in;
};
struct Results {
  Results(Rig& rig, const Inputs& x, DType type) {
    out = rig.exec.zeros(x.d_out.shape(), type);
    dq = rig.exec.zeros(x.q.shape(), type), dk = rig.exec.zeros(x.k.shape(), type);
    dv = rig.exec.zeros(x.v.shape(), type);
    if (x.g.defined()) dg = rig.exec.zeros(x.g.shape());
    if (!x.initial.defined()) return;
    final_state = rig.exec.zeros(x.initial.shape()), d_initial = rig.exec.zeros(x.initial.shape());
  }
  kernels::ScalarScanGradients gradients() const {
    return {dq, dk, dv, wanted(dg), wanted(d_initial)};
  }
  std::vector<std::pair<const char*, Tensor>> all() const {
    return {{"out", out},        {"final_state", final_state},  {"dq", dq}, {"dk", dk}, {"dv", dv},
            {"d_log_decay", dg}, {"d_initial_state", d_initial}};
  }
  Tensor out, final_state, dq, dk, dv, dg, d_initial;
};

Results emulated(Rig& rig, const Inputs& x) {
  Results r(rig, x, x.q.dtype());
  EmulatedScan scan(rig.exec, x.in);
  scan.forward(x.initial, r.out, r.final_state);
  scan.backward(x.initial, x.d_out, x.d_final, r.gradients());
  return r;
}

// The kernels of the CPU, which scan_laws_test.cc holds against the recurrence in double, on the
// same inputs in f32.
Results on_the_cpu(Rig& rig, const Inputs& x) {
  Results r(rig, x, DType::kF32);
  std::vector<Tensor> wide;
  for (const Tensor* t : {&x.q, &x.k, &x.v, &x.d_out}) {
    wide.push_back(rig.exec.empty(t->shape()));
    const std::vector<double> values = numbers(*t);
    std::copy(values.begin(), values.end(), host<float>(wide.back()));
  }
  kernels::ScalarScan in = x.in;
  in.q = wide[0], in.k = wide[1], in.v = wide[2];
  kernels::scalar_scan_forward(rig.exec, in, seen(x.initial), r.out, wanted(r.final_state));
  kernels::scalar_scan_backward(rig.exec, in, seen(x.initial), wide[3], seen(x.d_final),
                                r.gradients());
  return r;
}

// f32: three tf32 products leave 2^-21 per factor, and sums are as on the CPU. bf16: factors made
// inside (scores, states, decayed keys) are rounded by up to 2^-9, two of them per product and one
// product after another; the largest entries are what the tolerance counts in.
double tolerance_of(DType dtype) { return dtype == DType::kF32 ? 1e-5 : 1e-2; }
void check(const Case& c, double tolerance) {
  SCOPED_TRACE(fmt::format("{} tokens, {}/{} heads, {} x {}, {}", c.documents.back(), c.heads,
                           c.kv_heads, c.key, c.value, name_of(c.dtype)));
  Rig rig;
  const Inputs x(rig, c);
  const Results got = emulated(rig, x), want = on_the_cpu(rig, x);
  const auto all = want.all();
  size_t i = 0;
  for (const auto& [name, tensor] : got.all()) {
    const Tensor& expected = all[i++].second;
    if (tensor.defined()) {
      EXPECT_TRUE(Near(tensor, expected, tolerance)) << name;
    }
  }
}

void check(const Case& c) { check(c, tolerance_of(c.dtype)); }

// Chunks are of 64 tokens, or of 32 in f32 with wide heads.
TEST(CudaScalarScan, AgreesWithTheCpuAtEveryLength) {
  for (const int32_t tokens : {1, 63, 64, 65, 150}) {
    check({.documents = {0, tokens}});
    check({.documents = {0, tokens}, .dtype = DType::kBF16});
  }
  for (const int32_t tokens : {1, 32, 33}) {
    check({.documents = {0, tokens}, .heads = 1, .kv_heads = 1, .key = 65, .value = 7});
  }
}

TEST(CudaScalarScan, AgreesWithTheCpuAtEveryHeadWidth) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& [key, value] : {std::pair{1, 1}, {64, 64}, {128, 128}, {17, 80}, {100, 3}}) {
      check({.documents = {0, 70},
             .heads = 1,
             .kv_heads = 1,
             .key = key,
             .value = value,
             .dtype = dtype});
    }
  }
}

TEST(CudaScalarScan, KeepsDocumentsApart) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    check({.documents = {0, 0, 1, 38, 38, 103, 104, 250, 250}, .dtype = dtype});
  }
  check({.documents = {0, 0}});
}

TEST(CudaScalarScan, SharesKeysAndValuesInAGroup) {
  check({.documents = {0, 70, 75}, .heads = 6, .kv_heads = 2});
  check({.documents = {0, 70}, .heads = 4, .kv_heads = 1, .dtype = DType::kBF16});
}

TEST(CudaScalarScan, DoesWithoutDecaysAndStates) {
  check({.documents = {0, 70}, .decays = false, .states = false});
  check({.documents = {0, 70}, .states = false});
}

// A state forgotten completely inside a chunk: e^{b_i} underflows, and nothing may become NaN. b
// goes down to -1500, whose rounding of 6e-5 is a relative error of e^{b_i - b_j}. In bf16 the
// gradients of decays are small differences q . dq - k . dk of numbers with 8 bits.
TEST(CudaScalarScan, SurvivesDecaysThatUnderflow) {
  check({.documents = {0, 130}, .forget = 30}, 2e-4);
  check({.documents = {0, 130}, .dtype = DType::kBF16, .forget = 30}, 5e-2);
}

TEST(CudaScalarScan, TakesDecaysOfHeads) {
  Rig rig;
  Inputs x(rig, {.documents = {0, 70, 100}});
  const Tensor of_heads = rig.exec.empty({2});
  host<float>(of_heads)[0] = -0.1f, host<float>(of_heads)[1] = -0.03f;
  for (int64_t i = 0; i < x.g.elements(); ++i) host<float>(x.g)[i] = host<float>(of_heads)[i % 2];
  const Results per_token = emulated(rig, x);
  x.in.log_decay = of_heads;
  const Results per_head = emulated(rig, x);
  EXPECT_TRUE(SameBits(per_token.out, per_head.out));
  EXPECT_TRUE(SameBits(per_token.dq, per_head.dq));
}

TEST(CudaScalarScan, TakesStridedRows) {
  Rig rig;
  Inputs x(rig, {.documents = {0, 70}, .kv_heads = 1});
  const Results apart = emulated(rig, x);
  const Tensor fused = rig.exec.empty({70, 32 + 16 + 24 + 48 + 3});
  const View q = fused.view().columns(0, 32), k = fused.view().columns(32, 16);
  const View v = fused.view().columns(48, 24), out = fused.view().columns(72, 48);
  for (int64_t t = 0; t < 70; ++t) {
    std::copy_n(host<float>(x.q) + t * 32, 32, host<float>(q) + t * q.row_stride);
    std::copy_n(host<float>(x.k) + t * 16, 16, host<float>(k) + t * k.row_stride);
    std::copy_n(host<float>(x.v) + t * 24, 24, host<float>(v) + t * v.row_stride);
  }
  x.in.q = q, x.in.k = k, x.in.v = v;
  EmulatedScan(rig.exec, x.in).forward(x.initial, out, {});
  EXPECT_TRUE(SameBits(out, apart.out));
}

TEST(CudaScalarScan, GivesTheSameBitsInAnyOrderOfThreads) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Rig rig;
    const Inputs x(rig, {.documents = {0, 3, 70}, .kv_heads = 1, .dtype = dtype});
    const auto want = emulated(rig, x).all();
    for (const uint32_t seed : {0, 1, 2}) {
      const simt::WithOrder with(seed == 0 ? simt::Order::kReverse : simt::Order::kShuffled, seed);
      size_t i = 0;
      for (const auto& [name, tensor] : emulated(rig, x).all()) {
        EXPECT_TRUE(SameBits(tensor, want[i++].second)) << name << ", seed " << seed;
      }
    }
  }
}

// A head width fits exactly when a device launches it.
TEST(CudaScalarScan, SaysWhichHeadsFit) {
  for (const size_t shared : {cuda::kSharedOfSm80, cuda::kSharedOfSm90}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t width : {64, 65, 128}) {
        cuda::ScanProblem p;
        p.q.narrow = dtype == DType::kBF16;
        p.key = p.value = static_cast<int>(width);
        const bool fits = cuda::scan_fits(p, shared);
        EXPECT_EQ(fits, shared == cuda::kSharedOfSm90 || dtype == DType::kBF16 || width <= 64);
        Rig rig;
        const Inputs x(rig, {.documents = {0, 1},
                             .heads = 1,
                             .kv_heads = 1,
                             .key = width,
                             .value = width,
                             .dtype = dtype});
        const simt::WithSharedMemory device(shared);
        if (fits) {
          EXPECT_NO_THROW(emulated(rig, x)) << width;
        } else {
          EXPECT_THROW(emulated(rig, x), simt::Error) << width;
        }
      }
    }
  }
  cuda::ScanProblem p;
  p.key = 128, p.value = 129;
  EXPECT_FALSE(cuda::scan_fits(p, cuda::kSharedOfSm90));
}

// The golden files, forward and backward, in f32 and bf16, by the tolerances of `weft verify`.
class CudaGolden : public testing::TestWithParam<std::tuple<std::string, DType>> {};

std::string golden_path(const std::string& name) {
  return in_project("tests/golden/core_") + name + ".safetensors";
}

// Normalized attention is a scan over values with one more channel that is 1
// (kernels/rows/normalizer.h): states [n, heads, key, value] and [n, heads, key] side by side.
Tensor joined(Exec& exec, const std::vector<Tensor>& states) {
  if (states.size() < 2) return states.empty() ? Tensor{} : states[0];
  Shape shape = states[0].shape();
  const int64_t value = shape.back();
  shape[3] = value + 1;
  const Tensor all = exec.empty(shape);
  for (int64_t i = 0; i < states[1].elements(); ++i) {
    float* row = host<float>(all) + i * (value + 1);
    std::copy_n(host<float>(states[0]) + i * value, value, row);
    row[value] = host<float>(states[1])[i];
  }
  return all;
}
std::vector<Tensor> parted(Exec& exec, const Tensor& all, bool normalize) {
  if (!normalize) return {all};
  const Shape& s = all.shape();
  const Tensor state = exec.empty({s[0], s[1], s[2], s[3] - 1}),
               sums = exec.empty({s[0], s[1], s[2]});
  for (int64_t i = 0; i < sums.elements(); ++i) {
    const float* row = host<float>(all) + i * s[3];
    std::copy_n(row, s[3] - 1, host<float>(state) + i * (s[3] - 1));
    host<float>(sums)[i] = row[s[3] - 1];
  }
  return {state, sums};
}

TEST_P(CudaGolden, Agrees) {
  const auto& [name, precision] = GetParam();
  Rig rig;
  Exec& exec = rig.exec;
  const GoldenCase golden(golden_path(name), precision);
  const bool normalize = golden.config.value("normalize", false);
  const Shape &q_shape = golden.shape("in.q"), &v_shape = golden.shape("in.v");
  const int64_t heads = q_shape[2], key = q_shape[3];
  const int64_t value = v_shape[3] + (normalize ? 1 : 0);
  const Tensor q = golden.rows(exec, "in.q"), k = golden.rows(exec, "in.k");
  const Tensor narrow_v = golden.rows(exec, "in.v"), d_y = golden.rows(exec, "cot.y");
  const int64_t tokens = q.shape()[0];
  Tensor v = narrow_v, g, dg;
  if (normalize) {
    v = exec.empty({tokens, heads * value}, precision);
    kernels::append_ones(exec, heads, narrow_v, v);
  }
  if (golden.has("in.g")) {
    g = golden.read(exec, "in.g", DType::kF32).reshaped({tokens, heads});
    dg = exec.empty(g.shape());
  }
  const Sequence sequence = golden.sequence(exec, "in.q");
  const auto documents = static_cast<int64_t>(sequence.documents.size()) - 1;
  const kernels::ScalarScan in{q,     k,     v,   seen(g), sequence.documents,
                               heads, heads, key, value,   1 / std::sqrt(static_cast<float>(key))};
  EmulatedScan scan(exec, in);
  Comparison compare(golden, default_tolerance(precision));

  const Tensor initial = joined(exec, golden.states(exec, "state0."));
  const Tensor final_state = exec.empty({documents, heads, key, value});
  const Tensor out = exec.empty({tokens, heads * value}), y = exec.empty(d_y.shape());
  scan.forward(initial, out, final_state);
  if (normalize) kernels::divide_by_last_channel(exec, heads, out, y);
  compare.check(exec, "out.y", normalize ? y : out);
  compare.check_states(exec, "out.state.", parted(exec, final_state, normalize));

  Tensor d_out = d_y;
  if (normalize) {
    d_out = exec.empty(out.shape());
    kernels::divide_by_last_channel_backward(exec, heads, out, d_y, d_out);
  }
  const Tensor dq = exec.empty(q.shape()), dk = exec.empty(k.shape()), dv = exec.empty(v.shape());
  const Tensor d_initial = exec.empty(final_state.shape());
  scan.backward(initial, d_out, joined(exec, golden.states(exec, "cot.state.")),
                {dq, dk, dv, wanted(dg), d_initial});
  compare.check(exec, "grad.in.q", dq);
  compare.check(exec, "grad.in.k", dk);
  Tensor narrow_dv = dv;
  if (normalize) {
    narrow_dv = exec.empty(narrow_v.shape());
    kernels::drop_last_channel(exec, heads, dv, narrow_dv);
  }
  compare.check(exec, "grad.in.v", narrow_dv);
  if (dg.defined()) compare.check(exec, "grad.in.g", dg);
  compare.check_states(exec, "grad.state0.", parted(exec, d_initial, normalize));
  EXPECT_TRUE(compare.passed()) << compare.worst_key() << " is off by " << compare.worst()
                                << ", not compared: "
                                << fmt::format("{}", fmt::join(compare.missing(), ", "));
  RecordProperty("worst", fmt::format("{} {}", compare.worst_key(), compare.worst()));
}

std::string name_of_case(const testing::TestParamInfo<CudaGolden::ParamType>& info) {
  return fmt::format("{}_{}", std::get<0>(info.param), name_of(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(Core, CudaGolden,
                         testing::Combine(testing::Values("scalar_decay_basic",
                                                          "scalar_decay_packed",
                                                          "scalar_decay_state", "linear_basic",
                                                          "linear_packed", "linear_state"),
                                          testing::Values(DType::kF32, DType::kBF16)),
                         name_of_case);
// In f32 only: a sum of weights near zero has no accurate inverse in bf16.
INSTANTIATE_TEST_SUITE_P(Normalized, CudaGolden,
                         testing::Combine(testing::Values("linear_norm_basic", "linear_norm_packed",
                                                          "linear_norm_state"),
                                          testing::Values(DType::kF32)),
                         name_of_case);

}  // namespace
}  // namespace weft::test
