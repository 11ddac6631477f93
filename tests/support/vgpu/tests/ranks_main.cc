// vgpu_ranks CASE SIZE: NCCL over SIZE processes, each with a device of its own; under mpirun,
// vgpu_ranks CASE. The first rank leaves the communicator's id in a file of the run.
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "tests/support/vgpu/tests/ranks.h"

extern char** environ;

namespace vgpu::test {

int rank = 0, size = 1, local_rank = 0;

void check(bool ok, const char* call) {
  if (!ok) throw Failed{call};
}

void expect(bool right, const std::string& what) {
  if (!right) throw Failed{"wrong: " + what};
}

namespace {

std::string path_of(const char* name) {
  return fmt::format("{}/{}", std::getenv("VGPU_RUN"), name);
}

// Written by rank 0, read by the others.
ncclUniqueId shared_id() {
  const std::string path = path_of("id"), part = path_of("id.part");
  ncclUniqueId id{};
  if (rank == 0) {
    NCCL(ncclGetUniqueId(&id));
    FILE* f = std::fopen(part.c_str(), "w");
    std::fwrite(&id, sizeof id, 1, f);
    std::fclose(f);
    std::rename(part.c_str(), path.c_str());
    return id;
  }
  while (access(path.c_str(), R_OK) != 0) usleep(1000);
  FILE* f = std::fopen(path.c_str(), "r");
  check(std::fread(&id, sizeof id, 1, f) == 1, "fread");
  std::fclose(f);
  return id;
}

}  // namespace

Rank::Rank() {
  CUDA(cudaSetDevice(local_rank));
  CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.commName = "world";
  NCCL(ncclCommInitRankConfig(&world, size, shared_id(), rank, &config));
}
Rank::~Rank() {
  ncclCommDestroy(world);
  cudaStreamDestroy(stream);
  for (void* p : memory) cudaFree(p);
}

std::vector<float> floats(int count) {
  std::vector<float> x;
  for (int i = 0; i < count; ++i) x.push_back(static_cast<float>(rank * 10 + i));
  return x;
}

void wait_until_said(const std::string& text) {
  for (;;) {
    FILE* said = std::fopen("/proc/self/fd/2", "r");
    char line[1000];
    while (std::fgets(line, sizeof line, said) != nullptr) {
      if (std::strstr(line, text.c_str()) != nullptr) {
        std::fclose(said);
        return;
      }
    }
    std::fclose(said);
    usleep(20'000);
  }
}

ncclResult_t wait_for_error(Rank& r) {
  ncclResult_t error = ncclSuccess;
  while (error == ncclSuccess || error == ncclInProgress) {
    usleep(10'000);
    NCCL(ncclCommGetAsyncError(r.world, &error));
  }
  return error;
}

void abort(Rank& r) {
  NCCL(ncclCommAbort(r.world));
  CUDA(cudaStreamSynchronize(r.stream));
  std::_Exit(7);
}

namespace {

// Starts the ranks; the worst of their codes.
int start_all(char* program, char* name) {
  std::vector<pid_t> children;
  for (int i = 0; i < size; ++i) {
    setenv("OMPI_COMM_WORLD_RANK", std::to_string(i).c_str(), 1);
    setenv("OMPI_COMM_WORLD_SIZE", std::to_string(size).c_str(), 1);
    setenv("OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(i).c_str(), 1);
    char* words[] = {program, name, nullptr};
    pid_t child = 0;
    check(posix_spawn(&child, program, nullptr, nullptr, words, environ) == 0, "posix_spawn");
    children.push_back(child);
  }
  int worst = 0;
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return worst;
}

int number_of(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::atoi(text);
}

}  // namespace
}  // namespace vgpu::test

int main(int count, char** words) {
  using namespace vgpu::test;
  Cases cases = right_cases();
  cases.merge(wrong_cases());
  const auto found = count < 2 ? cases.end() : cases.find(words[1]);
  if (found == cases.end()) {
    fmt::print("no such case\n");
    return 2;
  }
  if (count > 2) {
    size = std::atoi(words[2]);
    return start_all(words[0], words[1]);
  }
  rank = number_of("OMPI_COMM_WORLD_RANK"), size = std::max(1, number_of("OMPI_COMM_WORLD_SIZE"));
  local_rank = number_of("OMPI_COMM_WORLD_LOCAL_RANK");
  try {
    found->second();
  } catch (const Failed& f) {
    fmt::print("rank {}: {}: {}\n", rank, f.text, ncclGetLastError(nullptr));
    return 3;
  }
  fmt::print("rank {} done\n", rank);
}
