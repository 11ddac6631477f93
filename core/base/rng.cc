#include "core/base/rng.h"

#include <cmath>
#include <numbers>

namespace weft {
namespace {

uint64_t mix(uint64_t x) {  // a bijection with good avalanche (the finalizer of splitmix64)
  x += 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  return x ^ (x >> 31);
}

uint64_t hash(std::string_view name) {  // FNV-1a
  uint64_t h = 0xcbf29ce484222325ull;
  for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return h;
}

double unit(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

}  // namespace

RandomStream::RandomStream(uint64_t seed, std::string_view name) {
  const uint64_t key = mix(seed);
  const uint64_t stream = mix(hash(name));
  key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  stream_ = {static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
}

// Philox 4x32 with ten rounds (Salmon et al., 2011).
std::array<uint32_t, 4> RandomStream::block(uint64_t index) const {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                               stream_[0], stream_[1]};
  uint32_t k0 = key_[0], k1 = key_[1];
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

uint64_t RandomStream::bits(uint64_t index) const {
  const auto c = block(index);
  return uint64_t{c[1]} << 32 | c[0];
}

double RandomStream::uniform(uint64_t index) const { return unit(bits(index)); }

double RandomStream::normal(uint64_t index) const {  // Box and Muller, one of the pair
  const auto c = block(index);
  const double u = unit(uint64_t{c[1]} << 32 | c[0]) + 0x1.0p-54;  // never 0
  const double v = unit(uint64_t{c[3]} << 32 | c[2]);
  return std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v);
}

uint64_t RandomStream::below(uint64_t index, uint64_t bound) const {
  return static_cast<uint64_t>((static_cast<unsigned __int128>(bits(index)) * bound) >> 64);
}

}  // namespace weft
