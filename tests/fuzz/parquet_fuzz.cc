// Any bytes as a Parquet file, and as the pages of a column whose footer is sound: read or refused.
//
// sources: core/files/system_calls.cc core/base/nearest.cc
// sources: core/files/parquet/codec.cc core/files/parquet/column.cc core/files/parquet/page.cc
// sources: core/files/parquet/runs.cc core/files/parquet/texts.cc core/files/parquet/thrift.cc
// sources: core/files/mapped_file.cc core/files/regular_file.cc core/base/error.cc
// seconds: 20
// libraries: -lfmt -lsnappy -lz -lzstd
// seeds: tests/golden/parquet tests/fuzz/seeds/parquet
#include "core/base/error.h"
#include "core/files/parquet/texts.h"
#include "tests/fuzz/scratch_file.h"

namespace {

// Every text is read, so that a view outside the page is detected.
void read_all(const weft::MappedFile& file, const weft::ParquetColumn& column) {
  weft::ParquetPages pages(file, column);
  std::shared_ptr<const weft::ParquetTexts> dictionary;
  int64_t work = 0;
  volatile char last = 0;
  while (const auto page = pages.next()) {
    work += page->unpacked + 16 * page->values;
    if (work > 64 << 20) return;  // a bomb that is within the bounds
    auto texts =
        std::make_shared<weft::ParquetTexts>(weft::read_texts(file, column, *page, dictionary));
    for (const std::string_view text : texts->texts) {
      if (text.empty()) continue;
      last = text.front();
      last = text.back();
    }
    if (page->kind == weft::ParquetPage::Kind::kDictionary) dictionary = texts;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const ScratchFile scratch("x.parquet");
  scratch.put(data, size);
  const weft::MappedFile file(scratch.path());
  try {
    read_all(file, weft::parquet_column(file, "text"));
  } catch (const weft::ConfigError&) {
  }
  // The first bytes choose the column and its codec, the others are its pages.
  if (size < 2) return 0;
  constexpr weft::ParquetCodec kCodecs[] = {weft::ParquetCodec::kNone, weft::ParquetCodec::kSnappy,
                                            weft::ParquetCodec::kGzip, weft::ParquetCodec::kZstd};
  const weft::ParquetColumn column{
      .name = "text",
      .definition = data[0] & 3,
      .repetition = data[0] >> 2 & 1,
      .chunks = {{1, static_cast<int64_t>(size), data[0] >> 5, kCodecs[data[0] >> 3 & 3]}}};
  try {
    read_all(file, column);
  } catch (const weft::ConfigError&) {
  }
  return 0;
}
