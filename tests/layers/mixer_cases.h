#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>

#include "core/host_access.h"
#include "layers/basic/cast.h"
#include "layers/mixers/registry.h"
#include "parallel/comm/thread_comm.h"
#include "parallel/gradient_sync.h"
#include "parallel/parameter_values.h"
#include "tests/layers/gradient_fixture.h"
#include "tests/support/slices.h"

// Every line of mixers.def, and variants of some, small, on one rank and on several.
namespace weft::test {

// Sums of some hundred f32 numbers in another order.
inline constexpr double kTolerance = 2e-5;

inline bool takes(const std::string& mixer, const std::string& option) {
  for (const MixerInfo& info : mixer_list()) {
    if (info.name != mixer) continue;
    for (const FieldInfo& field : info.options) {
      if (field.name == option) return true;
    }
  }
  return false;
}

// Variants with options that change the state between spans.
inline const std::vector<std::pair<std::string, std::string>> kVariants = {
    {"bla", "normalize = true"},
    {"bla", "short_conv = true\noutput_gate = false"},
    {"bla", "feature_map = 'silu'"},
    {"bla", "feature_map = 'relu'"},
    {"bla", "feature_map = 'identity'"},
    {"retnet", "short_conv = true"},
    {"retnet", "rope = false"},
    {"lightning", "short_conv = true\nmap_values = true"},
    {"lightning", "layer_factor = 0.5"},
    {"gla", "short_conv = true"},
    {"gla", "gate_floor = -0.045"},  // holds about every other
    {"gfw", "short_conv = true"},
    {"gateloop", "short_conv = true"},
    {"hgrn2", "lower_bound = 0.3"},
    {"softmax", "window = 9\nqk_norm = true\nqk_norm_eps = 0.1"},
    {"softmax", "output_gate = true\nrope_width = 4\nscale = 0.2"},
    {"softmax", "qk_norm = true\nqk_norm_joint = true\nbias = true"},
    {"softmax", "qk_norm = true\nqk_norm_joint = true\nqk_norm_offset = true"},
    {"softmax", "rope_scaling = 'yarn'\nrope_factor = 4.0\nrope_length = 32\nrope_base = 100.0"},
    {"lightning", "decay_rule = 'minimax'\nmap_values = true\ngate = 'sigmoid'\njoint_norm = true"},
    {"mla", "rope_width = 4\nrope = true\nq_rank = 7\nrope_scaling = 'llama3'\nrope_factor = 8.0"},
    {"fox", "pro = true"},
    {"fox", "acp = true"},
    {"deltanet", "short_conv = false"},
    {"deltanet", "negative_eigenvalues = true"},
    {"gated_deltanet", "negative_eigenvalues = true"},
    {"kda", "negative_eigenvalues = true"},
    {"mamba2", "groups = 2"},
    {"mamba2", "groups = 2\nnorm_groups = 1"},
    {"mamba", "select_norm = true"},
    {"gsa", "slots = 5"},
    {"gateloop", "output_gate = false\ngate_divisor = 1"},
    {"gfw", "output_gate = false\ngate_divisor = 1"},
    {"mom", "inner = 'gla'\ngate_rank = 5"},
    {"mom", "inner = 'gla'\nsingle_kv_proj = true\nshared_memory = false"},
    {"mom", "inner = 'deltanet'\nsingle_kv_proj = true"},
    {"mom", "inner = 'bla'\nshort_conv = false\nmemories = 3"},
    {"mom", "inner = 'lightning'\nshared_memory = false\noutput_gate = false"},
    {"liger", "form = 'hgrn2'\nlower_bound = 0.3\nwindow = 9"},
    {"liger", "form = 'rwkv6'\nbias = true"},
    {"liger", "form = 'mamba2'\nwindow = 9"},
    {"liger", "form = 'mlstm'\ntau = 1"},
    {"liger", "form = 'gsa'\nslots = 3"},
    {"ttt", "mini_batch = 16"},
    {"ttt", "inner_norm = true\neta_base = 0.2"},
    {"ttt", "inner_norm = true\neta_base = 0.2\nmini_batch = 5"},
    {"titans", "mini_batch = 7"}};

// A mixer of mixers.def, by its name, or one with other options: "fox, pro = true".
inline std::string name_in(const std::string& law) { return law.substr(0, law.find(',')); }

inline OptionTable law_options(const std::string& law, int64_t heads = 4) {
  const std::string mixer = name_in(law);
  std::string text = mixer == law ? "" : law.substr(mixer.size() + 1) + "\n";
  if (takes(mixer, "heads")) text += fmt::format("heads = {}\n", heads);
  if (takes(mixer, "dk")) text += "dk = 8\n";
  const bool square = law.find("inner_norm") != std::string::npos;  // dk = dv
  if (takes(mixer, "dv") && takes(mixer, "dk")) text += square ? "dv = 8\n" : "dv = 12\n";
  if (takes(mixer, "kv_heads")) text += fmt::format("kv_heads = {}\n", heads / 2);
  // Tensor ranks share the rows of mamba2's state evenly.
  if (takes(mixer, "state")) text += mixer == "mamba2" ? "state = 12\n" : "state = 5\n";
  if (takes(mixer, "inner") && mixer != "mom") text += "inner = 36\n";
  if (takes(mixer, "aux_loss")) text += "aux_loss = 0\n";  // its own loss
  if (takes(mixer, "value_heads")) text += fmt::format("value_heads = {}\n", 2 * heads);
  return OptionTable::parse(text);
}

// A mixer whose weights depend only on their names: equal on every rank, or this rank's slices.
struct Made {
  Made(Rig& rig, Exec& exec, const std::string& name, int64_t heads = 4,
       const Coordinates& here = {}, Communicator* tensor_ranks = nullptr, DType type = DType::kF32)
      : options(law_options(name, heads)), store(here) {
    const Build build{.store = store,
                      .scope = "t.",
                      .hidden = kHidden,
                      .compute = type,
                      .tensor_ranks = tensor_ranks};
    mixer = make_mixer(name_in(name), MixerBuild{build, options});
    store.allocate(rig.pool, type, ParameterStore::Gradients::kAllocate);
    initialize(exec, store, 3);
    for (Parameter& p : store.all()) {
      if (p.spec.init.kind != Init::Kind::kNormal) continue;
      const Tensor fresh = rig.normal(p.spec.name, p.spec.global, 0.3);
      each_element(p, here, [&](size_t local, size_t whole) {
        host<float>(p.master)[local] = host<float>(fresh)[whole];
      });
    }
    publish(exec, store);
  }
  OptionTable options;
  ParameterStore store;
  std::unique_ptr<Mixer> mixer;
};

// The pieces of a document that end at `borders`, in sequence with carried states, and backward if
// there is a gradient dy.
struct InPieces {
  InPieces(Rig& rig, const Mixer& mixer, const Tensor& x, const Tensor& dy,
           const std::vector<int32_t>& borders)
      : y(rig.exec.empty(x.shape())), dx(rig.exec.empty(x.shape())) {
    MixerState state, d_state;
    std::vector<SavedStack> saved(borders.size());
    std::vector<StepContext> steps(borders.size());
    std::vector<Sequence> sequences;
    for (size_t i = 0; i < borders.size(); ++i) {
      const int32_t begin = i == 0 ? 0 : borders[i - 1], count = borders[i] - begin;
      sequences.push_back(make_sequence({0, count}, {begin}));
      const Tensor part = mixer.forward(rig.exec, x.row_range(begin, count),
                                        {sequences[i], &state, &steps[i]}, saved[i]);
      put(part, y, begin);
    }
    for (size_t i = borders.size(); dy.defined() && i-- > 0;) {
      const int32_t begin = i == 0 ? 0 : borders[i - 1], count = borders[i] - begin;
      const Tensor part = mixer.backward(rig.exec, dy.row_range(begin, count),
                                         {sequences[i], &d_state, &steps[i]}, saved[i]);
      put(part, dx, begin);
    }
  }
  static void put(const Tensor& part, const Tensor& to, int64_t begin) {
    std::copy_n(host<float>(part), part.elements(), host<float>(to) + begin * kHidden);
  }
  Tensor y, dx;
};

inline std::vector<int32_t> single_tokens(int64_t tokens) {
  std::vector<int32_t> borders;
  for (int32_t t = 1; t <= tokens; ++t) borders.push_back(t);
  return borders;
}

struct Degrees {
  int tensor = 1, sequence = 1;
  int64_t heads = 4;
  SpanTravel travel = {};
  DType type = DType::kF32;
};

// y, dx and the gradients of the weights under tensor and sequence ranks, combined.
struct OverRanks {
  OverRanks(Rig& rig, const std::string& name, const Tensor& x, const Tensor& dy,
            const std::vector<int32_t>& documents, int64_t rows, const Degrees& degrees)
      : y(rig.exec.zeros(x.shape())), dx(rig.exec.zeros(x.shape())) {
    std::mutex mutex;
    const int size = degrees.tensor * degrees.sequence;
    run_ranks(size, [&](ThreadComm& comm, Exec& exec) {
      Layout layout;
      layout.rank = comm.rank(), layout.world = size;
      layout.degrees.tensor = degrees.tensor;
      layout.degrees.sequence = degrees.sequence;
      layout.here = coordinates_of(layout.degrees, layout.rank, size);
      const Mesh mesh(layout, [&](int color, int key, const std::string& axis) {
        return comm.split(color, key, axis);
      });
      Communicator &tensor = mesh.over({Axis::kTensor}), &ranks = mesh.over({Axis::kSequence});
      Rig mine(1);
      Made made(mine, exec, name, degrees.heads, layout.here, &tensor, degrees.type);
      const Sequence sequence = make_sequence(documents, rows, ranks, degrees.travel);
      const Tensor part = exec.empty({sequence.tokens(), kHidden}),
                   d_part = exec.empty({sequence.tokens(), kHidden});
      move(sequence, ranks, rows, [&](int64_t local, int64_t whole) {
        std::copy_n(host<float>(x) + whole, kHidden, host<float>(part) + local);
        std::copy_n(host<float>(dy) + whole, kHidden, host<float>(d_part) + local);
      });
      SavedStack saved;
      StepContext step;
      const Tensor read = in_type(exec, part, degrees.type);
      const Tensor out = made.mixer->forward(exec, read, {sequence, nullptr, &step}, saved);
      const Tensor d_in = made.mixer->backward(exec, d_part, {sequence, nullptr, &step}, saved);
      // Parts of sums over the tensor ranks.
      tensor.all_reduce(exec, out, ReduceOp::kSum);
      tensor.all_reduce(exec, d_in, ReduceOp::kSum);
      GradientSync(made.store, mesh, Zero::kWhole).reduce_gradients(exec);
      const std::lock_guard lock(mutex);
      move(sequence, ranks, rows, [&](int64_t local, int64_t whole) {
        std::copy_n(host<float>(out) + local, kHidden, host<float>(y) + whole);
        std::copy_n(host<float>(d_in) + local, kHidden, host<float>(dx) + whole);
      });
      for (Parameter& p : made.store.all()) {
        if (p.spec.buffer) continue;
        std::vector<double>& all = weights[p.spec.name];
        all.resize(static_cast<size_t>(p.spec.global.elements()));
        each_element(p, layout.here,
                     [&](size_t local, size_t whole) { all[whole] = host<float>(p.grad)[local]; });
      }
    });
  }

