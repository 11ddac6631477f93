#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/data/parquet_reader.h"
#include "tests/support/parquet_writer.h"
#include "tests/support/paths.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

using Json = nlohmann::json;
using Texts = std::vector<std::string>;

std::string golden(const std::string& name) { return in_project("tests/golden/parquet/" + name); }

// All texts of the column from number `skip` on; empty ones as "".
Texts texts_in(const std::string& path, int threads = 1, int64_t skip = 0) {
  ParquetReader reader(path, "text", threads);
  if (skip > 0) reader.skip(skip);
  Texts texts;
  while (const auto text = reader.next()) texts.emplace_back(*text);
  return texts;
}

Texts without_blanks(Texts texts) {
  std::erase_if(texts, [](const std::string& t) {
    return t.find_first_not_of(" \t\r\n") == std::string::npos;
  });
  return texts;
}

class ParquetFile : public testing::Test {
 protected:
  std::string put(const std::string& content) {
    put_file(folder_ / "x.parquet", content);
    return folder_ / "x.parquet";
  }
  Texts read(const MadeFile& file) { return texts_in(put(parquet_bytes(file))); }
  std::string refusal(const std::string& content) {
    const std::string path = put(content);
    return message_of<ConfigError>([&] { texts_in(path); });
  }
  std::string refusal(const MadeFile& file) { return refusal(parquet_bytes(file)); }
  ScratchFolder folder_;
};

#define EXPECT_SAYS(message, part) EXPECT_NE((message).find(part), std::string::npos) << (message)

// Written by pyarrow (tests/e2e/parquet_golden.py): plain, dictionary and delta pages of both
// versions, with nulls, in lists, with every codec.
TEST_F(ParquetFile, OfEveryEncodingIsRead) {
  const Json all = Json::parse(get_file(golden("texts.json")));
  ASSERT_EQ(all.size(), 9u);
  for (const auto& [name, texts] : all.items()) {
    SCOPED_TRACE(name);
    const Texts whole = texts_in(golden(name));
    EXPECT_EQ(without_blanks(whole), texts.get<Texts>());
    EXPECT_EQ(texts_in(golden(name), 3), whole);
    for (size_t skip = 0; skip <= whole.size() + 1; ++skip) {
      const auto rest = whole.begin() + static_cast<std::ptrdiff_t>(std::min(skip, whole.size()));
      EXPECT_EQ(texts_in(golden(name), 2, static_cast<int64_t>(skip)), Texts(rest, whole.end()));
    }
  }
}

TEST_F(ParquetFile, ThatIsNotSupportedIsRefusedByName) {
  const Json all = Json::parse(get_file(golden("refused.json")));
  ASSERT_EQ(all.size(), 7u);
  for (const auto& [name, part] : all.items()) {
    const std::string message = message_of<ConfigError>([&, n = name] { texts_in(golden(n)); });
    EXPECT_SAYS(message, part.get<std::string>());
    EXPECT_EQ(message.find("damaged"), std::string::npos) << message;
  }
  MadeFile file{.row_groups = {{{.stored = plain_values({"a"}), .values = 1, .encoding = 9}}}};
  EXPECT_SAYS(refusal(file), "written as BYTE_STREAM_SPLIT, which is not supported");
  std::string encrypted = get_file(golden("required_none_plain_v1.parquet"));
  encrypted.replace(encrypted.size() - 4, 4, "PARE");
  EXPECT_SAYS(refusal(encrypted), "it is encrypted, which is not supported");
}

TEST_F(ParquetFile, CutAnywhereIsRefused) {
  for (const char* name : {"nullable_zstd_dictionary_v1.parquet", "list_snappy_plain_v1.parquet"}) {
    const std::string whole = get_file(golden(name)), path = put(whole);
    for (size_t size = whole.size(); size-- > 0;) {
      std::filesystem::resize_file(path, size);
      EXPECT_THROW(texts_in(path), ConfigError) << size;
    }
    // Before the end of the column, with the file's end in place.
    const MappedFile file(golden(name));
    const auto end = static_cast<size_t>(parquet_column(file, "text").chunks.back().end);
    for (size_t at = 4; at < end; at += 7) {
      put(whole.substr(0, at) + whole.substr(at + 1));
      EXPECT_THROW(texts_in(path), ConfigError) << at;
    }
  }
}

