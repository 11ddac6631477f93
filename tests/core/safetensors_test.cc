#include "core/files/safetensors.h"
#include "core/host_access.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/near.h"
#include "tests/support/paths.h"
#include "tests/support/rig.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

std::string with_header(const std::string& header, const std::string& data) {
  const auto size = static_cast<uint64_t>(header.size());
  std::string file(sizeof size, '\0');
  std::memcpy(file.data(), &size, sizeof size);
  return file + header + data;
}

// A tensor of two f32 at 0..8.
const char* const kSound = R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";

class SafetensorsRefuses : public testing::Test {
 protected:
  void expect_refused(const std::string& content, const std::string& reason) {
    put_file(folder / "x.safetensors", content);
    const std::string message =
        message_of<ConfigError>([&] { SafetensorsFile(folder / "x.safetensors"); });
    EXPECT_NE(message.find("x.safetensors"), std::string::npos) << message;
    EXPECT_NE(message.find(reason), std::string::npos) << message;
  }
  void expect_refused_header(const std::string& header, const std::string& reason) {
    expect_refused(with_header(header, std::string(8, '\1')), reason);
  }
  ScratchFolder folder;
};

TEST(Safetensors, WritesWhatItReads) {
  Rig rig;
  const ScratchFolder folder;
  const std::string path = folder / "x.safetensors";
  const Tensor wide = rig.normal("wide", {3, 7});
  const Tensor half = rig.normal("half", {5}, 1.0, DType::kBF16);
  const Tensor none = rig.exec.zeros({0, 4});
  const Tensor scalar = rig.normal("scalar", {});
  Tensor ids = rig.exec.zeros({2, 2}, DType::kI64);
  host<int64_t>(ids)[3] = -7;
  write_safetensors(path, {{"note", "line\nbreak"}, {"b", ""}},
                    {{"half", half},
                     {"columns", wide.view().columns(2, 3)},  // rows with a stride
                     {"none", none},
                     {"scalar", scalar},
                     {"ids", ids}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.metadata(), (Metadata{{"note", "line\nbreak"}, {"b", ""}}));
  EXPECT_EQ(file.tensors().size(), 5u);
  EXPECT_TRUE(SameBits(file.view("half"), half));
  EXPECT_TRUE(SameBits(file.view("columns"), wide.view().columns(2, 3)));
  EXPECT_TRUE(SameBits(file.view("ids"), ids));
  EXPECT_EQ(file.view("none").shape, (Shape{0, 4}));
  EXPECT_EQ(file.at("scalar").shape.dims(), 0);
  EXPECT_EQ(host<float>(file.view("scalar"))[0], host<float>(scalar)[0]);
  EXPECT_EQ(file.find("absent"), nullptr);
  EXPECT_EQ(get_file(path).size() % 8, 2u);  // all aligned: the 10 bytes of `half` come last
}

TEST(Safetensors, WritesATensorInParts) {
  Rig rig;
  const ScratchFolder folder;
  const Tensor whole = rig.normal("whole", {5, 3}), other = rig.normal("other", {2});
  SafetensorsWriter writer(folder / "x", {},
                           {{"whole", DType::kF32, {5, 3}}, {"other", DType::kF32, {2}}});
  writer.write_part(whole.row_range(0, 2));
  writer.write_part(whole.row_range(2, 3));
  writer.write(other);
  writer.finish();
  const SafetensorsFile file(folder / "x");
  EXPECT_TRUE(SameBits(file.view("whole"), whole));
  EXPECT_TRUE(SameBits(file.view("other"), other));
}

TEST(Safetensors, WritesTheSameBytesAsTheFormatPrescribes) {
  const ScratchFolder folder;
  const float numbers[2] = {1.0f, -2.0f};
  write_safetensors(folder / "x", {}, {{"a", {numbers, {2}, 2, DType::kF32, {}}}});
  std::string header = kSound;
  header.resize(56, ' ');  // 54 characters, padded to a multiple of eight
  EXPECT_EQ(get_file(folder / "x"),
            with_header(header, std::string(reinterpret_cast<const char*>(numbers), 8)));
}

TEST(Safetensors, ConvertsWhenAsked) {
  Rig rig;
  const ScratchFolder folder;
  const uint16_t halves[] = {0x3c00, 0xc000, 0x0001, 0x8000, 0x7c00, 0x3555};
  put_file(folder / "x",
           with_header(R"({"h":{"dtype":"F16","shape":[6],"data_offsets":[0,12]}})",
                       std::string(reinterpret_cast<const char*>(halves), sizeof halves)));
  const SafetensorsFile file(folder / "x");
  const Tensor f = file.read(rig.pool, "h", DType::kF32);
  EXPECT_EQ(numbers(f),
            (std::vector<double>{1, -2, 0x1.0p-24, -0.0, std::numeric_limits<double>::infinity(),
                                 0.333251953125}));
  EXPECT_TRUE(std::signbit(host<float>(f)[3]));
  const Tensor b = file.read(rig.pool, "h", DType::kBF16);
  EXPECT_EQ(host<bf16>(b)[5], to_bf16(0.333251953125f));
  EXPECT_THROW(file.read(rig.pool, "h", DType::kI32), ConfigError);
  EXPECT_THROW(file.view("h"), ConfigError);
  EXPECT_TRUE(std::isnan(half_to_float(0x7e00)));
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {  // every half, but for the payload of a NaN
    const float x = half_to_float(static_cast<uint16_t>(bits));
    if (!std::isnan(x)) {
      EXPECT_EQ(float_to_half(x), bits);
    }
  }
  EXPECT_TRUE(std::isnan(half_to_float(float_to_half(std::nanf("")))));
  EXPECT_EQ(float_to_half(1.0f + 0x1.0p-11f), 0x3c00);  // a tie goes to the even one
  EXPECT_EQ(float_to_half(1.0f + 0x1.8p-10f), 0x3c02);  // so here upwards
  EXPECT_EQ(float_to_half(65519.0f), 0x7bff);           // the last that does not overflow
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(-0x1.0p-25f), 0x8000);  // half of the smallest: to zero
}

