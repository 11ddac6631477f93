#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/files/safetensors.h"
#include "core/parameter.h"
#include "launcher/app/runtime.h"
#include "layers/context/build.h"
#include "layers/context/sequence.h"

namespace weft {

// One golden case: inputs, weights, cotangents and results of an independent implementation in f64.
// Keys: in.*, w.*, state0.i, cu_seqlens, out.*, cot.*, grad.*. For bf16, an optional file of the
// same name in the subfolder rounded/ has results computed in f64 with every value rounded that
// bf16 rounds: for cases that these roundings alone move further than the tolerance.
class GoldenCase {
 public:
  GoldenCase(const std::string& path, DType precision);

  std::string kind, mixer;
  nlohmann::json config;
  DType precision;
  ExpertMode expert_mode = ExpertMode::kGrouped;  // for cases with experts; not stored in the file
  // Values that are rounded to bf16 when read, in every precision.
  bool rounded_inputs = false, rounded_weights = false;
  // True if choices of experts or memories must equal those of the file.
  bool exact() const { return precision == DType::kF32 && !rounded_inputs && !rounded_weights; }

  bool has(const std::string& key) const { return file_.find(key) != nullptr; }
  const Shape& shape(const std::string& key) const { return file_.at(key).shape; }
  const SafetensorsFile& file() const { return file_; }
  // True if the results include bf16's roundings; then the tolerance is not widened.
  bool rounded_results() const { return rounded_.has_value(); }
  // out.* or grad.*, as stored.
  Tensor result(Exec& exec, const std::string& key) const;

  // As stored; floats in `type`.
  Tensor read(Exec& exec, const std::string& key, DType type) const;
  // [B, T, ...] as rows: [B * T, the rest], in the case's precision. Undefined when absent.
  Tensor rows(Exec& exec, const std::string& key) const;
  // Reads the states state0.i or cot.state.i, f32; empty when absent.
  std::vector<Tensor> states(Exec& exec, const std::string& prefix) const;
  // cu_seqlens, or one document per batch row of `key`.
  Sequence sequence(Exec& exec, const std::string& key) const;

 private:
  SafetensorsFile file_;
  std::optional<SafetensorsFile> rounded_;
};

struct Tolerance {
  double output, gradient;
};
Tolerance default_tolerance(DType precision);

// Errors of one case: each tensor relative to its largest magnitude, and the worst of them.
class Comparison {
 public:
  Comparison(const GoldenCase& golden, Tolerance tolerance)
      : golden_(golden), tolerance_(tolerance) {}

  // Rounding only inputs or weights to bf16 (`rounded`: the case in f32 arithmetic after that)
  // moves some results beyond the tolerance: sums over tokens with strong cancellation, or the norm
  // of a small vector. bf16 rounds activations about as often, so twice the largest such movement
  // is allowed.
  void allow_for(const Comparison& rounded);

  // Compares with the stored tensor of that key; absent keys are not compared.
  void check(Exec& exec, const std::string& key, const Tensor& got);
  void check_states(Exec& exec, const std::string& prefix, const std::vector<Tensor>& got);
  // Compares the gradient of every w.<name> of the file with that of the parameter scope + name.
  void check_weights(Exec& exec, ParameterStore& store, const std::string& scope);

  // True if every out.* and grad.* of the file was compared and agrees.
  bool passed() const { return failed_ == 0 && missing().empty(); }
  std::vector<std::string> missing() const;
  double worst() const { return worst_; }
  const std::string& worst_key() const { return worst_key_; }
  size_t compared() const { return errors_.size(); }

 private:
  const GoldenCase& golden_;
  Tolerance tolerance_;
  int failed_ = 0;
  std::map<std::string, double> errors_;    // largest absolute error by key
  std::map<std::string, double> movement_;  // due to rounding of inputs and weights alone
  double worst_ = 0, worst_share_ = -1;     // share of the tolerance
  std::string worst_key_;
};

// Sets the parameters scope + name from w.<name>, every one of them, and publishes.
void load_weights(Exec& exec, const GoldenCase& golden, ParameterStore& store,
                  const std::string& scope);

// The core of forgetting attention (golden_fox.cc).
void run_fox_core(Exec& exec, const GoldenCase& golden, Comparison& compare);

// Runs the case through Weft's own layers and kernels. Throws ConfigError when it cannot be run.
Comparison run_golden(Runtime& runtime, const GoldenCase& golden, Tolerance tolerance);

}  // namespace weft