// Any flipped bit keeps the number of texts, and changes texts only in files without checksums.
TEST_F(ParquetFile, WithAFlippedBitIsReadOrRefused) {
  for (const char* name :
       {"nullable_gzip_plain_v2.parquet", "required_snappy_dictionary_v1.parquet",
        "required_none_plain_v1.parquet"}) {
    const std::string whole = get_file(golden(name)), path = put(whole);
    const Texts texts = texts_in(path);
    const bool checked = !std::string_view(name).ends_with("none_plain_v1.parquet");
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto put_byte = [&](size_t at, char byte) {
      file.seekp(static_cast<std::streamoff>(at)).put(byte).flush();
    };
    for (size_t at = 0; at < whole.size(); ++at) {
      put_byte(at, static_cast<char>(whole[at] ^ 1 << at % 8));
      try {
        const Texts read = texts_in(path);
        EXPECT_EQ(read.size(), texts.size()) << name << " byte " << at;
        EXPECT_TRUE(!checked || read == texts) << name << " byte " << at;
      } catch (const ConfigError&) {
      }
      put_byte(at, whole[at]);
    }
  }
}

MadePage data(const Texts& texts) {
  return {.stored = plain_values(texts), .values = std::ssize(texts)};
}
MadePage dictionary(const Texts& texts) {
  MadePage page = data(texts);
  page.kind = 2;
  return page;
}
// A page with entry 0 repeated.
MadePage entries(int64_t values) {
  std::string run;
  for (uint64_t rest = static_cast<uint64_t>(values) << 1;; rest >>= 7) {
    run += static_cast<char>((rest & 0x7F) | (rest > 0x7F ? 0x80 : 0));
    if (rest < 0x80) break;
  }
  return {.stored = std::string("\x01", 1) + run + '\0', .values = values, .encoding = 8};
}

TEST_F(ParquetFile, WrittenByHandIsRead) {
  EXPECT_EQ(read({{{data({"a", ""}), data({"bc"})}, {data({"d"})}}}), (Texts{"a", "", "bc", "d"}));
  EXPECT_EQ(read({{{dictionary({"x", "y"}), entries(3), data({"z"})}}}),
            (Texts{"x", "x", "x", "z"}));
}

TEST_F(ParquetFile, WithWrongSizesIsRefused) {
  const auto with = [&](auto&& change) {
    MadeFile file{.row_groups = {{data({"a", "b"}), data({"c"})}}};
    change(file);
    return refusal(file);
  };
  EXPECT_SAYS(with([](MadeFile& f) { f.row_groups[0][0].size = 1000; }),
              "but its column ends after");
  EXPECT_SAYS(with([](MadeFile& f) { f.row_groups[0][0].unpacked = 11; }),
              "10 bytes are packed where its header says 11");
  EXPECT_SAYS(with([](MadeFile& f) { f.row_groups[0][0].unpacked = INT32_MAX; }), "at most");
  EXPECT_SAYS(with([](MadeFile& f) { f.row_groups[0][0].values = 3; }), "damaged");
  EXPECT_SAYS(with([](MadeFile& f) { f.row_groups[0][0].values = 1; }), "damaged");
  EXPECT_SAYS(with([](MadeFile& f) { f.row_groups[0][1].values = INT32_MAX; }), "at most");
  EXPECT_SAYS(with([](MadeFile& f) { f.rows = 4; }), "3 values in its pages, 4 in the footer");
  EXPECT_SAYS(with([](MadeFile& f) { f.row_groups[0][1].stored[0] = 2; }),
              "a text that is longer than the page");
  EXPECT_SAYS(with([](MadeFile& f) { f.row_groups[0][1].stored += '\0'; }),
              "behind its last value");
}

