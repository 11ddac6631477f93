#include <cmath>
#include <functional>

#include "core/rng.h"
#include "launcher/bench_slope.h"
#include "launcher/bench_support.h"
#include "launcher/commands.h"
#include "launcher/runtime.h"
#include "layers/mixers/registry.h"

namespace weft {
namespace {

struct BenchMixerOptions {
  std::string mixer, precision = "f32", json, acp, chunk_states = "recompute";
  std::vector<std::string> set;
  std::vector<int64_t> lengths = {4096};
  int64_t batch = 0, tokens = 0, heads = 8, dk = 128, dv = 128, hidden = 64, decode = 16;
  int threads = 0, repetitions = 15;
};

bool takes(const std::string& mixer, const std::string& option) {
  for (const MixerInfo& info : mixer_list()) {
    if (info.name != mixer) continue;
    for (const FieldInfo& field : info.options) {
      if (field.name == option) return true;
    }
  }
  return false;
}

OptionTable mixer_options(const BenchMixerOptions& o) {
  std::string text;
  const auto number = [&](const char* key, int64_t value) {
    if (takes(o.mixer, key)) text += fmt::format("{} = {}\n", key, value);
  };
  number("heads", o.heads);
  number("dk", o.dk);
  number("dv", o.dv);
  if (o.mixer == "fox" && !o.acp.empty()) text += fmt::format("acp = {}\n", o.acp == "on");
  for (const std::string& item : o.set) text += item + "\n";
  return OptionTable::parse(text);
}

// Heads that forget geometrically spread: from everything after a token or two to a hundredth per
// token. Trained forgetting attention has such heads side by side, most of them local.
void train_like_gates(ParameterStore& store) {
  Parameter* bias = store.find("fgate_proj.bias");
  if (bias == nullptr) return;
  const int64_t heads = bias->shape.elements();
  for (int64_t h = 0; h < heads; ++h) {
    const double rate =
        std::pow(0.01, heads > 1 ? static_cast<double>(h) / static_cast<double>(heads - 1) : 0.5);
    bias->master.data<float>()[h] = static_cast<float>(-std::log(std::expm1(rate)));
  }
}

struct Times {
  std::vector<double> forward, both;  // seconds of the core
};

class MixerBench {
 public:
  explicit MixerBench(const BenchMixerOptions& o)
      : o_(o),
        type_(o.precision == "f32" ? DType::kF32 : DType::kBF16),
        runtime_(o.threads),
        options_(mixer_options(o)) {
    const Build build{.store = store_, .scope = "", .hidden = o.hidden, .compute = type_};
    mixer_ = make_mixer(o.mixer, MixerBuild{build, options_});
    store_.allocate(runtime_.ledger(), type_, ParameterStore::Gradients::kAllocate);
    store_.initialize(exec(), 1);
    train_like_gates(store_);
    store_.publish(exec());
  }

  nlohmann::json run() {
    nlohmann::json sizes = nlohmann::json::array();
    std::vector<Timing> per_token;
    for (const int64_t length : o_.lengths) {
      const bool first_keeps = o_.chunk_states == "keep";
      sizes.push_back(
          measure(length, first_keeps ? ChunkStates::kKept : ChunkStates::kRecomputed, per_token));
      std::vector<Timing> dropped;
      if (o_.chunk_states == "both") {
        sizes.push_back(measure(length, ChunkStates::kKept, dropped));
      }
    }
    nlohmann::json result = {{"bench", "mixer"},
                             {"mixer", o_.mixer},
                             {"precision", o_.precision},
                             {"heads", o_.heads},
                             {"dk", o_.dk},
                             {"dv", o_.dv},
                             {"threads", exec().threads.size()},
                             {"isa", name_of(exec().isa)}};
    if (o_.lengths.size() > 2) {
      const Slope slope = slope_of(per_token);
      fmt::print("time per token grows with length^({:+.4f} +- {:.4f}) (95 % confidence)\n",
                 slope.value, slope.half_width);
      result["slope"] = {{"value", slope.value}, {"half_width", slope.half_width}};
    }
    if (o_.lengths.size() == 1) result.update(sizes[0]);
    result["sizes"] = sizes;
    return result;
  }
  Exec& exec() { return runtime_.exec(); }

 private:
  Tensor normal(std::string_view name, Shape shape, DType dtype) {
    const RandomStream stream(1, name);
    Tensor t = exec().empty(shape, dtype);
    for (int64_t i = 0; i < t.elements(); ++i) {
      const auto x = static_cast<float>(stream.normal(static_cast<uint64_t>(i)));
      if (dtype == DType::kF32)
        t.data<float>()[i] = x;
      else
        t.data<bf16>()[i] = to_bf16(x);
    }
    return t;
  }

