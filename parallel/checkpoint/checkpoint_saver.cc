#include "parallel/checkpoint/checkpoint_saver.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "core/host_access.h"
#include "parallel/checkpoint/checkpoint_folder.h"
#include "parallel/checkpoint/checkpoint_write.h"

namespace weft {
namespace {

constexpr int64_t kAlign = 64;
constexpr int64_t kCopyBlock = 4 << 20;  // bytes one task copies

int64_t padded(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

void copy_bytes(Exec& exec, char* to, const char* from, int64_t bytes) {
  exec.threads.run((bytes + kCopyBlock - 1) / kCopyBlock, [&](int64_t i) {
    const int64_t begin = i * kCopyBlock, count = std::min(kCopyBlock, bytes - begin);
    std::memcpy(to + begin, from + begin, static_cast<size_t>(count));
  });
}

}  // namespace

CheckpointSaver::CheckpointSaver(Exec& exec, HostGroup& world, Options options)
    : exec_(exec), world_(world), options_(std::move(options)) {}

CheckpointSaver::~CheckpointSaver() {
  if (job_.valid()) job_.wait();
}

std::optional<SaveResult> CheckpointSaver::begin(Manifest state,
                                                 const std::vector<SavedTensor>& tensors) {
  WEFT_CHECK(idle(), "step {} is saved while step {} still is", state.step, state_.step);
  int64_t bytes = 0;
  for (const SavedTensor& t : tensors) bytes += t.local.bytes();
  if (world_.rank() == 0) {
    for (const auto& [name, content] : options_.others) bytes += std::ssize(content);
  }
  bytes = world_.sum(bytes);
  std::string failure;
  if (world_.rank() == 0) {
    try {
      begin_writing(options_.folder, state.step, bytes, options_.at);
    } catch (const std::exception& e) {
      failure = e.what();
    }
  }
  failure = world_.text_of_first(failure);  // and nobody writes before the folder is there
  if (!failure.empty()) return SaveResult{state.step, "", failure};

  state_ = std::move(state);
  phase_ = Phase::kWriting;
  if (options_.where == Where::kBackground) {
    take_copy(tensors);
  } else {
    tensors_ = tensors;
  }
  start([this] {
    write_described_part(writing_path(options_.folder, state_.step), world_.rank(), state_.step,
                         tensors_, {.progress = [this] { ++progress_; }, .at = options_.at});
  });
  return std::nullopt;
}

void CheckpointSaver::take_copy(const std::vector<SavedTensor>& tensors) {
  int64_t bytes = 0;
  for (const SavedTensor& t : tensors) bytes += padded(t.local.bytes());
  // Counted as master weights, of which it is a second copy, with their moments.
  if (copy_.bytes() < bytes) copy_ = Arena(exec_.pool.ledger(), Label::kMaster, bytes);
  tensors_ = tensors;
  int64_t at = 0;
  for (SavedTensor& t : tensors_) {
    const Tensor to = copy_.tensor(at, t.local.shape(), t.local.dtype());
    copy_bytes(exec_, static_cast<char*>(host_bytes(to)),
               static_cast<const char*>(host_bytes(t.local)), t.local.bytes());
    t.local = to;
    at += padded(to.bytes());
  }
}

void CheckpointSaver::start(std::function<void()> job) {
  job_ = std::async(std::launch::async, std::move(job));
}

void CheckpointSaver::wait_for_job() {
  constexpr std::chrono::milliseconds kLook{50};
  int64_t seen = progress_;
  while (job_.wait_for(kLook) != std::future_status::ready) {
    const int64_t now = progress_;
    if (now != seen && options_.alive) options_.alive();
    seen = now;
  }
}

bool CheckpointSaver::busy() const {
  return job_.valid() && job_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

std::string CheckpointSaver::failure_of_job() {
  if (!job_.valid()) return "";
  try {
    job_.get();
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::optional<SaveResult> CheckpointSaver::advance(int64_t busy_ranks) {
  if (idle() || busy_ranks > 0) return std::nullopt;
  SaveResult result{state_.step, checkpoint_path(options_.folder, state_.step), ""};
  const std::vector<std::string> failures = world_.gather_texts(failure_of_job());
  for (size_t rank = 0; rank < failures.size() && result.failure.empty(); ++rank) {
    if (failures[rank].empty()) continue;
    result.path.clear();
    result.failure =
        failures.size() == 1 ? failures[rank] : fmt::format("rank {}: {}", rank, failures[rank]);
  }
  if (!result.failure.empty() && world_.rank() == 0) {
    abandon_writing(options_.folder, state_.step);
  }
  if (!result.failure.empty() || phase_ == Phase::kPublishing) {
    tensors_.clear();
    phase_ = Phase::kIdle;
    result.left = std::exchange(left_, "");
    return result;
  }
  phase_ = Phase::kPublishing;
  if (world_.rank() == 0) {
    start([this, ranks = world_.size()] {
      const std::string beside = writing_path(options_.folder, state_.step);
      collect_parts(beside, ranks, state_);
      write_others(beside, options_.others, state_);
      left_ = publish_checkpoint(options_.folder, state_, options_.keep, options_.at).left;
    });
  }
  return std::nullopt;
}

std::optional<SaveResult> CheckpointSaver::finish() {
  std::optional<SaveResult> result;
  while (!idle()) {
    if (job_.valid()) wait_for_job();
    result = advance(0);
  }
  return result;
}

std::string save_checkpoint(Exec& exec, HostGroup& world, const std::string& folder, Manifest state,
                            const std::vector<SavedTensor>& tensors, int64_t keep,
                            OtherFiles others) {
  CheckpointSaver saver(exec, world, {.folder = folder, .keep = keep, .others = std::move(others)});
  std::optional<SaveResult> result = saver.begin(std::move(state), tensors);
  if (!result) result = saver.finish();
  if (!result->failure.empty()) throw Error("{}", result->failure);
  return result->path;
}

std::string save_checkpoint(const std::string& folder, Manifest state,
                            const std::vector<SavedTensor>& tensors, int64_t keep,
                            OtherFiles others) {
  Ledger ledger;
  Pool pool(ledger);
  ThreadPool thread(1);
  Exec exec{thread, pool, chosen_isa()};
  SelfHosts self;
  return save_checkpoint(exec, self, folder, std::move(state), tensors, keep, std::move(others));
}

}  // namespace weft