TEST_F(ParquetFile, WhoseDictionariesReferToEachOtherIsRefused) {
  EXPECT_SAYS(refusal({{{dictionary({"a"}), dictionary({"b"}), entries(2)}}}),
              "a second dictionary");
  EXPECT_SAYS(refusal({{{dictionary({"a"}), entries(2), dictionary({"b"})}}}),
              "a second dictionary");
  EXPECT_SAYS(refusal({{{entries(2)}}}), "a dictionary that is not there");
  // A dictionary page with dictionary encoding would be misread as plain.
  MadePage cycle = entries(2);
  cycle.kind = 2;
  EXPECT_SAYS(refusal({{{cycle, entries(2)}}}), "damaged");
  EXPECT_SAYS(refusal({.row_groups = {{dictionary({"a"}), entries(2)}}, .dictionary = 1000000}),
              "the place of a column's dictionary is 1000004");
  // An offset of the dictionary behind the data is ignored.
  EXPECT_EQ(read({.row_groups = {{dictionary({"a"}), entries(2)}}, .dictionary = 9}),
            (Texts{"a", "a"}));
}

TEST_F(ParquetFile, WhoseRowGroupsShareBytesIsRefused) {
  MadeFile file{.row_groups = {}, .share = true};
  for (int i = 0; i < 100; ++i) file.row_groups.push_back({data({"a"})});
  EXPECT_SAYS(refusal(file), "two row groups share byte 4");
}

// Pages that unpack to more than their header says or can contain are refused before allocation.
TEST_F(ParquetFile, ThatUnpacksToMoreThanItSaysIsRefused) {
  const std::string zeros(1 << 20, '\0');
  std::string snappy_block, zstd_frame(ZSTD_compressBound(zeros.size()), '\0'),
      gzip_stream(compressBound(zeros.size()), '\0');
  snappy::Compress(zeros.data(), zeros.size(), &snappy_block);
  zstd_frame.resize(
      ZSTD_compress(zstd_frame.data(), zstd_frame.size(), zeros.data(), zeros.size(), 1));
  uLongf size = gzip_stream.size();
  compress(reinterpret_cast<Bytef*>(gzip_stream.data()), &size,
           reinterpret_cast<const Bytef*>(zeros.data()), zeros.size());
  gzip_stream.resize(size);
  const auto bomb = [&](int codec, const std::string& stored, int64_t unpacked) {
    return refusal(
        {.row_groups = {{{.stored = stored, .values = 10, .unpacked = unpacked}}}, .codec = codec});
  };
  for (const int64_t says : {int64_t{1000}, int64_t{1} << 30}) {
    EXPECT_SAYS(bomb(1, snappy_block, says), "1048576 bytes are packed where its header says");
    EXPECT_SAYS(bomb(6, zstd_frame, says), "damaged");
    EXPECT_SAYS(bomb(2, gzip_stream, says), "gzip");
  }
  // A snappy block that claims a GiB and has three bytes.
  EXPECT_SAYS(bomb(1, std::string("\x80\x80\x80\x80\x04\0\0", 7), int64_t{1} << 30),
              "no snappy block unpacks to so much");
}

// A few bytes that encode many texts are read page by page.
TEST_F(ParquetFile, OfVeryManyEqualTextsIsReadInLittleMemory) {
  MadeFile file{.row_groups = {{dictionary({"word"})}}};
  for (int i = 0; i < 10; ++i) file.row_groups[0].push_back(entries(1 << 20));
  ParquetReader reader(put(parquet_bytes(file)), "text", 2);
  int64_t texts = 0;
  while (const auto text = reader.next()) texts += *text == "word" ? 1 : 0;
  EXPECT_EQ(texts, 10 << 20);
}

TEST_F(ParquetFile, WithAHostileFooterIsRefused) {
  const auto with_footer = [&](const std::string& footer) {
    return refusal("PAR1" + footer + four_bytes(static_cast<uint32_t>(footer.size())) + "PAR1");
  };
  EXPECT_SAYS(with_footer(std::string(1000, '\x1c')), "nested too deeply");   // structs in structs
  EXPECT_SAYS(with_footer("\x29\xFC\xFF\xFF\xFF\xFF\x0F"), "are not there");  // 4 G elements
  EXPECT_SAYS(with_footer("\x48\xFF\xFF\xFF\xFF\x0F"), "are not there");      // a long text
  EXPECT_SAYS(with_footer(std::string("\0", 1)), "its schema is no tree");
  EXPECT_SAYS(with_footer(""), "it ends inside a struct");
  ThriftWriter root, footer;
  root.text(4, "schema").whole(5, INT32_MAX);
  EXPECT_SAYS(with_footer(footer.list(2, {root, root, root}).bytes()), "its schema is no tree");
}

}  // namespace
}  // namespace weft::test
