#include "launcher/bench/bench_mixer_versus.h"

namespace weft {
namespace {

struct Pairs {
  std::vector<double> core, layer;  // ratios of times
  std::vector<double> ours, other;  // seconds of the core
  MixerRig::Sample last, last_other;
};

Pairs measure_pairs(const MixerRig& ours, const Versus& other, const MixerInputs& inputs,
                    int pairs) {
  // Mixers of equal width read the same x; the other may have another width (rwkv7).
  const MixerInputs theirs = other.rig->inputs(inputs.length, inputs.sequence.count());
  const auto run_ours = [&] { return ours.run(inputs, ChunkStates::kKept); };
  const auto run_other = [&] { return other.rig->run(theirs, other.states); };
  run_ours(), run_other();  // warm up
  Pairs p;
  for (int i = 0; i < pairs; ++i) {
    MixerRig::Sample a1 = run_ours(), b1 = run_other(), b2 = run_other(), a2 = run_ours();
    p.core.push_back((b1.both() + b2.both()) / (a1.both() + a2.both()));
    p.layer.push_back((b1.layer + b2.layer) / (a1.layer + a2.layer));
    p.ours.push_back(0.5 * (a1.both() + a2.both()));
    p.other.push_back(0.5 * (b1.both() + b2.both()));
    p.last = std::move(a2), p.last_other = std::move(b2);
  }
  return p;
}

std::string told(const nlohmann::json& from) {
  return from.is_null() ? "at no length measured"
                        : fmt::format("from {} tokens on", from.get<int64_t>());
}

}  // namespace

nlohmann::json faster_from(const std::vector<std::pair<int64_t, double>>& ratios) {
  nlohmann::json from = nullptr;
  for (auto r = ratios.rbegin(); r != ratios.rend() && r->second > 1; ++r) from = r->first;
  return from;
}

nlohmann::json compare(const Comparison& comparison, const std::vector<MixerInputs>& inputs,
                       PeakProbes& probes) {
  const auto& [ours, other, pairs] = comparison;
  nlohmann::json lengths = nlohmann::json::array();
  std::vector<std::pair<int64_t, double>> core, layer;
  probes.begin();
  for (const MixerInputs& in : inputs) {
    const Pairs p = measure_pairs(ours, other, in, pairs);
    const Quartiles c = quartiles(p.core), l = quartiles(p.layer);
    const Quartiles a = quartiles(p.ours), b = quartiles(p.other);
    core.emplace_back(in.length, c.median);
    layer.emplace_back(in.length, l.median);
    nlohmann::json out = {{"seq", in.length},
                          {"batch", in.sequence.count()},
                          {"program", p.last.programs},
                          {"core", to_json(c)},
                          {"layer", to_json(l)},
                          {"forward_backward_ms", milliseconds(a)},
                          {"other_forward_backward_ms", milliseconds(b)},
                          {"bytes_saved", p.last.bytes_saved},
                          {"other_bytes_saved", p.last_other.bytes_saved}};
    const double pruned = p.last.pruned_share(out);
    const auto tokens = static_cast<double>(in.sequence.tokens());
    fmt::print(
        "T={} B={}: {} {:.2f} ms, {} {:.2f} ms: {:.3f} times as fast ({:.3f} to {:.3f}), with "
        "projections {:.3f}; {:.0f} and {:.0f} bytes saved per token{}\n",
        in.length, in.sequence.count(), ours.name(), a.median * 1e3, other.name, b.median * 1e3,
        c.median, c.q1, c.q3, l.median, static_cast<double>(p.last.bytes_saved) / tokens,
        static_cast<double>(p.last_other.bytes_saved) / tokens,
        out.contains("pruned") ? fmt::format(", {:.0f} % pruned", 100 * pruned) : "");
    lengths.push_back(std::move(out));
  }
  probes.finish();
  nlohmann::json result = {{"against", other.name},
                           {"lengths", lengths},
                           {"from", faster_from(core)},
                           {"layer_from", faster_from(layer)}};
  result.update(probes.json());
  if (probes.noisy()) fmt::print("{}\n", probes.warning());
  if (inputs.size() > 1) {
    fmt::print("{} is faster than {} {}; with projections {}\n", ours.name(), other.name,
               told(result["from"]), told(result["layer_from"]));
  }
  return result;
}

}  // namespace weft
