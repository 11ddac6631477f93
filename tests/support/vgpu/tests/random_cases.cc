#include <cstdlib>
#include <map>
#include <random>
#include <thread>

#include "tests/support/vgpu/tests/app.h"

namespace vgpu::test {
namespace {

// A program of random kernels y += x over some buffers and streams, with as many events as it
// needs: before each kernel its stream waits for those that wrote its buffers or read y, unless it
// comes after them anyway. DROP in the environment leaves out one of these waits; printed is
// whether that leaves a pair of kernels without an order.
class RandomProgram {
 public:
  RandomProgram(int seed, int dropped) : dropped_(dropped), random_(static_cast<unsigned>(seed)) {}

  void run() {
    for (int b = 0; b < kBuffers; ++b) {
      buffers_.push_back(on_device(kNumbers));
      CUDA(cudaMemset(buffers_.back(), 0, kNumbers * sizeof(float)));
    }
    CUDA(cudaDeviceSynchronize());
    for (int s = 0; s < kStreams; ++s) streams_.push_back(new_stream());
    for (int i = 0; i < kKernels; ++i) add_kernel(i);
    std::printf("waits %d %s\n", waits_, unordered_ ? "unordered" : "ordered");
    std::fflush(stdout);
    const cudaError_t code = cudaDeviceSynchronize();
    free();
    CUDA(code);
  }

 private:
  static constexpr int kBuffers = 4, kStreams = 3, kKernels = 24, kNumbers = 64;
  using Clock = std::map<int, int>;  // newest kernel of each stream that comes before
  struct Kernel {
    int stream, x, y;
    Clock clock;  // itself included
    cudaEvent_t event;
  };

  int draw(int below) { return static_cast<int>(random_() % static_cast<unsigned>(below)); }

  static void join(Clock& to, const Clock& from) {
    for (const auto& [stream, kernel] : from) {
      const auto found = to.find(stream);
      if (found == to.end() || found->second < kernel) to[stream] = kernel;
    }
  }

  void add_kernel(int number) {
    Kernel k{draw(kStreams), draw(kBuffers), draw(kBuffers), {}, nullptr};
    Clock& before = clocks_[k.stream];
    std::vector<int> needed;  // newest first: it often comes after the others
    for (int other = number - 1; other >= 0; --other) {
      const Kernel& o = kernels_[static_cast<size_t>(other)];
      if (o.y == k.x || o.y == k.y || o.x == k.y) needed.push_back(other);
    }
    const auto known = [&](int other) {
      const auto found = before.find(kernels_[static_cast<size_t>(other)].stream);
      return found != before.end() && found->second >= other;
    };
    for (const int other : needed) {
      if (known(other) || waits_++ == dropped_) continue;
      const Kernel& o = kernels_[static_cast<size_t>(other)];
      CUDA(cudaStreamWaitEvent(streams_[static_cast<size_t>(k.stream)], o.event, 0));
      join(before, o.clock);
    }
    for (const int other : needed) unordered_ |= !known(other);
    axpy(buffers_[static_cast<size_t>(k.x)], buffers_[static_cast<size_t>(k.y)], kNumbers, 1,
         streams_[static_cast<size_t>(k.stream)]);
    before[k.stream] = number;
    k.clock = before;
    CUDA(cudaEventCreateWithFlags(&k.event, cudaEventDisableTiming));
    CUDA(cudaEventRecord(k.event, streams_[static_cast<size_t>(k.stream)]));
    kernels_.push_back(k);
  }

  void free() {
    for (const Kernel& k : kernels_) cudaEventDestroy(k.event);
    for (const cudaStream_t s : streams_) cudaStreamDestroy(s);
    for (float* b : buffers_) cudaFree(b);
  }

  int dropped_, waits_ = 0;
  bool unordered_ = false;
  std::mt19937 random_;
  std::vector<float*> buffers_;
  std::vector<cudaStream_t> streams_;
  std::vector<Kernel> kernels_;
  std::map<int, Clock> clocks_;
};

int number_of(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

void random_program() { RandomProgram(number_of("SEED", 1), number_of("DROP", -1)).run(); }

// Host threads with a stream and buffers each.
void several_threads() {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([] {
      const Setting s;
      for (int i = 0; i < 25; ++i) {
        axpy(s.x, s.y, s.n, 1, s.first);
        CUDA(cudaEventRecord(s.event, s.first));
        CUDA(cudaStreamWaitEvent(s.second, s.event, 0));
        CUDA(cudaMemcpyAsync(s.host, s.y, 4000, cudaMemcpyDeviceToHost, s.second));
        CUDA(cudaStreamSynchronize(s.second));
        expect(s.host[999] == 1 + static_cast<float>(i + 1) * 999, "threads");
      }
      s.free();
    });
  }
  for (std::thread& t : threads) t.join();
}

}  // namespace

std::vector<NamedCase> random_cases() {
  return {{"random_program", random_program}, {"several_threads", several_threads}};
}

}  // namespace vgpu::test
