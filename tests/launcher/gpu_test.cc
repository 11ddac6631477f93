// The GPU side on a machine without a GPU: libraries are linked and reported, and use is refused
// with a message.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "core/gpu/cuda_driver.h"
#include "tests/support/program.h"

namespace weft::test {
namespace {

// Exactly the libraries of this build's configuration exist, load and report their version.
TEST(Gpu, InfoTellsTheVersionsOfWhatIsLinkedAndNeedsNoDriver) {
  const Outcome json = run_weft({"info", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const auto info = nlohmann::json::parse(json.out);
  const Outcome table = run_weft({"info"});
  const auto beside = std::filesystem::path(weft_program()).parent_path();
  const std::string configured = "," WEFT_GPU_LIBRARIES ",";
  for (const auto& [key, name] :
       {std::pair("nccl", "weft_nccl"), std::pair("cublaslt", "weft_cublaslt"),
        std::pair("transformer_engine", "weft_te")}) {
    const bool expected = configured.find(fmt::format(",{},", name)) != std::string::npos;
    const bool there = std::filesystem::exists(beside / fmt::format("lib{}.so", name));
    if (there && !expected) continue;  // left from an older configuration of this folder
    EXPECT_EQ(there, expected) << name;
    EXPECT_EQ(info[key].is_string(), expected) << key << json.out;
    const std::string line =
        fmt::format("{:<20} {}", key, expected ? info[key].get<std::string>() : "not built in");
    EXPECT_NE(table.out.find(line), std::string::npos) << line << "\n" << table.out;
  }
}

TEST(Gpu, TrainingOnCudaWithoutADriverIsTheUsersMistakeInWords) {
  if (find_cuda_driver().why_not.empty()) GTEST_SKIP() << "there is a GPU here";
  const Outcome o = run_weft({"train", in_project("configs/tiny.toml"), "run.device=cuda"});
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_NE(o.err.find("command line: run.device = \"cuda\": "), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("NVIDIA driver"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("nearest: \"auto\" or \"cpu\""), std::string::npos) << o.err;
}

}  // namespace
}  // namespace weft::test
