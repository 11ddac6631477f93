#include "core/files/hash.h"

#include <fmt/format.h>
#include <xxhash.h>
#ifdef __x86_64__
#include <xxh_x86dispatch.h>  // the widest vectors that this processor has
#endif

namespace weft {
namespace {

std::string digits(XXH128_hash_t h) { return fmt::format("{:016x}{:016x}", h.high64, h.low64); }

}  // namespace

std::string hash_of(std::span<const std::byte> bytes) {
  return digits(XXH3_128bits(bytes.data(), bytes.size()));
}

void Hasher::Free::operator()(XXH3_state_s* state) const { XXH3_freeState(state); }

Hasher::Hasher() : state_(XXH3_createState()) {
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state_.get());
}

void Hasher::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

std::string Hasher::text() const { return digits(XXH3_128bits_digest(state_.get())); }

}  // namespace weft
