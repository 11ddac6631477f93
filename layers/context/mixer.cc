#include "layers/context/mixer.h"

#include <algorithm>

#include "layers/context/divisor.h"

namespace weft {

namespace {

void width_fields(FieldVisitor& f, int64_t& dk, int64_t& dv) {
  f("dk", dk, "key width per head; 0: hidden / heads", between(0, kLargestExtent));
  f("dv", dv, "value width per head; 0: hidden / heads", between(0, kLargestExtent));
}

}  // namespace

void fields(FieldVisitor& f, HeadOptions& c) {
  f("heads", c.heads, "query heads; must be given", between(1, kLargestExtent));
  f("kv_heads", c.kv_heads, "key and value heads, shared by groups of query heads; 0: as heads",
    between(0, kLargestExtent));
  width_fields(f, c.dk, c.dv);
}

void head_fields(FieldVisitor& f, int64_t& heads, int64_t& dk, int64_t& dv) {
  f("heads", heads, "must be given", between(1, kLargestExtent));
  width_fields(f, dk, dv);
}

std::string place_of(const OptionTable& options, std::string_view key) {
  const std::string name = fmt::format("{}.{}", options.path(), key);
  const ConfigNode* node = options.node().find(key);
  return node == nullptr ? name : fmt::format("{}: {}", node->place.text(), name);
}

namespace {

// Whole heads on every rank; kv heads too, or each shared by as many ranks as the others.
HeadOptions cut(const MixerBuild& build, HeadOptions o) {
  const auto [index, size] = build.store.here()[Axis::kTensor];
  o.all_heads = o.heads;
  if (size == 1) return o;
  if (o.heads % size != 0) {
    throw ConfigError(
        "{} = {} cannot be cut over parallel.tensor = {} ranks, which hold as many whole "
        "heads each; the nearest number of heads is {}",
        place_of(build.options, "heads"), o.heads, size,
        std::max<int64_t>(1, (o.heads + size / 2) / size) * size);
  }
  if (o.kv_heads % size != 0 && size % o.kv_heads != 0) {
    throw ConfigError(
        "{} = {} cannot be cut over parallel.tensor = {} ranks: one must divide the "
        "other; the nearest number of kv heads is {}",
        place_of(build.options, "kv_heads"), o.kv_heads, size,
        o.kv_heads > size ? o.kv_heads / size * size : nearest_divisor(size, o.kv_heads));
  }
  o.heads /= size;
  o.first_head = index * o.heads;
  o.kv_replicas = static_cast<int>(std::max<int64_t>(1, size / o.kv_heads));
  o.kv_heads = std::max<int64_t>(1, o.kv_heads / size);
  return o;
}

}  // namespace

HeadOptions resolve(const MixerBuild& build, HeadOptions o, HeadWidths widths) {
  if (o.heads < 1) {
    constexpr int64_t kUsualWidth = 64;
    throw ConfigError("{}: this mixer needs heads = N in its table, for example heads = {}",
                      build.options.path(),
                      nearest_divisor(build.hidden, build.hidden / kUsualWidth));
  }
  if ((o.dk == 0 || o.dv == 0) && build.hidden % o.heads != 0) {
    throw ConfigError("{} = {} does not divide model.hidden = {}; the nearest that does is {}{}",
                      place_of(build.options, "heads"), o.heads, build.hidden,
                      nearest_divisor(build.hidden, o.heads),
                      widths == HeadWidths::kOptions ? " (or set dk and dv)" : "");
  }
  if (o.kv_heads == 0) o.kv_heads = o.heads;
  if (o.dk == 0) o.dk = build.hidden / o.heads;
  if (o.dv == 0) o.dv = build.hidden / o.heads;
  if (o.heads % o.kv_heads != 0) {
    throw ConfigError("{} = {} does not divide heads = {}; the nearest that does is {}",
                      place_of(build.options, "kv_heads"), o.kv_heads, o.heads,
                      nearest_divisor(o.heads, o.kv_heads));
  }
  return cut(build, o);
}

int64_t cut_evenly(const MixerBuild& build, std::string_view key, int64_t count) {
  const int64_t size = build.store.here()[Axis::kTensor].size;
  if (count % size == 0) return count / size;
  throw ConfigError(
      "{}: {} cannot be cut over parallel.tensor = {} ranks, which hold as many each; the "
      "nearest number that works is {}",
      place_of(build.options, key), count, size,
      std::max<int64_t>(1, (count + size / 2) / size) * size);
}

void check_rotary(const MixerBuild& build, int64_t rotary_width, int64_t head_width,
                  Rotates rotates) {
  if (rotary_width % 2 == 0 && rotary_width <= head_width) return;
  const bool given = build.options.has("rope_width");
  // dk may be as wide as it must, a part of it not wider than dk.
  const int64_t most = given ? std::max<int64_t>(head_width, 2) : rotary_width;
  throw ConfigError(
      "{} = {}: rotation turns channels in pairs, an even number of them{}; the nearest is {}{}",
      place_of(build.options, given ? "rope_width" : "dk"), rotary_width,
      given ? fmt::format(", at most dk = {}", head_width) : "",
      std::max<int64_t>(2, std::min(rotary_width, most) / 2 * 2),
      rotates == Rotates::kOption ? " (or set rope = false)" : "");
}

}  // namespace weft
