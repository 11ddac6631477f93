// Options of the virtual GPU: size, architecture, faults, reports.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/scratch_folder.h"
#include "tests/support/vgpu/tests/on_vgpu.h"

namespace weft::test {
namespace {

using testing::AssertionResult;

AssertionResult Says(const Outcome& o, int code, const std::vector<std::string>& texts) {
  const std::string all = o.out + o.err;
  if (o.code != code) return testing::AssertionFailure() << "code " << o.code << "\n" << all;
  for (const std::string& text : texts) {
    if (all.find(text) == std::string::npos) {
      return testing::AssertionFailure() << "not said: " << text << "\n" << all;
    }
  }
  return testing::AssertionSuccess();
}

TEST(Vgpu, HasTheMemoryThatItIsGiven) {
  EXPECT_TRUE(Says(run_case("runs_out", {"VGPU_MEMORY=64M"}), 0, {"done"}));
}

TEST(Vgpu, IsOfTheArchitectureThatItIsGiven) {
  EXPECT_TRUE(Says(run_case("tells_what_it_is"), 0, {"virtual H100, sm_90, 232448 232448 9"}));
  EXPECT_TRUE(Says(run_case("tells_what_it_is", {"VGPU_ARCH=86"}), 0,
                   {"virtual RTX 3090, sm_86, 101376 101376 8"}));
  // 200 KB of shared memory fit on sm_90, not on sm_80.
  EXPECT_TRUE(Says(run_case("too_much_shared", {"VGPU_ARCH=80"}), 3,
                   {"shared memory of a block: invalid argument"}));
}

TEST(Vgpu, NeedsCodeForItsArchitecture) {
  EXPECT_TRUE(Says(run_case("right", {"VGPU_ARCH=120"}), 0, {"done"}));  // by PTX of sm_80
  EXPECT_TRUE(Says(on_vgpu({vgpu_program("vgpu_sass")}), 0, {"done"}));
  EXPECT_TRUE(
      Says(on_vgpu({vgpu_program("vgpu_sass")}, {"VGPU_ARCH=100"}), 3,
           {"has code for sm_90, none that sm_100 executes", "no kernel image is available"}));
}

TEST(Vgpu, CountsRegisters) {
  const ScratchFolder folder;
  const auto table = folder / "resources";
  put_file(table,
           "80 _ZN4vgpu4test20count_threads_kernelEPi 255 0\n"
           "90 _ZN4vgpu4test20count_threads_kernelEPi 72 0\n");
  EXPECT_TRUE(Says(run_case("too_many_registers", {"VGPU_RESOURCES=" + table}), kMistakes,
                   {"1024 threads of 72 registers need 73728; a block has 65536"}));
  EXPECT_TRUE(Says(run_case("too_many_registers"), kMistakes, {"not freed at the end"}));
}

TEST(Vgpu, FailsOnRequest) {
  EXPECT_TRUE(Says(run_case("ten_launches", {"VGPU_FAULT=out_of_memory@allocation=5"}), 3,
                   {"out of memory in cudaMalloc", "(VGPU_FAULT)", "cudaErrorMemoryAllocation"}));
  EXPECT_TRUE(Says(run_case("ten_launches", {"VGPU_FAULT=illegal_address@launch=4"}), 3,
                   {"illegal address in kernel vgpu::test::axpy_kernel", "stream 0 command 6",
                    "cudaErrorIllegalAddress"}));
  EXPECT_TRUE(Says(run_case("error_is_sticky", {"VGPU_FAULT=ecc@launch=1"}), 0,
                   {"uncorrectable ECC error in kernel", "done"}));
  EXPECT_TRUE(Says(run_case("ten_launches", {"VGPU_FAULT=device_lost@launch=2"}), 3,
                   {"device 0 is lost: its process ended", "cudaErrorDevicesUnavailable"}));
}

TEST(Vgpu, RefusesVariablesThatItDoesNotUnderstand) {
  EXPECT_TRUE(Says(run_case("right", {"VGPU_FAULT=melts@launch=1"}), 2,
                   {"VGPU_FAULT=melts@launch=1: known are"}));
  EXPECT_TRUE(Says(run_case("right", {"VGPU_ARCH=75"}), 2, {"VGPU_ARCH=75: known are 80, 86"}));
  EXPECT_TRUE(Says(run_case("right", {"VGPU_MEMORY=much"}), 2,
                   {"VGPU_MEMORY=much: not a number (units: K, M, G)"}));
  EXPECT_TRUE(
      Says(run_case("right", {"VGPU_TWIN=nothing.so"}), 2, {"twin library:", "nothing.so"}));
}

TEST(Vgpu, IsMissingOrTooOldOnRequest) {
  EXPECT_TRUE(Says(run_case("right", {"VGPU_DEVICES=0"}), 3, {"cudaErrorNoDevice"}));
  EXPECT_TRUE(Says(run_case("right", {"VGPU_DRIVER=12080"}), 3, {"cudaErrorInsufficientDriver"}));
}

TEST(Vgpu, ReportsWhatItDid) {
  const ScratchFolder folder;
  const std::string report = folder / "report.json";
  ASSERT_EQ(run_case("right", {"VGPU_REPORT=" + report}).code, 0);
  const auto r = nlohmann::json::parse(get_file(report));
  EXPECT_EQ(r["launches"].size(), 2u) << r;
  EXPECT_EQ(r["launches"]["vgpu::test::axpy_kernel"], 2);
  EXPECT_EQ(r["threads"], 2 * 8 * 128 + 10 * 128);
  EXPECT_EQ(r["threads_by_kernel"]["vgpu::test::axpy_kernel"], 2 * 8 * 128);
  EXPECT_EQ(r["bytes"]["h2d"], 8000);
  EXPECT_EQ(r["bytes"]["d2h"], 4040);
  EXPECT_EQ(r["bytes"]["d2d"], 0);
  EXPECT_EQ(r["host_waits"], 2 + 1 + 1 + 1);  // Setting, two results, its end
  EXPECT_EQ(r["allocations"]["count"], 4);
  EXPECT_EQ(r["allocations"]["peak_bytes"], 2 * 4096 + 512);
  const auto never = r["never_launched"].get<std::vector<std::string>>();
  EXPECT_NE(std::find(never.begin(), never.end(), "vgpu::test::negate_bytes_kernel"), never.end());
  EXPECT_EQ(std::find(never.begin(), never.end(), "vgpu::test::axpy_kernel"), never.end());
}

// One program run twice under one `run` adds up its numbers; a new run starts from zero.
TEST(Vgpu, AddsReportsOfOneRun) {
  const ScratchFolder folder;
  const std::string report = folder / "report.json";
  const std::string app = vgpu_program("vgpu_app");
  for (int again = 0; again < 2; ++again) {
    const Outcome o = on_vgpu({"sh", "-c", app + " right && " + app + " barrier_orders"},
                              {"VGPU_REPORT=" + report});
    ASSERT_EQ(o.code, 0) << o.err;
    const auto r = nlohmann::json::parse(get_file(report));
    EXPECT_EQ(r["processes"], 2);
    EXPECT_EQ(r["threads"], 2 * 8 * 128 + 10 * 128 + 96);
    EXPECT_EQ(r["launches"].size(), 3u);
  }
}

// A device process ends with its host, even in a kernel that never ends. (If no process collects
// orphans it stays listed as a zombie.)
TEST(Vgpu, DeviceProcessesEndWithTheirHost) {
  const std::string script = vgpu_program("vgpu_app") + R"( hangs &
    host=$!
    until device=$(pgrep -P $host vgpu_device); do sleep 0.05; done
    sleep 0.1
    touch "$VGPU_RUN/go"
    wait $host
    while grep -q '^State:[^Z]*$' /proc/$device/status 2>/dev/null; do sleep 0.05; done)";
  EXPECT_TRUE(
      Says(on_vgpu({"sh", "-c", script}, {"VGPU_FAULT=hang@launch=1"}), 0, {"still running"}));
}

}  // namespace
}  // namespace weft::test