TEST(Safetensors, ReadsUnalignedTensorsByCopy) {
  Rig rig;
  const ScratchFolder folder;
  const float number = 3.25f;
  std::string data = "\5";
  data.append(reinterpret_cast<const char*>(&number), 4);
  put_file(folder / "x", with_header(R"({"u":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                     R"("f":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})",
                                     data));
  const SafetensorsFile file(folder / "x");
  EXPECT_THROW(file.view("f"), ConfigError);
  EXPECT_EQ(host<float>(file.read(rig.pool, "f", DType::kF32))[0], number);
  EXPECT_THROW(file.read(rig.pool, "u", DType::kI32), ConfigError);
}

TEST(Safetensors, OpensGoldenFiles) {
  const std::string folder = in_project("tests/golden/");
  const SafetensorsFile bounds(folder + "moe_softmax_topk.safetensors");
  EXPECT_EQ(bounds.metadata().at("kind"), "moe");
  const SafetensorsFile packed(folder + "core_linear_packed.safetensors");
  EXPECT_EQ(packed.at("cu_seqlens").type, FileType::kI32);
  EXPECT_EQ(numbers(packed.view("cu_seqlens")), (std::vector<double>{0, 14, 37}));
  for (const FileTensor& tensor : packed.tensors()) {
    for (const double x : numbers(packed.view(tensor))) EXPECT_TRUE(std::isfinite(x));
  }
}

