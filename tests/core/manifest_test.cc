// A manifest is the first file of a checkpoint that is read, and is not trusted.
#include "core/files/manifest.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/base/rng.h"
#include "core/files/hash.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {
namespace {

using nlohmann::json;
const std::string kHash(32, '7');

Manifest good() {
  Manifest m{.step = 5, .samples = 40, .updates = 5, .seed = -3, .config = "[model]\n"};
  m.data["corpus.bin"] = "0011";
  m.layout["ranks"] = 2;
  m.files = {{"rank-00000.h5", 4096, kHash}, {"rank-00001.h5", kHashedBlock + 1, kHash + kHash}};
  m.pieces = {
      {"parameters/w", "rank-00000.h5", "parameters/w", {6, 4}, {{0, 0}, {4, 4}}, 2048, kHash},
      {"parameters/w", "rank-00001.h5", "parameters/w", {6, 4}, {{4, 0}, {2, 4}}, 4064, kHash}};
  m.others = {{"tokenizer.json", 5, kHash}, {"nothing", 0, ""}};
  m.index = {"index.h5", 900, kHash};
  return m;
}

// A manifest with a valid hash, as an attacker can compute it.
std::string signed_text(const json& body) {
  return json{{"hash", hash_of(body.dump())}, {"manifest", body}}.dump();
}

TEST(Manifest, ComesBackAsItWas) {
  const std::string text = to_json(good());
  const Manifest m = manifest_from_json(text, "here");
  EXPECT_EQ(to_json(m), text);
  EXPECT_EQ(m.pieces[1].position, 4064);
  EXPECT_EQ(m.index.name, "index.h5");
}

struct Hostile {
  const char* name;
  std::function<void(json&)> change;
  const char* said;
};

class HostileManifest : public testing::TestWithParam<Hostile> {};

TEST_P(HostileManifest, IsRefused) {
  json body = json::parse(to_json(good()))["manifest"];
  GetParam().change(body);
  const std::string said =
      message_of<ConfigError>([&] { manifest_from_json(signed_text(body), "here"); });
  EXPECT_NE(said.find(GetParam().said), std::string::npos) << said;
  EXPECT_EQ(said.find("here: not a whole manifest"), 0u) << said;
}

const int64_t kHuge = int64_t{1} << 62;
INSTANTIATE_TEST_SUITE_P(
    All, HostileManifest,
    testing::ValuesIn(std::vector<Hostile>{
        {"Parent", [](json& b) { b["files"][0]["name"] = "../secret"; }, "file name"},
        {"Absolute", [](json& b) { b["files"][0]["name"] = "/etc/passwd"; }, "file name"},
        {"Above", [](json& b) { b["files"][0]["name"] = ".."; }, "file name"},
        {"NoName", [](json& b) { b["files"][0]["name"] = ""; }, "file name"},
        {"Zero", [](json& b) { b["files"][0]["name"] = std::string("a\0b", 3); }, "file name"},
        {"Twice", [](json& b) { b["files"][1]["name"] = "rank-00000.h5"; }, "twice"},
        {"IndexElsewhere", [](json& b) { b["index"]["name"] = "../../x"; }, "file name"},
        {"NotListed", [](json& b) { b["slices"][0]["file"] = "other.h5"; }, "not listed"},
        {"Type", [](json& b) { b["slices"][0]["type"] = "f64"; }, "type"},
        {"Before", [](json& b) { b["slices"][0]["position"] = -1; }, "position"},
        {"Behind", [](json& b) { b["slices"][0]["position"] = 4096; }, "outside of rank-00000.h5"},
        {"FarBehind", [](json& b) { b["slices"][0]["position"] = kHuge; }, "outside"},
        {"Wraps", [](json& b) { b["slices"][0]["position"] = UINT64_MAX; }, "position"},
        {"Fraction", [](json& b) { b["slices"][0]["position"] = 2.5; }, "position"},
        {"Float", [](json& b) { b["files"][0]["bytes"] = 1e300; }, "bytes"},
        {"Negative", [](json& b) { b["slices"][0]["offset"][0] = -4; }, "offset"},
        {"NegativeExtent", [](json& b) { b["slices"][0]["extent"][0] = -4; }, "extent"},
        {"Outside", [](json& b) { b["slices"][1]["extent"][0] = 3; }, "outside of it"},
        {"Gap", [](json& b) { b["slices"][1]["extent"][0] = 1; }, "not complete"},
        {"Overlap", [](json& b) { b["slices"][1]["offset"][0] = 3; }, "overlapping"},
        {"OtherDims", [](json& b) { b["slices"][1]["offset"] = {4}; }, "outside of it"},
        {"TwoShapes",
         [](json& b) {
           b["slices"][1]["global"] = {7, 4};
         },
         "two shapes"},
        {"ManyDims", [](json& b) { b["slices"][0]["global"] = {1, 1, 1, 1, 1, 1, 1}; }, "dims"},
        {"Overflow",
         [](json& b) {
           for (json& s : b["slices"]) s["global"] = {kHuge, kHuge};
           b["slices"][0]["extent"] = {kHuge, kHuge};
         },
         "too large"},
        {"MoreThanTheFile", [](json& b) { b["files"][0]["bytes"] = 50; }, "outside of rank-00000"},
        {"TheSameBytesAgainAndAgain",
         [](json& b) {
           for (int i = 0; i < 100; ++i) {
             json more = b["slices"][0];
             more["tensor"] = "w" + std::to_string(i);
             more["global"] = more["extent"];
             b["slices"].push_back(more);
           }
         },
         "more than it has bytes"},
        {"SpacedName", [](json& b) { b["slices"][0]["tensor"] = "a b"; }, "tensor name"},
        {"Hash", [](json& b) { b["files"][0]["hash"] = "zz"; }, "hash"},
        {"OtherHash", [](json& b) { b["files"][0]["hash"] = kHash; }, "hashes that do not fit"},
        {"FewBlocks", [](json& b) { b["files"][1]["blocks"] = kHash; }, "hash"},
        {"HalfABlock", [](json& b) { b["files"][0]["blocks"] = kHash + "7"; }, "hash"},
        {"OddBlock", [](json& b) { b["files"][0]["blocks"] = std::string(32, 'g'); }, "hash"},
        {"ManyBytes", [](json& b) { b["files"][0]["bytes"] = kHuge; }, "impossible"},
        {"OtherTwice", [](json& b) { b["others"][1]["name"] = "tokenizer.json"; }, "twice"},
        {"OtherIsAFile", [](json& b) { b["others"][0]["name"] = "rank-00000.h5"; }, "twice"},
        {"OtherIsTheIndex", [](json& b) { b["others"][0]["name"] = "index.h5"; }, "twice"},
        {"OtherElsewhere", [](json& b) { b["others"][0]["name"] = "../x"; }, "file name"},
        {"Step", [](json& b) { b["step"] = -1; }, "step"},
        {"NoStep", [](json& b) { b.erase("step"); }, "step"},
        {"Data",
         [](json& b) {
           b["data"] = {{"x", 1}};
         },
         "type"},
        {"Slices", [](json& b) { b["slices"][0] = "w"; }, "with string"},
        {"Layout",
         [](json& b) {
           b["layout"] = {{"ranks", "two"}};
         },
         "layout"},
    }),
    [](const auto& info) { return info.param.name; });

TEST(Manifest, OfAnotherVersionIsRefusedWithAdvice) {
  json body = json::parse(to_json(good()))["manifest"];
  body["version"] = 1;
  EXPECT_EQ(
      message_of<OtherVersion>([&] { manifest_from_json(signed_text(body), "here"); }),
      "here: the checkpoint has format 1, this program reads format 3: an older weft wrote it. "
      "Go on with that one, or start anew: run.resume=never keeps these checkpoints beside the "
      "new ones");
}

TEST(Manifest, ThatNestsDeeplyIsRefusedWithoutUsingUpTheStack) {
  const int depth = 2000000;
  const std::string nest =
      "{\"hash\":\"\",\"manifest\":" + std::string(depth, '[') + std::string(depth, ']') + "}";
  const std::string said = message_of<ConfigError>([&] { manifest_from_json(nest, "here"); });
  EXPECT_NE(said.find("nested too deeply"), std::string::npos) << said;
}

TEST(Manifest, OfOtherTextIsRefused) {
  for (const char* text : {"", "{", "[]", "null", "{\"manifest\":1}", "\xff\xfe"}) {
    EXPECT_THROW(manifest_from_json(text, "here"), ConfigError) << text;
  }
}

// Random boxes, many of which tile a tensor, compared with a count of every element.
TEST(Manifest, IsOfSlicesThatCoverTensorsOnce) {
  const RandomStream random(4, "boxes");
  uint64_t drawn = 0;
  const auto draw = [&](int64_t below) {
    return static_cast<int64_t>(random.below(drawn++, static_cast<uint64_t>(below)));
  };
  int whole = 0, torn = 0;
  for (int round = 0; round < 400; ++round) {
    Shape global, zero;
    for (int64_t dims = draw(4); dims >= 0; --dims) {
      global.append(1 + draw(4));
      zero.append(0);
    }
    // Repeatedly cut in two; sometimes boxes are moved.
    std::vector<Slice> boxes = {{zero, global}};
    for (int64_t cuts = draw(6); cuts > 0; --cuts) {
      Slice& box = boxes[static_cast<size_t>(draw(std::ssize(boxes)))];
      const int d = static_cast<int>(draw(global.dims()));
      Slice rest = box;
      box.extent[d] = draw(box.extent[d] + 1);
      rest.offset[d] += box.extent[d];
      rest.extent[d] -= box.extent[d];
      boxes.push_back(rest);
    }
    for (int64_t moves = draw(2) * 8; moves > 0; --moves) {
      const auto pick = static_cast<size_t>(draw(std::ssize(boxes)));
      const int d = static_cast<int>(draw(global.dims()));
      boxes[pick].offset[d] = draw(global[d] - boxes[pick].extent[d] + 1);
    }
    std::vector<int> covered(static_cast<size_t>(global.elements()), 0);
    Manifest m = good();
    for (const Slice& box : boxes) {
      m.pieces.push_back({"many", "rank-00001.h5", "many", global, box, 0, kHash});
      for (int64_t i = 0; i < box.extent.elements(); ++i) {
        int64_t rest = i, at = 0, stride = 1;
        for (int d = global.dims() - 1; d >= 0; --d) {
          at += (box.offset[d] + rest % box.extent[d]) * stride;
          rest /= box.extent[d];
          stride *= global[d];
        }
        ++covered[static_cast<size_t>(at)];
      }
    }
    const bool once = std::all_of(covered.begin(), covered.end(), [](int n) { return n == 1; });
    ++(once ? whole : torn);
    try {
      manifest_from_json(to_json(m), "here");
      EXPECT_TRUE(once) << "round " << round;
    } catch (const Damage& damage) {
      EXPECT_FALSE(once) << "round " << round << ": " << damage.what();
    }
  }
  EXPECT_GT(whole, 100);
  EXPECT_GT(torn, 20);
}

TEST(Manifest, OfTensorsWithoutElementsAndOfNoDimsIsFine) {
  Manifest m = good();
  m.pieces.push_back({"one", "rank-00000.h5", "one", {}, {{}, {}}, 2120, kHash});
  m.pieces.push_back({"none", "rank-00000.h5", "none", {0, 3}, {{0, 0}, {0, 3}}, 0, kHash});
  EXPECT_NO_THROW(manifest_from_json(to_json(m), "here"));
}

}  // namespace
}  // namespace weft::test
