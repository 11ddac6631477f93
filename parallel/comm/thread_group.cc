#include "parallel/comm/thread_group.h"

#include <algorithm>
#include <cstring>

#include "parallel/comm/check_views.h"

namespace weft {

void ThreadHub::fail(const std::string& why) {
  const std::lock_guard lock(mutex);
  if (failure.empty()) failure = why;
  changed.notify_all();
}

ThreadGroup::State::State(int size, ThreadGroupOptions options, std::shared_ptr<ThreadHub> hub)
    : size(size),
      options(std::move(options)),
      hub(std::move(hub)),
      postings(static_cast<size_t>(size)),
      waiting(static_cast<size_t>(size)),
      queues(static_cast<size_t>(size * size)) {}

// Every rank of the group with what it waits in.
std::string ThreadGroup::State::whereabouts() const {
  std::string text;
  for (size_t r = 0; r < waiting.size(); ++r) {
    text += fmt::format("{}rank {} {}", r == 0 ? "" : "; ", r,
                        waiting[r].empty() ? "is not waiting here" : "waits in " + waiting[r]);
  }
  return text;
}

template <class Ready>
void ThreadGroup::State::wait(Lock& lock, int rank, const std::string& what, Ready ready) {
  std::string& mine = waiting[static_cast<size_t>(rank)];
  mine = what;
  const auto released = [&] { return ready() || !hub->failure.empty(); };
  const bool in_time = hub->changed.wait_for(lock, options.timeout, released);
  if (!in_time) {
    hub->failure = fmt::format("{}[{}/{}] waited {} ms in {}: {}", options.name, rank, size,
                               options.timeout.count(), what, whereabouts());
    hub->changed.notify_all();
  }
  mine.clear();
  if (!ready()) throw Error("{}", hub->failure);
}

void ThreadGroup::State::arrive(Lock&) {
  if (++arrived < size) return;
  arrived = 0;
  ++meetings;
  hub->changed.notify_all();
}

void ThreadGroup::State::meet(int rank) {
  Lock lock(hub->mutex);
  if (!hub->failure.empty()) throw Error("{}", hub->failure);
  const uint64_t before = meetings;
  arrive(lock);
  if (meetings == before) {
    wait(lock, rank, posting(rank).call, [&] { return meetings != before; });
  }
}

void ThreadGroup::State::part() {
  Lock lock(hub->mutex);
  const uint64_t before = meetings;
  arrive(lock);
  hub->changed.wait(lock, [&] { return meetings != before; });
}

void ThreadGroup::State::agree(int rank, Posting mine) {
  postings[static_cast<size_t>(rank)] = std::move(mine);
  meet(rank);
  for (int other = 1; other < size; ++other) {
    if (posting(other).call == posting(0).call) continue;
    const std::string why = fmt::format("ranks of {} disagree: rank 0 calls {}, rank {} calls {}",
                                        options.name, posting(0).call, other, posting(other).call);
    hub->fail(why);
    part();  // the others still read the postings
    throw Error("{}", why);
  }
}

void ThreadGroup::State::post(int from, int to, Message& message) {
  const Lock lock(hub->mutex);
  if (!hub->failure.empty()) throw Error("{}", hub->failure);
  queue(from, to).push_back(&message);
  hub->changed.notify_all();
}

void ThreadGroup::State::receive(int from, int to, View data, int tag) {
  Lock lock(hub->mutex);
  Queue& messages = queue(from, to);
  const auto next = [&] {
    return std::find_if(messages.begin(), messages.end(),
                        [&](const Message* m) { return m->tag == tag; });
  };
  if (next() == messages.end()) {
    wait(lock, to,
         fmt::format("transfer(receive from {}, {} {})", from, name_of(data.dtype), data.shape),
         [&] { return next() != messages.end(); });
  }
  const auto found = next();
  Message& message = **found;
  if (message.data.dtype != data.dtype || message.data.shape != data.shape) {
    const std::string why = fmt::format(
        "ranks of {} disagree: rank {} sends {} {} to rank {}, which receives {} {}", options.name,
        from, name_of(message.data.dtype), message.data.shape, to, name_of(data.dtype), data.shape);
    if (hub->failure.empty()) hub->failure = why;
    hub->changed.notify_all();
    throw Error("{}", why);
  }
  messages.erase(found);
  message.stage = Message::Stage::kTaken;
  lock.unlock();
  if (!data.empty()) std::memcpy(data.data, message.data.data, static_cast<size_t>(bytes_of(data)));
  lock.lock();
  message.stage = Message::Stage::kDone;
  hub->changed.notify_all();
}

void ThreadGroup::State::await_done(int from, int to, Message& message) {
  Lock lock(hub->mutex);
  const auto done = [&] { return message.stage == Message::Stage::kDone; };
  if (done()) return;
  wait(lock, from,
       fmt::format("transfer(send to {}, {} {})", to, name_of(message.data.dtype),
                   message.data.shape),
       done);
}

void ThreadGroup::State::withdraw(int from, int to, Message& message) {
  Lock lock(hub->mutex);
  std::erase(queue(from, to), &message);
  hub->changed.wait(lock, [&] { return message.stage != Message::Stage::kTaken; });
}

}  // namespace weft