TEST(Safetensors, LeavesNothingBehindWhenUnfinished) {
  const ScratchFolder folder;
  { SafetensorsWriter writer(folder / "x", {}, {{"a", DType::kF32, {2}}}); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST_F(SafetensorsRefuses, EveryTruncation) {
  const std::string whole = with_header(kSound, std::string(8, '\1'));
  for (size_t size = 0; size < whole.size(); ++size) {
    expect_refused(whole.substr(0, size), "x.safetensors");
  }
  expect_refused(whole + "more", "the tensors end at 8");
}

TEST_F(SafetensorsRefuses, EveryDamagedByteOrReadsItSoundly) {
  const std::string whole = with_header(kSound, std::string(8, '\1'));
  for (size_t i = 0; i < 3 * (whole.size() - 8);
       ++i) {  // the lowest bit, the highest, all of a byte
    std::string damaged = whole;
    const int masks[] = {0x01, 0x80, 0xff};
    damaged[i / 3] = static_cast<char>(damaged[i / 3] ^ masks[i % 3]);
    put_file(folder / "x", damaged);
    try {
      const SafetensorsFile file(folder / "x");
      for (const FileTensor& t : file.tensors()) EXPECT_EQ(t.end - t.begin, 8);
    } catch (const ConfigError&) {
    }
  }
}

TEST_F(SafetensorsRefuses, HugeHeaders) {
  expect_refused(std::string(8, '\xff') + "{}", "18446744073709551615 bytes");
  expect_refused(std::string("\0\0\0\0\1\0\0\0{}", 10), "header of 4294967296 bytes");
}

TEST_F(SafetensorsRefuses, WhatIsNotJson) {
  expect_refused_header("", "not a JSON object");
  expect_refused_header("[]", "not a JSON object");
  expect_refused_header("{\"a\":", "not JSON at byte");
  expect_refused_header(std::string(kSound) + "x", "not JSON");
  expect_refused_header("{\"\xff\":{}}", "not JSON");
  expect_refused_header("{\"a\":" + std::string(100000, '['), "an array where none belongs");
}

TEST_F(SafetensorsRefuses, WrongStructure) {
  expect_refused_header(R"({"a":1})", "a number where none belongs");
  expect_refused_header(R"({"a":{"dtype":"F32","shape":[2]}})", "no dtype, shape or data_offsets");
  expect_refused_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0]}})", "not two");
  expect_refused_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8,9]}})", "a number");
  expect_refused_header(R"({"a":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}})", "negative");
  expect_refused_header(R"({"a":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}})", "fraction");
  expect_refused_header(R"({"a":{"dtype":"F32","shape":[[2]],"data_offsets":[0,8]}})", "an array");
  expect_refused_header(R"({"a":{"dtype":"F99","shape":[2],"data_offsets":[0,8]}})", "F99");
  expect_refused_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8],"z":1}})",
                        "unknown key");
  expect_refused_header(R"({"__metadata__":{"a":1}})", "a number");
  expect_refused_header(R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,2],"data_offsets":[0,8]}})",
                        "seventh");
}

TEST_F(SafetensorsRefuses, NamesThatStandTwice) {
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string b = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]})";
  expect_refused_header("{" + a + "," + b + "}", "the name \"a\" twice");
  expect_refused_header(R"({"a":{"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                        "the key \"dtype\" twice");
}

TEST_F(SafetensorsRefuses, RangesThatDoNotFit) {
  expect_refused_header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}})", "8..0");
  expect_refused_header(R"({"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}})", "0..12 of 8");
  expect_refused_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", "needs 4");
  expect_refused_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", "gap");
  expect_refused_header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                        R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                        "inside the one");
  expect_refused_header(
      R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,8]}})",
      "impossible shape");
  expect_refused_header(
      R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]}})", "2^63");
}

TEST_F(SafetensorsRefuses, NamesThatWouldWriteToTheTerminal) {
  expect_refused_header(R"({"\u001b[2J":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})",
                        R"("\x1b[2J")");
}

TEST_F(SafetensorsRefuses, WhatIsNoFile) {
  EXPECT_THROW(SafetensorsFile(folder / "absent"), ConfigError);
  EXPECT_THROW(SafetensorsFile(folder.path().string()), ConfigError);
}

}  // namespace
}  // namespace weft::test
