#include "tests/support/vgpu/host/streams.h"

#include "tests/support/vgpu/host/options.h"
#include "tests/support/vgpu/wire/layout.h"

namespace vgpu {

Stream* Streams::add(int device, bool blocking, bool is_default) {
  auto stream = std::make_unique<Stream>();
  if (free_slots_.empty()) {
    if (next_slot_ == kMaxStreams) refuse("more streams than the virtual GPU has");
    stream->slot = next_slot_++;
  } else {
    stream->slot = free_slots_.back().stream;
    stream->newest = free_slots_.back().number;
    free_slots_.pop_back();
  }
  stream->device = device;
  stream->blocking = blocking;
  stream->is_default = is_default;
  return streams_.insert(std::move(stream)).first->get();
}

Stream* Streams::create(int device, bool blocking) { return add(device, blocking, false); }

void Streams::destroy(Stream* stream) {
  ended_.push_back({stream->device, stream->mark()});
  streams_.erase(streams_.find(stream));
}

Stream* Streams::default_of(int device) {
  const auto i = static_cast<size_t>(device);
  if (defaults_.size() <= i) defaults_.resize(i + 1);
  if (defaults_[i] == nullptr) {
    defaults_[i] = add(device, /*blocking=*/true, /*is_default=*/true);
    ++defaults_used_;
  }
  return defaults_[i];
}

Stream* Streams::find(CUstream_st* handle, int device) {
  const auto value = reinterpret_cast<uintptr_t>(handle);
  if (value <= 2) return default_of(device);
  const auto found = streams_.find(handle);
  return found == streams_.end() ? nullptr : found->get();
}

std::vector<Stream*> Streams::of_device(int device) const {
  std::vector<Stream*> all;
  for (const auto& stream : streams_) {
    if (stream->device == device) all.push_back(stream.get());
  }
  return all;
}

std::vector<Mark> Streams::marks_of_device(int device) const {
  std::vector<Mark> marks;
  for (const Stream* stream : of_device(device)) marks.push_back(stream->mark());
  for (const Ended& ended : ended_) {
    if (ended.device == device) marks.push_back(ended.mark);
  }
  return marks;
}

void Streams::host_knows(const VectorClock& clock) {
  std::erase_if(ended_, [&](const Ended& e) {
    if (!clock.covers(e.mark.ticket)) return false;
    free_slots_.push_back(e.mark.ticket);
    return true;
  });
}

Event* Streams::create_event(int device, bool timing) {
  auto event = std::make_unique<Event>();
  event->device = device;
  event->timing = timing;
  if (timing) event->stamp_slot = next_stamp_++ % kMaxTimedEvents;
  return events_.insert(std::move(event)).first->get();
}

Event* Streams::find_event(CUevent_st* handle) {
  const auto found = events_.find(handle);
  return found == events_.end() ? nullptr : found->get();
}

void Streams::destroy_event(Event* event) { events_.erase(events_.find(event)); }

}  // namespace vgpu
