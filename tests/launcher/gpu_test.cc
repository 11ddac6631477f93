// The GPU side as far as a machine without a GPU can show it: linked, told, refused in words.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/cuda_driver.h"
#include "tests/support/program.h"

namespace weft::test {
namespace {

TEST(Gpu, InfoTellsTheVersionsOfWhatIsLinkedAndNeedsNoDriver) {
  const Outcome json = run_weft({"info", "--json"});
  ASSERT_EQ(json.code, 0) << json.err;
  const auto info = nlohmann::json::parse(json.out);
  const auto beside = std::filesystem::path(weft_program()).parent_path();
  for (const auto& [key, file] : {std::pair("nccl", "libweft_nccl.so"),
                                  std::pair("cublaslt", "libweft_cublaslt.so"),
                                  std::pair("transformer_engine", "libweft_te.so")}) {
    EXPECT_EQ(info[key].is_string(), std::filesystem::exists(beside / file)) << key << json.out;
  }
  const Outcome table = run_weft({"info"});
  const bool linked = info["nccl"].is_string();
  const std::string line = "nccl                 " +
                           (linked ? info["nccl"].get<std::string>() : std::string("not built in"));
  EXPECT_NE(table.out.find(line), std::string::npos) << table.out;
}

TEST(Gpu, TrainingOnCudaWithoutADriverIsTheUsersMistakeInWords) {
  if (find_cuda_driver().why_not.empty()) GTEST_SKIP() << "there is a GPU here";
  const Outcome o = run_weft({"train", in_project("configs/tiny.toml"), "run.device=cuda"});
  EXPECT_EQ(o.code, 2) << o.err;
  EXPECT_NE(o.err.find("command line: run.device = \"cuda\": "), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("NVIDIA driver"), std::string::npos) << o.err;
  EXPECT_NE(o.err.find("what works here: \"auto\" or \"cpu\""), std::string::npos) << o.err;
}

}  // namespace
}  // namespace weft::test
