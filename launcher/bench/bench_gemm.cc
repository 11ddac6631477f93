#include "launcher/bench/bench_gemm.h"

#include <functional>
#include <memory>
#include <optional>

#include "core/base/rng.h"
#include "core/host_access.h"
#include "kernels/matrix/cpu/blas_library.h"
#include "kernels/matrix/gemm.h"
#include "launcher/app/commands.h"
#include "launcher/app/measure.h"
#include "launcher/app/peak_probes.h"
#include "launcher/app/runtime.h"

namespace weft {
namespace {

using kernels::BlasLibrary;
using kernels::PackedMatrices;
using kernels::Transpose;
using Work = std::function<void()>;

// One kind of product. A grouped product has several groups of rows, each with its own right
// operand.
struct GemmCase {
  std::string name;
  int64_t m, n, k;
  Transpose a = Transpose::kNo, b = Transpose::kNo;
  std::vector<int64_t> offsets = {};

  double flops() const { return 2.0 * static_cast<double>(m) * static_cast<double>(n * k); }
  int64_t groups() const { return static_cast<int64_t>(offsets.size()) - 1; }
};

// 16 experts with 64 to 256 rows.
GemmCase grouped_case() {
  GemmCase c{.name = "16 groups", .m = 0, .n = 896, .k = 1024, .offsets = {0}};
  for (int64_t g = 0; g < 16; ++g) c.offsets.push_back(c.m += 64 + g * 7 % 16 * 64 / 5);
  return c;
}

std::vector<GemmCase> cases_of(const BenchGemmOptions& o) {
  std::vector<GemmCase> cases;
  const auto add = [&](int64_t m, int64_t n, int64_t k, Transpose a, Transpose b) {
    const char* form = a == Transpose::kYes ? "a^T b" : b == Transpose::kYes ? "a b^T" : "a b";
    cases.push_back({fmt::format("{} x {} x {} {}", m, n, k, form), m, n, k, a, b});
  };
  constexpr Transpose kNo = Transpose::kNo, kYes = Transpose::kYes;
  for (const int64_t size : o.sizes) {
    add(size, size, size, kNo, kNo);
    add(size, size, size, kNo, kYes);
    add(size, size, size, kYes, kNo);
  }
  if (o.step_shapes) {
    for (const int64_t n : {256, 512, 1024}) add(2048, n, 256, kNo, kYes);
    for (const int64_t m : {256, 512}) add(m, 256, 2048, kYes, kNo);
    for (const int64_t m : {256, 512}) add(m, 4096, 256, kNo, kYes);
    for (const int64_t m : {1, 4, 8, 16}) add(m, 1024, 1024, kNo, kYes);
    GemmCase small{.name = "8 groups", .m = 4096, .n = 512, .k = 256, .offsets = {0}};
    for (int64_t g = 1; g <= 8; ++g)
      small.offsets.push_back(g * 512 + (g < 8 ? g * 37 % 64 - 32 : 0));
    cases.push_back(small);
  }
  cases.push_back(grouped_case());
  return cases;
}

Tensor uniform_tensor(Exec& exec, std::string_view name, Shape shape, DType dtype) {
  const RandomStream stream(1, name);
  Tensor t = exec.empty(shape, dtype);
  for (int64_t i = 0; i < t.elements(); ++i) {
    const auto x = static_cast<float>(stream.uniform(static_cast<uint64_t>(i)) - 0.5);
    if (dtype == DType::kF32)
      host<float>(t)[i] = x;
    else
      host<bf16>(t)[i] = to_bf16(x);
  }
  return t;
}

struct Operands {
  Tensor a, b, c;
};

Operands operands(Exec& exec, const GemmCase& c, DType dtype) {
  const Shape b = c.b == Transpose::kYes ? Shape{c.n, c.k} : Shape{c.k, c.n};
  return {
      uniform_tensor(exec, "a", c.a == Transpose::kYes ? Shape{c.k, c.m} : Shape{c.m, c.k}, dtype),
      uniform_tensor(exec, "b", c.offsets.empty() ? b : Shape{c.groups(), b[0], b[1]}, dtype),
      exec.zeros({c.m, c.n})};
}

// The implementations of a case; unavailable ones are empty.
struct Ways {
  Work plain, packed;
  std::vector<std::pair<std::string, Work>> libraries;
  const Work& best() const { return packed ? packed : plain; }
};

Work library_work(Exec& exec, const GemmCase& c, const Operands& o, const BlasLibrary& library) {
  if (c.offsets.empty()) {
    return [&] { library.gemm(exec, o.a, o.b, o.c, {c.a, c.b, kernels::Write::kReplace}); };
  }
  return [&] {
    for (int64_t g = 0; g < c.groups(); ++g) {
      const auto at = static_cast<size_t>(g);
      const int64_t first = c.offsets[at], rows = c.offsets[at + 1] - first;
      library.gemm(exec, o.a.row_range(first, rows), o.b.row(g), o.c.row_range(first, rows));
    }
  };
}

Quartiles rate_of(double flops, const Quartiles& seconds) {
  return {flops / seconds.median / 1e9, flops / seconds.q3 / 1e9, flops / seconds.q1 / 1e9,
          seconds.repetitions};
}

std::string text(const Quartiles& q) {
  return fmt::format("{:7.1f} ({:.1f} to {:.1f})", q.median, q.q1, q.q3);
}

std::string_view name_of(Clock clock) { return clock == Clock::kWall ? "wall" : "processor"; }

class GemmBench {
 public:
  explicit GemmBench(const BenchGemmOptions& options)
      : options_(options), runtime_(options.threads) {
    if (auto library = BlasLibrary::load_default(runtime_.exec().isa)) {
      libraries_.push_back(std::move(library));
    }
    if (!options.mkl.empty()) libraries_.push_back(BlasLibrary::load_mkl(options.mkl));
  }

