#include "launcher/verify/golden.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/host_access.h"
#include "kernels/rows/elementwise.h"
#include "parallel/parameter_values.h"

namespace weft {
namespace {

std::string metadata_of(const SafetensorsFile& file, const std::string& key) {
  const auto found = file.metadata().find(key);
  if (found == file.metadata().end()) {
    throw ConfigError("{}: no '{}' in the metadata; this is not a golden case", file.path(), key);
  }
  return found->second;
}

std::vector<double> numbers(const Tensor& t) {
  std::vector<double> out(static_cast<size_t>(t.elements()));
  for (size_t i = 0; i < out.size(); ++i) {
    switch (t.dtype()) {
      case DType::kF32: out[i] = host<float>(t)[i]; break;
      case DType::kBF16: out[i] = to_float(host<bf16>(t)[i]); break;
      case DType::kI32: out[i] = host<int32_t>(t)[i]; break;
      case DType::kF64: out[i] = host<double>(t)[i]; break;
      default: out[i] = static_cast<double>(host<int64_t>(t)[i]);
    }
  }
  return out;
}

}  // namespace

GoldenCase::GoldenCase(const std::string& path, DType precision)
    : precision(precision), file_(path) {
  kind = metadata_of(file_, "kind");
  mixer = metadata_of(file_, "mixer");
  config = nlohmann::json::parse(metadata_of(file_, "config"), nullptr, false);
  if (!config.is_object()) throw ConfigError("{}: its 'config' is not a JSON object", path);
  const std::filesystem::path here(path),
      rounded = here.parent_path() / "rounded" / here.filename();
  if (precision == DType::kBF16 && std::filesystem::exists(rounded)) {
    rounded_.emplace(rounded.string());
  }
}

Tensor GoldenCase::result(Exec& exec, const std::string& key) const {
  const SafetensorsFile& from = rounded_ ? *rounded_ : file_;
  const bool integer = from.at(key).type == FileType::kI32;
  return from.read(exec.pool, key, integer ? DType::kI32 : DType::kF32, Label::kActivations);
}

Tensor GoldenCase::read(Exec& exec, const std::string& key, DType type) const {
  const bool round = rounded_inputs && type == DType::kF32 && key.starts_with("in.");
  const Tensor t = file_.read(exec.pool, key, round ? DType::kBF16 : type, Label::kActivations);
  if (!round) return t;
  const Tensor wide = exec.empty(t.shape());
  kernels::copy(exec, t, wide);
  return wide;
}

Tensor GoldenCase::rows(Exec& exec, const std::string& key) const {
  if (!has(key)) return {};
  const Tensor t = read(exec, key, precision);
  const Shape& s = t.shape();
  if (s.dims() < 3) return t;
  return t.reshaped({s[0] * s[1], s.elements() / std::max<int64_t>(1, s[0] * s[1])});
}

std::vector<Tensor> GoldenCase::states(Exec& exec, const std::string& prefix) const {
  std::vector<Tensor> found;
  while (has(fmt::format("{}{}", prefix, found.size()))) {
    found.push_back(read(exec, fmt::format("{}{}", prefix, found.size()), DType::kF32));
  }
  return found;
}

Sequence GoldenCase::sequence(Exec& exec, const std::string& key) const {
  std::vector<int32_t> documents;
  if (has("cu_seqlens")) {
    const Tensor offsets = read(exec, "cu_seqlens", DType::kI32);
    documents.assign(host<int32_t>(offsets), host<int32_t>(offsets) + offsets.elements());
    const Shape& s = shape(key);
    if (documents.empty() || documents.front() != 0 || documents.back() != s[0] * s[1] ||
        !std::is_sorted(documents.begin(), documents.end())) {
      throw ConfigError("{}: cu_seqlens does not rise from 0 to the {} tokens of {}", file_.path(),
                        s[0] * s[1], key);
    }
  } else {
    const Shape& s = shape(key);
    for (int64_t b = 0; b <= s[0]; ++b) documents.push_back(static_cast<int32_t>(b * s[1]));
  }
  return make_sequence(std::move(documents));
}

Tolerance default_tolerance(DType precision) {
  return precision == DType::kBF16 ? Tolerance{2e-2, 5e-2} : Tolerance{2e-5, 2e-4};
}

void Comparison::allow_for(const Comparison& rounded) {
  for (const auto& [key, error] : rounded.errors_) {
    double& most = movement_[key];
    most = std::max(most, error);
  }
}

void Comparison::check(Exec& exec, const std::string& key, const Tensor& got) {
  if (!golden_.has(key)) return;
  const Tensor want_tensor = golden_.result(exec, key);
  WEFT_CHECK(want_tensor.elements() == got.elements(), "{}: {} but the file has {}", key,
             got.shape(), want_tensor.shape());
  const std::vector<double> want = numbers(want_tensor), have = numbers(got);
  double largest = 0, error = 0;
  for (const double w : want) largest = std::max(largest, std::abs(w));
  for (size_t i = 0; i < want.size(); ++i) {
    const double e = std::abs(have[i] - want[i]);
    error = std::isnan(e) ? INFINITY : std::max(error, e);
  }
  constexpr double kNothing = 1e-6;  // references below this are compared absolutely
  const bool absolute = largest < kNothing;
  const bool gradient = key.starts_with("grad.");
  double allowed = absolute ? kNothing : (gradient ? tolerance_.gradient : tolerance_.output);
  const double relative = absolute ? error : error / largest;
  const auto moved = movement_.find(key);
  if (!absolute && moved != movement_.end())
    allowed = std::max(allowed, 2 * moved->second / largest);
  errors_[key] = error;
  if (!(relative <= allowed)) ++failed_;
  if (relative / allowed > worst_share_) {
    worst_share_ = relative / allowed;
    worst_ = relative;
    worst_key_ = key;
  }
}

std::vector<std::string> Comparison::missing() const {
  std::vector<std::string> left;
  for (const FileTensor& t : golden_.file().tensors()) {
    const bool result = t.name.starts_with("out.") || t.name.starts_with("grad.");
    if (result && !errors_.contains(t.name)) left.push_back(t.name);
  }
  return left;
}

void Comparison::check_states(Exec& exec, const std::string& prefix,
                              const std::vector<Tensor>& got) {
  for (size_t i = 0; i < got.size(); ++i) check(exec, fmt::format("{}{}", prefix, i), got[i]);
}

void Comparison::check_weights(Exec& exec, ParameterStore& store, const std::string& scope) {
  for (Parameter& p : store.all()) {
    check(exec, "grad.w." + p.spec.name.substr(scope.size()), p.grad);
  }
}

void load_weights(Exec& exec, const GoldenCase& golden, ParameterStore& store,
                  const std::string& scope) {
  for (Parameter& p : store.all()) {
    const std::string key = "w." + p.spec.name.substr(scope.size());
    const FileTensor& stored = golden.file().at(key);
    if (!(stored.shape == p.shape)) {
      throw ConfigError("{}: {} is {}, but the layer's is {}", golden.file().path(), key,
                        stored.shape, p.shape);
    }
    golden.file().read_into(stored, p.master);
    if (golden.rounded_weights && !p.spec.f32) {
      float* weight = host<float>(p.master);
      for (int64_t i = 0; i < p.master.elements(); ++i) weight[i] = to_float(to_bf16(weight[i]));
    }
  }
  for (const FileTensor& stored : golden.file().tensors()) {
    if (stored.name.starts_with("w.") && store.find(scope + stored.name.substr(2)) == nullptr) {
      throw ConfigError("{}: the layer has no weight for {}", golden.file().path(), stored.name);
    }
  }
  publish(exec, store);
}

}  // namespace weft
