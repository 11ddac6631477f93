#include "core/files/parquet/codec.h"

#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <cstring>

#include "core/base/error.h"

namespace weft {
namespace {

struct Job {
  std::span<const std::byte> packed;
  size_t size;
  const std::string& where;

  [[noreturn]] void refuse(const std::string& what) const {
    throw ConfigError("{}: damaged: {}", where, what);
  }
  void check_size(uint64_t real) const {
    if (real != size)
      refuse(fmt::format("{} bytes are packed where its header says {}", real, size));
  }
  const char* text() const { return reinterpret_cast<const char*>(packed.data()); }
  RawBytes room() const {
    // A page of no bytes still has an address.
    return {std::make_unique_for_overwrite<std::byte[]>(size + 1), size};
  }
};

RawBytes from_snappy(const Job& job) {
  size_t real = 0;
  if (!snappy::GetUncompressedLength(job.text(), job.packed.size(), &real))
    job.refuse("no snappy block");
  job.check_size(real);
  // A copy has at least two bytes and makes at most 64.
  if (real > 64 * job.packed.size()) job.refuse("no snappy block unpacks to so much");
  RawBytes out = job.room();
  if (!snappy::RawUncompress(job.text(), job.packed.size(),
                             reinterpret_cast<char*>(out.data.get()))) {
    job.refuse("its snappy block is broken");
  }
  return out;
}

RawBytes from_zstd(const Job& job) {
  const auto real = ZSTD_getFrameContentSize(job.packed.data(), job.packed.size());
  if (real == ZSTD_CONTENTSIZE_ERROR) job.refuse("no zstd frame");
  if (real != ZSTD_CONTENTSIZE_UNKNOWN && real > job.size) job.check_size(real);
  RawBytes out = job.room();
  const size_t got =
      ZSTD_decompress(out.data.get(), job.size, job.packed.data(), job.packed.size());
  if (ZSTD_isError(got)) job.refuse(fmt::format("zstd: {}", ZSTD_getErrorName(got)));
  job.check_size(got);
  return out;
}

// One member or several, of gzip or zlib.
RawBytes from_gzip(const Job& job) {
  if (job.size > 1032 * (job.packed.size() + 1)) job.refuse("no gzip stream unpacks to so much");
  RawBytes out = job.room();
  z_stream stream{};
  if (inflateInit2(&stream, 15 + 32) != Z_OK) throw Error("no memory to unpack {}", job.where);
  const std::unique_ptr<z_stream, int (*)(z_streamp)> end(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(job.packed.data()));
  stream.avail_in = static_cast<uInt>(job.packed.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data.get());
  stream.avail_out = static_cast<uInt>(job.size + 1);  // one more shows that there is more
  for (;;) {
    const int code = inflate(&stream, Z_FINISH);
    if (code != Z_STREAM_END)
      job.refuse(fmt::format("gzip: {}", stream.msg != nullptr ? stream.msg : "another size"));
    if (stream.avail_in == 0) break;
    if (inflateReset(&stream) != Z_OK) job.refuse("gzip: bytes behind its end");
  }
  job.check_size(job.size + 1 - stream.avail_out);
  return out;
}

}  // namespace

RawBytes unpacked(ParquetCodec codec, std::span<const std::byte> packed, size_t size,
                  const std::string& where) {
  const Job job{packed, size, where};
  switch (codec) {
    case ParquetCodec::kSnappy: return from_snappy(job);
    case ParquetCodec::kGzip: return from_gzip(job);
    case ParquetCodec::kZstd: return from_zstd(job);
    case ParquetCodec::kNone: break;
  }
  job.check_size(packed.size());
  RawBytes out = job.room();
  if (size > 0) std::memcpy(out.data.get(), packed.data(), size);
  return out;
}

}  // namespace weft
