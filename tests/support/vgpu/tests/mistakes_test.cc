// A planted mistake and its message for every check of the virtual GPU; and programs without
// mistakes, which must pass.
#include <gtest/gtest.h>

#include "tests/support/vgpu/tests/on_vgpu.h"

namespace weft::test {
namespace {

struct Mistake {
  const char* name;  // of the case in vgpu_app
  std::vector<std::string> said;
  int code = kMistakes;
  std::vector<std::string> environment = {};
};
void PrintTo(const Mistake& m, std::ostream* to) { *to << m.name; }

class Mistakes : public testing::TestWithParam<Mistake> {};

TEST_P(Mistakes, AreNamed) {
  const Mistake& m = GetParam();
  const Outcome o = run_case(m.name, m.environment);
  EXPECT_EQ(o.code, m.code) << o.out << o.err;
  for (const std::string& text : m.said) {
    EXPECT_NE((o.err + o.out).find(text), std::string::npos) << "not said: " << text << "\n"
                                                             << o.out << o.err;
  }
}

const char* const kUnordered = "no event, stream order or wait of the host orders the two";

const Mistake kMemory[] = {
    {"host_touches_device",
     {"code of the host touches memory of device 0 at 0x",
      "byte 12 of the 4000 bytes of allocation 1", "(cudaMalloc in vgpu::test::Setting", "by:\n",
      "vgpu_app"},
     kHostFault},
    {"reads_beyond",
     {"access outside live allocations", "0 bytes behind the end of the 4000 bytes of allocation 1",
      "reads 4 bytes: kernel vgpu::test::axpy_kernel, stream 0 command 3",
      "thread (94, 0, 0) of block (7, 0, 0), kernels.cu:",
      "cudaStreamSynchronize(s.first): cudaErrorIllegalAddress"},
     kMistakes,
     {"VGPU_ORDER=0"}},
    {"host_pointer_in_kernel", {"access outside live allocations", "a pointer of the host?"}},
    {"null_pointer", {"access outside live allocations", "axpy_kernel"}},
    {"null_pointer",
     {"access outside live allocations", "axpy_kernel"},
     kMistakes,
     {"VGPU_CHECK=0"}},
    {"used_after_free", {"allocation 1 (cudaMalloc in vgpu::test::Setting", "freed by cudaFree"}},
    {"freed_in_stream_order_too_early",
     {"writes: cudaFreeAsync of 4000 bytes", "read: kernel vgpu::test::axpy_kernel,", kUnordered},
     kMistakes,
     {"VGPU_ORDER=0"}},
    {"reads_what_nobody_wrote",
     {"read of bytes that nobody wrote", "of the 4000 bytes of allocation 4"}},
    {"copies_what_nobody_wrote",
     {"read of bytes that nobody wrote", "copy device to host of 400 bytes"}},
    {"misaligned",
     {"misaligned access of 16 bytes", "byte 8 of the 4000 bytes", "copy_vectors_kernel",
      "thread (0, 0, 0) of block (0, 0, 0)", "cudaErrorMisalignedAddress"},
     kMistakes,
     {"VGPU_ORDER=0"}},
    {"freed_twice", {"is not allocated: freed twice?", "by cudaFree"}},
    {"leaks",
     {"not freed at the end", "28 bytes, allocation 1 (cudaMalloc in vgpu::test::on_device(int))"}},
    {"managed_touched_early",
     {"touches managed memory while commands are pending", "of the 4000 bytes of allocation 1"},
     kHostFault},
};

const Mistake kOrder[] = {
    {"missing_event",
     {"conflict between commands without an order", "kernel vgpu::test::axpy_kernel,",
      "stream 0 command 3", "stream 1 command 1", "allocation 2", kUnordered}},
    {"late_without_event",
     {"copy device to host of 4000 bytes, stream 1 command 1",
      "kernel vgpu::test::axpy_kernel, stream 0 command 3", kUnordered}},
    {"event_too_early", {"stream 0 command 3", "stream 1 command 2", kUnordered}},
    {"written_while_another_reads",
     {"writes: memset", "read: kernel", "stream 1 command 2", kUnordered},
     kMistakes,
     {"VGPU_ORDER=0"}},
    {"next_stream_without_event", {"stream 2 command 1", "stream 3 command 1", kUnordered}},
    {"pageable_copy",
     {"an asynchronous copy of 4000 bytes with pageable host memory", "by cudaMemcpyAsync"}},
    {"pinned_written_early",
     {"code of the host writes pinned memory that a copy is reading", "byte 2000 of the 4000 bytes",
      "copy of 4000 bytes from pinned host memory to device memory, stream 0 command 3"},
     kHostFault},
    {"pinned_read_early",
     {"code of the host touches pinned memory that a copy is writing",
      "copy of 4000 bytes from device memory to pinned host memory, stream 0 command 3"},
     kHostFault},
    {"part_written_early",
     {"the host changed the source of an asynchronous copy", "stream 0 command 5"}},
    {"wrong_direction", {"a copy whose kind is not what it does"}},
};

const Mistake kThreads[] = {
    {"missing_barrier",
     {"race between threads of a kernel at byte", "of 384 bytes of shared memory", "rotate_kernel",
      "no barrier orders the two", "of block (0, 0, 0)"}},
    {"warp_barrier_between_warps", {"race between threads", "of 256 bytes of shared memory"}},
    {"missing_warp_barrier", {"race between threads", "of 128 bytes of shared memory"}},
    {"divergent_barrier",
     {"block (0, 0, 0) cannot go on: threads 0-31 wait at __syncthreads (kernels.cu:",
      "threads 32-63 ended", "kernel vgpu::test::half_a_barrier_kernel, stream 0 command 3"}},
    {"blocks_write_one_number",
     {"race between threads of a kernel", "byte 0 of the 4 bytes of allocation 4", "writes 4 bytes",
      "wrote them: thread (0, 0, 0) of block ("}},
    {"static_shared_unwritten", {"read of bytes that nobody wrote at a __shared__ variable"}},
    {"beyond_shared",
     {"access outside live allocations at byte 160 of 128 bytes of shared memory"}},
};

const Mistake kLimits[] = {
    {"no_blocks", {"launch of vgpu::test::count_threads_kernel, stream 0: a grid of zero blocks"}},
    {"too_many_rows_of_blocks",
     {"a grid of 1 x 65536 x 1 blocks; at most 2147483647 x 65535 x 65535"}},
    {"too_many_threads", {"blocks of 1025 x 1 x 1 threads; at most 1024"}},
    {"shared_without_attribute",
     {"49156 bytes of dynamic shared memory; 49152 are allowed", "without cudaFuncAttributeMax"}},
};

const Mistake kGraphs[] = {
    {"replay_conflicts",
     {"copy device to device of 4000 bytes", "memset of 4000 bytes", kUnordered}},
    {"waits_in_capture",
     {"a wait while a stream is captured", "cudaErrorStreamCaptureUnsupported"}},
    {"allocates_in_capture", {"an allocation while a stream is captured", "by cudaMalloc"}},
    {"does_not_join", {"cudaErrorStreamCaptureUnjoined"}, 3},
    {"waits_for_what_is_not_captured", {"cudaErrorStreamCaptureIsolation"}, 3},
};

const Mistake kDevices[] = {
    {"host_memory_without_an_event",
     {"of allocation 6 (cudaHostAlloc", kUnordered},
     kMistakes,
     {"VGPU_DEVICES=2"}},
    {"stream_of_another_device",
     {"a stream of device 0 while device 1 is current",
      "by cudaLaunchKernelExC in vgpu::test::axpy"},
     kMistakes,
     {"VGPU_DEVICES=2"}},
    {"pointer_of_another_device",
     {"device 1: access outside live allocations", "memory of device 0"},
     kMistakes,
     {"VGPU_DEVICES=2"}},
    {"no_such_device", {"cudaErrorInvalidDevice"}, 3},
};

const Mistake kProducts[] = {
    {"workspace_too_small", {"a workspace of 0 bytes; the algorithm needs 16384"}, 3},
    {"less_aligned_than_promised",
     {"A: 0x", "is not aligned to the 256 bytes that the algorithm was chosen for"},
     3},
    {"fp8_not_transposed", {"fp8 on sm_90 wants A transposed, B not", "NOT_SUPPORTED"}, 3},
    {"fp8_of_odd_extents", {"fp8: A is 32 x 8 with lines of 32 bytes", "multiples of 16"}, 3},
    {"extents_differ", {"[4, 5] times [6, 3] to [4, 3]"}, 3},
    {"types_differ", {"bf16 times f32 plus f32 to f32"}, 3},
    {"unknown_attribute", {"attribute 11 of a product is not one that is looked at"}, 3},
    {"adds_to_what_nobody_wrote",
     {"read of bytes that nobody wrote", "product with a result of 48"}},
    {"one_workspace_for_two_streams",
     {"writes: product with a result of 128 bytes", "wrote: product with", kUnordered}},
};

std::string name_of(const testing::TestParamInfo<Mistake>& info) {
  const bool again =
      info.index > 0 && info.param.environment == std::vector<std::string>{"VGPU_CHECK=0"};
  return std::string(info.param.name) + (again ? "_unchecked" : "");
}
INSTANTIATE_TEST_SUITE_P(Memory, Mistakes, testing::ValuesIn(kMemory), name_of);
INSTANTIATE_TEST_SUITE_P(Order, Mistakes, testing::ValuesIn(kOrder), name_of);
INSTANTIATE_TEST_SUITE_P(Threads, Mistakes, testing::ValuesIn(kThreads), name_of);
INSTANTIATE_TEST_SUITE_P(Limits, Mistakes, testing::ValuesIn(kLimits), name_of);
INSTANTIATE_TEST_SUITE_P(Graphs, Mistakes, testing::ValuesIn(kGraphs), name_of);
INSTANTIATE_TEST_SUITE_P(Devices, Mistakes, testing::ValuesIn(kDevices), name_of);

INSTANTIATE_TEST_SUITE_P(Products, Mistakes, testing::ValuesIn(kProducts), name_of);

// In natural order, and shuffled with delays by several seeds.
class RightPrograms : public testing::TestWithParam<const char*> {};

TEST_P(RightPrograms, PassInAnyOrder) {
  for (const char* order : {"VGPU_ORDER=0", "VGPU_ORDER=1", "VGPU_ORDER=7"}) {
    const Outcome o = run_case(GetParam(), {order, "VGPU_DEVICES=2"});
    EXPECT_EQ(o.code, 0) << order << "\n" << o.out << o.err;
    EXPECT_EQ(o.out, "done\n");
    EXPECT_EQ(o.err, "");
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, RightPrograms,
    testing::Values("right", "managed_is_shared", "strided_copies", "default_stream_orders",
                    "events_tell_time", "part_read_early", "pinned_in_turn", "barrier_orders",
                    "warp_barrier_orders", "atomics_are_no_race", "one_block_writes_one_number",
                    "static_shared_works", "small_numbers", "launches_what_fits", "replays",
                    "two_devices", "several_threads", "many_streams", "ten_launches",
                    "products_are_right", "epilogues_are_right", "fp8_is_right", "tf32_rounds",
                    "heuristics_serve"),
    [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace weft::test
