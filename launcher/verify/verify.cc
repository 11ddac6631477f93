#include <fmt/core.h>

#include <filesystem>
#include <memory>

#include "launcher/app/commands.h"
#include "launcher/verify/golden.h"

namespace weft {
namespace {

struct VerifyOptions {
  std::vector<std::string> files;
  std::string device = "cpu";
  std::string precision = "f32";
  double tolerance = 0;
  int threads = 0;
};

// Prints one line; true when the case passed.
bool verify_one(Runtime& runtime, const std::string& path, DType precision, Tolerance tolerance) {
  const std::string name = std::filesystem::path(path).filename().string();
  try {
    const GoldenCase golden(path, precision);
    const Comparison compare = run_golden(runtime, golden, tolerance);
    fmt::print("{}  {:<44} {:9.2e}  {}\n", compare.passed() ? "pass" : "FAIL", name,
               compare.worst(),
               compare.missing().empty() ? compare.worst_key()
                                         : "not compared: " + compare.missing().front());
    return compare.passed();
  } catch (const std::exception& error) {
    fmt::print("FAIL  {:<44} {:>9}  {}\n", name, "-", error.what());
    return false;
  }
}

int run(const VerifyOptions& o) {
  if (o.device != "cpu") {
    throw ConfigError("--device {}: this build has the CPU backend only; use --device cpu",
                      o.device);
  }
  const DType precision = o.precision == "bf16" ? DType::kBF16 : DType::kF32;
  Tolerance tolerance = default_tolerance(precision);
  if (o.tolerance > 0) tolerance = {o.tolerance, o.tolerance};
  Runtime runtime(o.threads);
  int passed = 0, failed = 0;
  for (const std::string& path : o.files) {
    (verify_one(runtime, path, precision, tolerance) ? passed : failed) += 1;
  }
  fmt::print("{} passed, {} failed\n", passed, failed);
  return failed == 0 ? 0 : 3;
}

}  // namespace

void add_verify(CLI::App& app) {
  auto o = std::make_shared<VerifyOptions>();
  CLI::App* command = app.add_subcommand(
      "verify", "Run golden cases on this machine and print the worst error of each");
  command->footer(
      "Example: weft verify tests/golden/*.safetensors --precision bf16\n"
      "Errors are relative to the tensor's largest magnitude (absolute where the "
      "reference is zero). In bf16, if rounding only inputs or weights of a mixer "
      "(layer or core) moves a result by more than half the tolerance, twice that "
      "movement is allowed; if a subfolder rounded/ the file has results with the "
      "roundings of bf16, these are compared instead. Exit code 0 only if all passed.");
  command->add_option("files", o->files, "Golden cases (safetensors)")->required();
  command->add_option("--device", o->device, "cpu or cuda")->check(CLI::IsMember({"cpu", "cuda"}));
  command->add_option("--precision", o->precision, "f32 or bf16")
      ->check(CLI::IsMember({"f32", "bf16"}));
  command
      ->add_option(
          "--tolerance", o->tolerance,
          "Tolerance instead of the defaults (f32: 2e-5 outputs, 2e-4 gradients; bf16: 2e-2, 5e-2)")
      ->check(CLI::PositiveNumber);
  command->add_option("--threads", o->threads, "0: every core");
  command->final_callback([o] {
    if (const int code = run(*o); code != 0) throw CLI::RuntimeError(code);
  });
}

}  // namespace weft