  template <class Move>
  static void move(const Sequence& sequence, const Communicator& comm, int64_t rows, Move each) {
    const auto span = sequence.spans[static_cast<size_t>(comm.rank())];
    const int64_t length = sequence.whole.back() / rows, count = span.end - span.begin;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t t = 0; t < count; ++t) {
        each((row * count + t) * kHidden, (row * length + span.begin + t) * kHidden);
      }
    }
  }

  double largest() const {
    double largest = 0;
    for (const auto& [name, grad] : weights) {
      for (const double g : grad) largest = std::max(largest, std::abs(g));
    }
    return largest;
  }

  Tensor y, dx;
  std::map<std::string, std::vector<double>> weights;
};

// Gradients of weights in which almost everything cancels are rounding errors of their terms, whose
// size is that of other weights' gradients.
inline testing::AssertionResult near_enough(const std::vector<double>& got,
                                            const std::vector<double>& want, double largest) {
  double own = 0;
  for (const double w : want) own = std::max(own, std::abs(w));
  for (size_t i = 0; i < want.size(); ++i) {
    const double allowed = 5 * kTolerance * std::max(own, 0.01 * largest);
    if (!(std::abs(got[i] - want[i]) <= allowed)) {
      return testing::AssertionFailure() << "element " << i << " is " << got[i] << ", expected "
                                         << want[i] << ", allowed error " << allowed;
    }
  }
  return testing::AssertionSuccess();
}

// All rules that a memory of a mixture can have.
inline std::vector<std::string> inner_rules() {
  for (const MixerInfo& mixer : mixer_list()) {
    if (mixer.name != "mom") continue;
    for (const FieldInfo& field : mixer.options) {
      if (field.name == "inner") return field.choices;
    }
  }
  return {};
}

inline std::vector<std::string> mixers_and_variants() {
  std::vector<std::string> names;
  for (const MixerInfo& mixer : mixer_list()) names.push_back(mixer.name);
  for (const auto& [mixer, options] : kVariants) names.push_back(mixer + "," + options);
  for (const std::string& inner : inner_rules()) {
    names.push_back("mom,inner = '" + inner + "'");
  }
  return names;
}

inline std::string name_of_case(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  }
  return name;
}

}  // namespace weft::test