  nlohmann::json measure(int64_t length, ChunkStates states, std::vector<Timing>& per_token) {
    const int64_t batch = o_.batch > 0 ? o_.batch : std::max<int64_t>(1, o_.tokens / length);
    const int64_t tokens = batch * length;
    std::vector<int32_t> documents;
    for (int64_t b = 0; b <= batch; ++b) documents.push_back(static_cast<int32_t>(b * length));
    Sequence sequence = make_sequence(exec(), documents);
    CoreProfile profile;
    sequence.profile = &profile;
    sequence.chunk_states = states;
    const Tensor x = normal("x", {tokens, o_.hidden}, type_);
    const Tensor dy = normal("dy", {tokens, o_.hidden}, DType::kF32);

    Times times;
    StepContext step;
    int64_t saved_bytes = 0;
    const double peak_before = peak_gflops(exec().threads, type_);
    for (int i = -1; i < o_.repetitions; ++i) {  // the first one warms up
      profile.forward = profile.backward = 0;
      step = {};
      const int64_t live = runtime_.ledger().total().live;
      SavedStack saved;
      { const Tensor y = mixer_->forward(exec(), x, {sequence, nullptr, &step}, saved); }
      saved_bytes = runtime_.ledger().total().live - live;
      mixer_->backward(exec(), dy, {sequence, nullptr, &step}, saved);
      if (i < 0) continue;
      times.forward.push_back(profile.forward);
      times.both.push_back(profile.forward + profile.backward);
      per_token.push_back({static_cast<double>(length),
                           (profile.forward + profile.backward) / static_cast<double>(tokens)});
    }
    const double peak_after = peak_gflops(exec().threads, type_);
    return describe(length, batch, profile, times, step,
                    {{"chunk_states", states == ChunkStates::kKept ? "keep" : "recompute"},
                     {"bytes_saved", saved_bytes},
                     {"peak_gflops_before", peak_before},
                     {"peak_gflops_after", peak_after}});
  }

  nlohmann::json describe(int64_t length, int64_t batch, const CoreProfile& profile,
                          const Times& times, const StepContext& step, nlohmann::json out) {
    const Quartiles forward = quartiles(times.forward), both = quartiles(times.both);
    const auto tokens = static_cast<double>(batch * length);
    const double flops = tokens * core_flops(length);
    const double peak =
        0.5 * (out["peak_gflops_before"].get<double>() + out["peak_gflops_after"].get<double>());
    std::string programs;
    for (const std::string& p : profile.programs) programs += (programs.empty() ? "" : ", ") + p;
    out.update({{"seq", length},
                {"batch", batch},
                {"program", programs},
                {"forward_ms", milliseconds(forward)},
                {"forward_backward_ms", milliseconds(both)},
                {"tokens_per_s", tokens / both.median},
                {"gflops", 3 * flops / both.median / 1e9},
                {"share_of_gemm", 3 * flops / both.median / 1e9 / peak}});
    fmt::print(
        "{} ({}) {} T={} B={}{}: forward {:.1f} ms ({:.1f} to {:.1f}), forward+backward {:.1f} ms "
        "({:.1f} to {:.1f}), {:.0f} tokens/s, {:.0f} and {:.0f} % of our GEMM, {:.0f} bytes saved "
        "per token\n",
        o_.mixer, programs, o_.precision, length, batch,
        out["chunk_states"] == "keep" ? ", chunk states kept" : "", forward.median * 1e3,
        forward.q1 * 1e3, forward.q3 * 1e3, both.median * 1e3, both.q1 * 1e3, both.q3 * 1e3,
        tokens / both.median, 100 * flops / forward.median / 1e9 / peak,
        100 * 3 * flops / both.median / 1e9 / peak, out["bytes_saved"].get<double>() / tokens);
    tell_pruning(step, out);
    if (o_.decode > 0) measure_decode(length, out);
    return out;
  }

  // Of the mixing alone: projections of a model as narrow as this one's do not matter, but are
  // known.
  double core_flops(int64_t length) {
    double projections = 0;
    for (const Parameter& p : store_.all()) {
      if (p.shape.dims() == 2 && p.shape[1] > 4) {
        projections += 2.0 * static_cast<double>(p.shape.elements());
      }
    }
    return std::max(0.0, mixer_->flops_per_token(length) - projections);
  }

  static void tell_pruning(const StepContext& step, nlohmann::json& out) {
    for (const PruningReport& report : step.pruning) {
      int64_t kept = 0, causal = 0;
      nlohmann::json heads = nlohmann::json::array();
      for (const auto& head : report.heads) {
        kept += head.kept, causal += head.causal;
        heads.push_back(1.0 - static_cast<double>(head.kept) / static_cast<double>(head.causal));
      }
      const double share = 1.0 - static_cast<double>(kept) / static_cast<double>(causal);
      out["pruned"] = share;
      out["pruned_by_head"] = heads;
      fmt::print("  pruned: {:.0f} % of the blocks that causality leaves\n", 100 * share);
    }
  }

