#include "launcher/train/saves.h"

#include <chrono>

#include "launcher/app/progress.h"
#include "launcher/checkpoint/checkpoint_lookup.h"
#include "parallel/checkpoint/checkpoint_folder.h"

namespace weft {

Saves::Saves(const Config& config, Exec& exec, HostGroup& world, Voice voice, OtherFiles others)
    : run_(config.run),
      world_(world),
      voice_(std::move(voice)),
      saver_(exec, world,
             {.folder = checkpoint_folder(config.run.dir),
              .keep = config.run.keep,
              .where = config.run.background_save ? CheckpointSaver::Where::kBackground
                                                  : CheckpointSaver::Where::kForeground,
              .others = std::move(others),
              .alive = voice_.alive,
              .at = voice_.at}) {}

void Saves::check_room(const std::vector<SavedTensor>& tensors) {
  int64_t bytes = 0;
  for (const SavedTensor& t : tensors) bytes += t.local.bytes();
  bytes = world_.sum(bytes) + kCheckpointExtra;
  if (world_.rank() != 0) return;
  const std::string folder = checkpoint_folder(run_.dir);
  const int64_t room = room_for(folder);
  if (room < bytes) {
    throw ConfigError(
        "run.dir = {}: a checkpoint of this run takes {}, the disk "
        "has {} left; free some, or choose a run.dir on another disk",
        run_.dir, format_bytes(bytes), format_bytes(room));
  }
  const auto there = static_cast<int64_t>(published_checkpoints(folder).size());
  const int64_t more =
      std::max<int64_t>(1, run_.keep + 1 - there);  // one beyond run.keep for a moment
  if (run_.checkpoint_every > 0 && room < more * bytes) {
    voice_.warn(
        fmt::format("disk     {} has {} left; {} more checkpoints of {} may be written before old "
                    "ones go (run.keep = {})",
                    run_.dir, format_bytes(room), more, format_bytes(bytes), run_.keep));
  }
}

std::vector<int64_t> Saves::status(bool asked_to_stop) const {
  return {asked_to_stop ? 1 : 0, saver_.busy() ? 1 : 0};
}

bool Saves::after_step(std::span<const int64_t> sums) {
  note(saver_.advance(sums[1]));
  return sums[0] > 0;
}

void Saves::save(Manifest state, const std::vector<SavedTensor>& tensors) {
  const auto start = std::chrono::steady_clock::now();
  note(saver_.finish());
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  if (waited > std::chrono::seconds(1)) {
    voice_.warn(
        fmt::format("saving   step {} waited {:.1f} s for the save before it; a larger "
                    "run.checkpoint_every, or a faster disk, would not hold up training",
                    state.step, waited.count()));
  }
  note(saver_.begin(std::move(state), tensors));
  if (!run_.background_save) note(saver_.finish());
}

void Saves::save_now(Manifest state, const std::vector<SavedTensor>& tensors) {
  note(saver_.finish());
  const int64_t step = state.step;
  std::optional<SaveResult> result = saver_.begin(std::move(state), tensors);
  if (!result) result = saver_.finish();
  if (!result->failure.empty()) {
    throw Error("step {} could not be saved: {}; {}", step, result->failure, kept());
  }
  note(result);
}

void Saves::note(const std::optional<SaveResult>& result) {
  if (!result) return;
  if (result->failure.empty()) {
    newest_ = result->path;
    voice_.record("saved " + newest_);
    if (!result->left.empty()) {
      voice_.warn(
          fmt::format("saved    {}; an older one could not be removed: {}", newest_, result->left));
    }
    return;
  }
  voice_.warn(
      fmt::format("not saved  step {}: {}\n           {}", result->step, result->failure, kept()));
}

std::string Saves::kept() const {
  if (newest_.empty()) return "there is no checkpoint of this run yet";
  return fmt::format("the checkpoint before it is kept ({})", newest_);
}

}  // namespace weft
