#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/files/hash.h"

namespace weft {

// The hash of a file's whole content, made of the hashes of its blocks (core/files/hash.h), so that
// threads and ranks can share the reading and do what else they want with the bytes meanwhile. The
// same for any sharing. XXH3: tells another file and a flipped bit, not a forgery.
int64_t block_hash(std::span<const std::byte> block);

// 32 hex digits, of the size (64 bits, little endian) and the hashes of all blocks in order.
std::string content_hash(int64_t bytes, std::span<const int64_t> block_hashes);

// The same of a file, read here and now.
std::string content_hash(const std::string& path);

}  // namespace weft