  // Time of one more token after `length` of them, and what is carried for it.
  void measure_decode(int64_t length, nlohmann::json& out) {
    MixerState state;
    SavedStack saved;
    StepContext step;
    const auto count = static_cast<int32_t>(length);
    const Sequence prompt = make_sequence(exec(), {0, count});
    mixer_->forward(exec(), normal("x", {length, o_.hidden}, type_), {prompt, &state, &step},
                    saved);
    saved.clear();
    const Tensor x = normal("next", {1, o_.hidden}, type_);
    std::vector<double> seconds;
    for (int64_t i = 0; i < o_.decode; ++i) {
      const Sequence next = make_sequence(exec(), {0, 1}, {count + static_cast<int32_t>(i)});
      seconds.push_back(seconds_of([&] {
        mixer_->forward(exec(), x, {next, &state, &step}, saved);
      }));
      saved.clear();
    }
    int64_t bytes = 0;
    for (const auto& [name, part] : state.parts()) {
      for (const Tensor& t : part) bytes += t.bytes();
    }
    const Quartiles times = quartiles(seconds);
    out["state_bytes"] = bytes;
    out["decode_ms"] = milliseconds(times);
    fmt::print("  decode: {:.3f} ms for the next token, state of {} bytes\n", times.median * 1e3,
               bytes);
  }

  BenchMixerOptions o_;
  DType type_;
  Runtime runtime_;
  OptionTable options_;
  ParameterStore store_;
  std::unique_ptr<Mixer> mixer_;
};

}  // namespace

void add_bench_mixer(CLI::App& bench) {
  auto o = std::make_shared<BenchMixerOptions>();
  CLI::App* command = bench.add_subcommand(
      "mixer", "The core of one token mixer (no projections): forward, backward, decoding");
  command->footer(
      "Example: weft bench mixer --mixer gla --seq 4096 --heads 8 --dk 128 --dv 128 --json "
      "gla.json\n"
      "         weft bench mixer --mixer retnet --seq 2048,8192,32768,65536 --tokens 65536   "
      "(slope)\n"
      "         weft bench mixer --mixer fox --acp on --seq 16384\n"
      "         weft bench mixer --mixer kda --chunk-states both   (formed again in backward, or "
      "kept)\n"
      "JSON: forward_ms, forward_backward_ms, decode_ms {median, q1, q3, repetitions}, "
      "tokens_per_s, gflops,\n"
      "share_of_gemm, peak_gflops_before, peak_gflops_after, bytes_saved, state_bytes, program, "
      "chunk_states,\npruned; for "
      "several lengths the same in `sizes`, and `slope` {value, half_width}: the exponent of the "
      "length in\n"
      "the time per token, with its 95 % confidence interval.");
  command->add_option("--mixer", o->mixer, "Which one; weft info --mixers lists them")->required();
  command->add_option("--seq", o->lengths, "Tokens of a document, one number or several")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  command->add_option("--batch", o->batch, "Documents; 0: tokens / seq")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--tokens", o->tokens, "Tokens of all documents, when no batch is given")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--heads", o->heads, "Heads")->check(CLI::PositiveNumber);
  command->add_option("--dk", o->dk, "Key width of a head")->check(CLI::PositiveNumber);
  command->add_option("--dv", o->dv, "Value width of a head")->check(CLI::PositiveNumber);
  command->add_option("--hidden", o->hidden, "Width of the input; the core does not depend on it")
      ->check(CLI::PositiveNumber);
  command->add_option("--set", o->set, "Another option of the mixer, as TOML: 'window = 512'");
  command->add_option("--acp", o->acp, "Pruning of fox")->check(CLI::IsMember({"on", "off"}));
  command->add_option("--precision", o->precision, "Of activations and weights")
      ->check(CLI::IsMember({"f32", "bf16"}));
  command
      ->add_option("--chunk-states", o->chunk_states,
                   "States between chunks: formed again in backward, kept by forward, or one after "
                   "the other")
      ->check(CLI::IsMember({"recompute", "keep", "both"}));
  command->add_option("--decode", o->decode, "Tokens to decode after the document; 0: none")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--threads", o->threads, "0: every core");
  command->add_option("--repetitions", o->repetitions, "Of every measurement")
      ->check(CLI::PositiveNumber);
  command->add_option("--json", o->json, "Writes the result to this file");
  command->callback([o] {
    if (!o->acp.empty() && o->mixer != "fox") {
      throw ConfigError("--acp {}: mixer {} prunes nothing; it is an option of fox", o->acp,
                        o->mixer);
    }
    const nlohmann::json result = MixerBench(*o).run();
    if (!o->json.empty()) write_json(o->json, result);
  });
}

}  // namespace weft
