#include "launcher/app/commands.h"
#include "launcher/app/measure.h"
#include "launcher/app/peak_probes.h"
#include "launcher/bench/bench_mixer_versus.h"
#include "launcher/bench/bench_slope.h"
#include "launcher/bench/mixer_rig.h"
#include "layers/mixers/registry.h"

namespace weft {
namespace {

constexpr const char* kAll = "all";

struct BenchMixerOptions {
  MixerChoice choice;
  std::string precision = "f32", json, acp, against, chunk_states = "keep";
  std::vector<int64_t> lengths = {4096};
  int64_t batch = 0, tokens = 0, decode = 16;
  int threads = 0, repetitions = 15;

  int64_t documents(int64_t length) const {
    return batch > 0 ? batch : std::max<int64_t>(1, tokens / length);
  }
};

nlohmann::json describe(const BenchMixerOptions& o, const MixerInputs& inputs,
                        const std::vector<MixerRig::Sample>& samples, const PeakProbes& probes) {
  std::vector<double> forwards, boths;
  for (const auto& s : samples) forwards.push_back(s.forward), boths.push_back(s.both());
  const Quartiles forward = quartiles(forwards), both = quartiles(boths);
  const MixerRig::Sample& last = samples.back();
  const auto tokens = static_cast<double>(inputs.sequence.tokens());
  nlohmann::json out = {{"seq", inputs.length},
                        {"batch", inputs.sequence.count()},
                        {"program", last.programs},
                        {"forward_ms", milliseconds(forward)},
                        {"forward_backward_ms", milliseconds(both)},
                        {"tokens_per_s", tokens / both.median},
                        {"bytes_saved", last.bytes_saved},
                        {"chunk_states", o.chunk_states}};
  out.update(probes.json());
  const double flops = last.flops * (1 - last.pruned_share(out)) / 1e9;
  out["gflops"] = 3 * flops / both.median;
  out["share_of_gemm"] = 3 * flops / both.median / probes.gemm();
  out["share_of_gemm_forward"] = flops / forward.median / probes.gemm();
  out["share_of_registers"] = 3 * flops / both.median / probes.registers();
  fmt::print(
      "{} ({}) {} T={} B={}{}: forward {:.1f} ms ({:.1f} to {:.1f}), forward+backward {:.1f} ms "
      "({:.1f} to {:.1f}), {:.0f} tokens/s, {:.0f} and {:.0f} % of our GEMM, {:.0f} % of the "
      "registers' peak, {:.0f} bytes saved per token{}\n",
      o.choice.mixer, last.programs, o.precision, inputs.length, inputs.sequence.count(),
      o.chunk_states == "keep" ? "" : ", chunk states formed again", forward.median * 1e3,
      forward.q1 * 1e3, forward.q3 * 1e3, both.median * 1e3, both.q1 * 1e3, both.q3 * 1e3,
      tokens / both.median, 100 * out["share_of_gemm_forward"].get<double>(),
      100 * out["share_of_gemm"].get<double>(), 100 * out["share_of_registers"].get<double>(),
      static_cast<double>(last.bytes_saved) / tokens, probes.warning());
  if (out.contains("pruned")) {
    fmt::print("  pruned: {:.0f} % of the blocks that causality leaves\n",
               100 * out["pruned"].get<double>());
  }
  return out;
}

void measure_decode(const BenchMixerOptions& o, const MixerRig& rig, int64_t length,
                    nlohmann::json& out) {
  const MixerRig::Decoded decoded = rig.decode(length, o.decode);
  const Quartiles times = quartiles(decoded.seconds);
  out["state_bytes"] = decoded.state_bytes;
  out["decode_ms"] = milliseconds(times);
  fmt::print("  decode: {:.3f} ms for the next token, state of {} bytes\n", times.median * 1e3,
             decoded.state_bytes);
}

// Cycles through all lengths, so that a slow drift of the machine affects all equally.
nlohmann::json measure_mixer(const BenchMixerOptions& o, const MixerRig& rig, PeakProbes& probes) {
  const ChunkStates states =
      o.chunk_states == "keep" ? ChunkStates::kKept : ChunkStates::kRecomputed;
  std::vector<MixerInputs> inputs;
  for (const int64_t length : o.lengths) inputs.push_back(rig.inputs(length, o.documents(length)));
  std::vector<std::vector<MixerRig::Sample>> samples(inputs.size());
  probes.begin();
  for (int i = -1; i < o.repetitions; ++i) {  // the first one warms up
    for (size_t l = 0; l < inputs.size(); ++l) {
      MixerRig::Sample sample = rig.run(inputs[l], states);
      if (i >= 0) samples[l].push_back(std::move(sample));
    }
  }
  probes.finish();

  nlohmann::json sizes = nlohmann::json::array();
  std::vector<Timing> per_token;
  for (size_t l = 0; l < inputs.size(); ++l) {
    sizes.push_back(describe(o, inputs[l], samples[l], probes));
    if (o.decode > 0) measure_decode(o, rig, inputs[l].length, sizes.back());
    for (const auto& s : samples[l]) {
      per_token.push_back({static_cast<double>(inputs[l].length),
                           s.both() / static_cast<double>(inputs[l].sequence.tokens())});
    }
  }
  nlohmann::json result = {{"sizes", sizes}};
  if (o.lengths.size() == 1) result.update(sizes[0]);
  if (o.lengths.size() > 2) {
    const Slope slope = slope_of(per_token);
    fmt::print("{}: time per token grows with length^({:+.4f} +- {:.4f}) (95 % confidence)\n",
               o.choice.mixer, slope.value, slope.half_width);
    result["slope"] = {{"value", slope.value}, {"half_width", slope.half_width}};
  }
  return result;
}

// The baseline that a flag requests: another mixer, or this one under another setting.
std::optional<Versus> versus_of(const BenchMixerOptions& o, Runtime& runtime) {
  MixerChoice other = o.choice;
  if (!o.against.empty()) {
    other.mixer = o.against;
    other.set.clear();
    return Versus{o.against, std::make_unique<MixerRig>(runtime, other)};
  }
  if (o.acp == "both") {
    other.set.emplace_back("acp = false");
    return Versus{"without pruning", std::make_unique<MixerRig>(runtime, other)};
  }
  if (o.chunk_states == "both") {
    return Versus{"chunk states formed again", std::make_unique<MixerRig>(runtime, other),
                  ChunkStates::kRecomputed};
  }
  return std::nullopt;
}

nlohmann::json run(BenchMixerOptions o, Runtime& runtime, PeakProbes& probes) {
  const std::optional<Versus> versus = versus_of(o, runtime);
  if (!o.acp.empty()) o.choice.set.push_back(o.acp == "off" ? "acp = false" : "acp = true");
  const MixerRig rig(runtime, o.choice);
  nlohmann::json result = {{"bench", "mixer"},
                           {"mixer", o.choice.mixer},
                           {"precision", o.precision},
                           {"threads", runtime.exec().threads.size()},
                           {"isa", name_of(runtime.exec().isa)}};
  result.update(rig.widths());
  if (versus) {
    std::vector<MixerInputs> inputs;
    for (const int64_t length : o.lengths)
      inputs.push_back(rig.inputs(length, o.documents(length)));
    result.update(compare({rig, *versus, o.repetitions}, inputs, probes));
    for (size_t l = 0; l < inputs.size() && o.decode > 0; ++l) {
      measure_decode(o, rig, inputs[l].length, result["lengths"][l]);
    }
    if (inputs.size() == 1) result.update(result["lengths"][0]);
  } else {
    result.update(measure_mixer(o, rig, probes));
  }
  return result;
}

// Measures one mixer, or every line of mixers.def in turn.
nlohmann::json run(BenchMixerOptions o) {
  o.choice.dtype = o.precision == "f32" ? DType::kF32 : DType::kBF16;
  Runtime runtime(o.threads);
  PeakProbes probes(runtime.exec(), o.choice.dtype);
  if (o.choice.mixer != kAll) return run(o, runtime, probes);
  nlohmann::json results = nlohmann::json::array();
  for (const MixerInfo& mixer : mixer_list()) {
    if (mixer.name == o.against) continue;
    o.choice.mixer = mixer.name;
    results.push_back(run(o, runtime, probes));
  }
  return results;
}

void check(const BenchMixerOptions& o) {
  if (o.choice.mixer == kAll && !o.choice.set.empty()) {
    throw ConfigError(
        "--set '{}' with --mixer all: options differ "
        "from mixer to mixer; name the one that it is for",
        o.choice.set.front());
  }
  if (!o.acp.empty() && o.choice.mixer != "fox") {
    throw ConfigError("--acp {}: mixer {} prunes nothing; it is an option of fox", o.acp,
                      o.choice.mixer);
  }
  const int flags = (o.acp == "both") + (o.chunk_states == "both") + !o.against.empty();
  if (flags > 1) {
    throw ConfigError(
        "--against, --acp both and --chunk-states both "
        "compare two things each; take one of them at a time");
  }
}

}  // namespace

void add_bench_mixer(CLI::App& bench) {
  auto o = std::make_shared<BenchMixerOptions>();
  CLI::App* command = bench.add_subcommand(
      "mixer", "The core of one token mixer (no projections): forward, backward, decoding");
  command->footer(
      "Examples: weft bench mixer --mixer gla --seq 4096 "
      "--heads 8 --dk 128 --dv 128 --json gla.json\n"
      "  weft bench mixer --mixer retnet --seq "
      "2048,4096,8192,16384,32768,65536 --tokens 65536   (slope)\n"
      "  weft bench mixer --mixer gla --against softmax --seq 128,256,512,1024,2048 --tokens 8192\n"
      "  weft bench mixer --mixer fox --acp both --seq 4096,8192,16384   (how much pruning saves)\n"
      "  weft bench mixer --mixer fox --set 'pro = true' --acp both   (the same of FoX (Pro))\n"
      "  weft bench mixer --mixer kda --chunk-states both   (kept, or formed again in backward)\n"
      "  weft bench mixer --mixer all --seq 2048,8192,32768 --tokens 32768 --json all.json\n"
      "JSON: forward_ms, forward_backward_ms, decode_ms "
      "{median, q1, q3, repetitions}, tokens_per_s, gflops,\n"
      "share_of_gemm and share_of_gemm_forward (of our own "
      "GEMM), share_of_registers, peak_gflops_before,\n"
      "peak_gflops_after, register_peak_gflops, noisy, "
      "bytes_saved, state_bytes, program, chunk_states, pruned;\n"
      "for several lengths the same in `sizes`, and `slope` "
      "{value, half_width}: the exponent of the length in the\n"
      "time per token, with its 95 % confidence interval. What "
      "compares two gives `lengths` with `core` and `layer`:\n"
      "time of the other over ours, in turns A-B-B-A, with "
      "and without projections; `from` and `layer_from`: the\n"
      "length from which ours is faster at every length measured, "
      "or null; `bytes_saved` and `other_bytes_saved`,\n"
      "`pruned`, and state and decoding of ours. --mixer all gives an array of such results.");
  MixerChoice& c = o->choice;
  command->add_option("--mixer", c.mixer, "Which one, or all; weft info --mixers lists them")
      ->required();
  command->add_option("--seq", o->lengths, "Tokens of a document, one number or several")
      ->delimiter(',')
      ->check(CLI::PositiveNumber);
  command->add_option("--batch", o->batch, "Documents; 0: tokens / seq")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--tokens", o->tokens, "Tokens of all documents, when no batch is given")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--heads", c.heads, "Heads")->check(CLI::PositiveNumber);
  command
      ->add_option("--dk", c.dk,
                   "Key width of a head; mamba2: its state. Unless given 128, and 16 for rebased, "
                   "whose state has dk (dk + 1) / 2 rows")
      ->check(CLI::PositiveNumber);
  command->add_option("--dv", c.dv, "Value width of a head; mamba, mamba2, s4: heads x dv channels")
      ->check(CLI::PositiveNumber);
  CLI::Option* hidden = command->add_option("--hidden", c.hidden,
                                            "Width of the input, which the core does not depend on "
                                            "(rwkv7: heads x dk). With --against heads x dk "
                                            "unless given, so that layers are those of a model");
  hidden->check(CLI::PositiveNumber);
  command->add_option("--set", c.set, "Another option of the mixer, as TOML: 'window = 512'");
  command->add_option("--against", o->against, "Another mixer, to measure beside");
  command->add_option("--acp", o->acp, "Pruning of fox")
      ->check(CLI::IsMember({"on", "off", "both"}));
  command->add_option("--precision", o->precision, "Of activations and weights")
      ->check(CLI::IsMember({"f32", "bf16"}));
  command
      ->add_option("--chunk-states", o->chunk_states,
                   "States between chunks: kept by forward, formed "
                   "again in backward, or both beside each other")
      ->check(CLI::IsMember({"recompute", "keep", "both"}));
  command->add_option("--decode", o->decode, "Tokens to decode after the document; 0: none")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--threads", o->threads, "0: every core");
  command
      ->add_option("--repetitions", o->repetitions,
                   "Of every measurement; pairs where two are compared")
      ->check(CLI::PositiveNumber);
  command->add_option("--json", o->json, "Writes the result to this file");
  command->callback([o, hidden] {
    check(*o);
    if (!o->against.empty() && hidden->count() == 0) {
      const int64_t dk = o->choice.dk > 0 ? o->choice.dk : default_key_width(o->against);
      o->choice.hidden = o->choice.heads * dk;
    }
    const nlohmann::json result = run(*o);
    if (!o->json.empty()) write_json(o->json, result);
  });
}

}  // namespace weft