  nlohmann::json run(DType dtype) {
    Exec& exec = runtime_.exec();
    nlohmann::json out = {{"precision", name_of(dtype)},
                          {"register_peak_before", register_peak_gflops(exec, dtype, clock())}};
    fmt::print("\n{} on {} thread(s), {}, {} time: GFLOP/s, median (quartiles) of {}\n",
               name_of(dtype), exec.threads.size(), name_of(exec.isa), name_of(clock()),
               options_.repetitions);
    for (const GemmCase& c : cases_of(options_)) out["cases"].push_back(measure_case(c, dtype));
    out["register_peak_after"] = register_peak_gflops(exec, dtype, clock());
    fmt::print("registers only: {:.0f} before, {:.0f} after\n",
               out["register_peak_before"].get<double>(), out["register_peak_after"].get<double>());
    return out;
  }

  Exec& exec() { return runtime_.exec(); }
  Clock clock() { return exec().threads.size() == 1 ? Clock::kProcessor : Clock::kWall; }

 private:
  Ways ways_of(const GemmCase& c, const Operands& o, const std::optional<PackedMatrices>& packed) {
    Ways ways;
    Exec& exec = runtime_.exec();
    if (c.offsets.empty()) {
      ways.plain = [&] {
        kernels::gemm(exec, o.a, o.b, o.c, {c.a, c.b, kernels::Write::kReplace});
      };
      if (packed) ways.packed = [&] { kernels::gemm(exec, o.a, *packed, o.c); };
    } else {
      ways.packed = [&] { kernels::grouped_gemm(exec, o.a, c.offsets, *packed, o.c); };
    }
    for (const auto& library : libraries_) {
      if (!library->multiplies(o.a.dtype())) continue;
      ways.libraries.emplace_back(library->name(), library_work(exec, c, o, *library));
    }
    return ways;
  }

  nlohmann::json measure_case(const GemmCase& c, DType dtype) {
    const Operands o = operands(runtime_.exec(), c, dtype);
    std::optional<PackedMatrices> packed;
    if (c.a == Transpose::kNo) packed.emplace(runtime_.exec(), o.b, c.b);
    const Ways ways = ways_of(c, o, packed);
    nlohmann::json out = {{"case", c.name}, {"m", c.m}, {"n", c.n}, {"k", c.k}};
    fmt::print("{:26}", c.name);
    const auto rate = [&](const std::string& name, const Work& work) {
      if (!work) return;
      work();
      const Quartiles q = rate_of(c.flops(), measure(options_.repetitions, work, clock()));
      out[name + "_gflops"] = to_json(q);
      fmt::print("  {} {}", name, text(q));
    };
    rate("plain", ways.plain);
    rate("packed", ways.packed);
    for (const auto& [name, work] : ways.libraries) {
      rate(name, work);
      const Quartiles times = ratio(options_.repetitions, ways.best(), work, clock());
      out["times_" + name] = to_json(times);
      fmt::print("  we / {} {:.2f}", name, times.median);
    }
    fmt::print("\n");
    return out;
  }

  BenchGemmOptions options_;
  Runtime runtime_;
  std::vector<std::unique_ptr<BlasLibrary>> libraries_;
};

}  // namespace

int bench_gemm(const BenchGemmOptions& options) {
  GemmBench bench(options);
  nlohmann::json result = {{"bench", "gemm"},
                           {"threads", bench.exec().threads.size()},
                           {"isa", name_of(bench.exec().isa)},
                           {"clock", name_of(bench.clock())},
                           {"precisions", nlohmann::json::array()}};
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    if (options.precision != "both" && options.precision != name_of(dtype)) continue;
    result["precisions"].push_back(bench.run(dtype));
  }
  if (!options.json.empty()) write_json(options.json, result);
  return 0;
}

void add_bench_gemm(CLI::App& bench) {
  auto o = std::make_shared<BenchGemmOptions>();
  CLI::App* command =
      bench.add_subcommand("gemm", "Matrix products, compared with OpenBLAS and MKL");
  command->footer(
      "Example: weft bench gemm --sizes 512,1024 --precision f32 --threads 1 --json gemm.json\n"
      "Ratios are taken in turns (ours, theirs, theirs, ours); above 1 ours "
      "is faster. The peak is that of multiply-adds on registers alone, "
      "probed before and after. One thread is measured in processor time.");
  command->add_option("--sizes", o->sizes, "Square sizes")
      ->delimiter(',')
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--precision", o->precision, "f32, bf16 or both")
      ->check(CLI::IsMember({"f32", "bf16", "both"}))
      ->capture_default_str();
  command->add_option("--threads", o->threads, "0: every core")->check(CLI::NonNegativeNumber);
  command->add_option("--repetitions", o->repetitions, "Repetitions of each measurement")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--step-shapes", o->step_shapes, "Also the products of a small training step");
  command->add_option("--mkl", o->mkl, "Path of libmkl_rt.so, to measure against MKL as well");
  command->add_option("--json", o->json, "Writes the result to this file");
  command->final_callback([o] { bench_gemm(*o); });
}

}  // namespace weft
