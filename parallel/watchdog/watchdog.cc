#include "parallel/watchdog/watchdog.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "parallel/watchdog/stack_of.h"

namespace weft {
namespace {

constexpr double kPatience = 5;  // seconds for the rank that speaks first to end the others
constexpr size_t kNamed = 8;     // ranks named one by one; a report stays readable with thousands

// Often enough to see a change within the time that the report waits for.
double interval_of(const WatchdogOptions& o) {
  const double shortest = o.slow > 0 && o.limit > 0 ? std::min(o.slow, o.limit) : o.slow + o.limit;
  return std::clamp(shortest / 8, 0.05, 1.0);
}

double silent_after(double interval) { return 3 * interval; }

std::string who(const Heartbeat& h) {
  return fmt::format("rank {} ({}) on {}, pid {}", h.rank, h.coordinates, h.host, h.pid);
}

std::string from(const Heartbeat& h) {
  return h.stack.empty() ? "" : fmt::format(", called from {}", h.stack);
}

std::string where_of(const Heartbeat& h) { return fmt::format("{}, {}", h.call, h.place); }

// The later, the less it can be the others' fault.
enum class State : uint8_t { kWaits, kComputes, kSilent, kNeverSeen };

State state_of(const RankSight& sight, double silent_after) {
  if (!sight.seen) return State::kNeverSeen;
  if (sight.silent >= silent_after) return State::kSilent;
  return sight.last.call.empty() ? State::kComputes : State::kWaits;
}

std::string suspect_line(const RankSight& s, State state) {
  const Heartbeat& h = s.last;
  if (state == State::kNeverSeen) return fmt::format("rank {}: no sign of life yet", s.rank);
  if (state == State::kSilent) {
    return fmt::format("{}: no sign of life for {:.1f} s; last in {}{}{}", who(h), s.silent,
                       h.place, h.call.empty() ? "" : ", " + h.call, from(h));
  }
  return fmt::format("{}: in no call for {:.1f} s, {}{}", who(h), h.seconds, h.place,
                     h.stack.empty() ? "" : fmt::format(", in {}", h.stack));
}

}  // namespace

bool somebody_gets_on(const std::vector<RankSight>& sights, double seconds) {
  return std::any_of(sights.begin(), sights.end(), [&](const RankSight& s) {
    return s.seen && s.last.call.empty() && s.last.seconds + s.silent < seconds;
  });
}

std::vector<std::string> nodes_out_of_reach(int me, const std::vector<RankSight>& sights) {
  std::map<std::string, std::string> addresses;  // by node
  const std::string& mine = sights[static_cast<size_t>(me)].last.host;
  for (const RankSight& s : sights) {
    if (s.seen && s.last.host != mine) addresses.emplace(s.last.host, s.last.addresses);
  }
  std::vector<std::string> out;
  for (const auto& [node, places] : addresses) {
    if (out.size() < kNamed && !answers(places)) out.push_back(node);
  }
  return out;
}

std::string waiting_report(int me, const std::vector<RankSight>& sights, double silent_after,
                           const std::vector<std::string>& out_of_reach) {
  const Heartbeat& mine = sights[static_cast<size_t>(me)].last;
  std::string text = fmt::format("{} has waited {:.1f} s in {}, {}{}", who(mine), mine.seconds,
                                 mine.call, mine.place, from(mine));
  std::vector<std::pair<State, const RankSight*>> suspects;
  std::map<std::string, std::vector<int>> waiting;  // by where
  for (const RankSight& s : sights) {
    const State state = state_of(s, silent_after);
    if (state != State::kWaits)
      suspects.emplace_back(state, &s);
    else if (s.rank != me)
      waiting[where_of(s.last)].push_back(s.rank);
  }
  std::stable_sort(suspects.begin(), suspects.end(), [](const auto& a, const auto& b) {
    return a.first != b.first ? a.first > b.first : a.second->last.seconds > b.second->last.seconds;
  });
  for (const std::string& node : out_of_reach) {
    text +=
        fmt::format("\n  node {} does not answer {}: it has crashed, or the network to it is cut",
                    node, mine.host);
  }
  const bool same_call = waiting.size() == 1 && waiting.begin()->first == where_of(mine);
  if (suspects.empty() && same_call) {
    if (out_of_reach.empty()) {
      text +=
          "\n  all ranks wait in the same call: what they send each other does not arrive, or one "
          "of them has made a call more, which run.check_collectives=true finds";
    }
  } else if (suspects.empty() && out_of_reach.empty()) {
    text +=
        "\n  all ranks wait: they disagree about what to call. run.check_collectives=true stops "
        "at the first such call with both sides";
  } else if (!suspects.empty()) {
    text += fmt::format(
        "\n  {} not waiting, which the others wait for:",
        suspects.size() == 1 ? "one rank is" : fmt::format("{} ranks are", suspects.size()));
  }
  for (size_t i = 0; i < std::min(kNamed, suspects.size()); ++i) {
    text += "\n    " + suspect_line(*suspects[i].second, suspects[i].first);
  }
  if (suspects.size() > kNamed) text += fmt::format("\n    and {} more", suspects.size() - kNamed);
  for (const auto& [where, ranks] : waiting) {
    const size_t shown = std::min(kNamed, ranks.size());
    text += fmt::format("\n  {} rank{} more wait{} in {}: {}{}", ranks.size(),
                        ranks.size() == 1 ? "" : "s", ranks.size() == 1 ? "s" : "", where,
                        fmt::join(ranks.begin(), ranks.begin() + static_cast<int64_t>(shown), ", "),
                        shown < ranks.size() ? ", ..." : "");
  }
  return text;
}

Watchdog::Watchdog(const WatchdogOptions& options, const Rank& rank, const Activity& activity,
                   std::function<void(const std::string&)> say, std::function<void()> give_up)
    : options_(options),
      rank_(rank),
      activity_(activity),
      say_(std::move(say)),
      give_up_(std::move(give_up)),
      interval_(interval_of(options)),
      file_(options.folder, rank.rank),
      sights_(static_cast<size_t>(rank.ranks)) {
  mine_ = {.rank = rank.rank,
           .beat = 0,
           .coordinates = rank.coordinates,
           .host = this_host(),
           .addresses = port_of_node_.addresses(),
           .pid = getpid(),
           .place = {},
           .call = {},
           .seconds = 0,
           .stack = {}};
  for (int r = 0; r < rank.ranks; ++r) {
    sights_[static_cast<size_t>(r)] = {{.rank = r}, Clock::now()};
  }
  thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stop_.notify_all();
  thread_.join();
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    beat();
    lock.lock();
    stop_.wait_for(lock, interval_, [this] { return stopping_; });
  }
}

void Watchdog::beat() {
  const Activity::Now now = activity_.now();
  const double patience = options_.slow > 0 ? options_.slow : options_.limit;
  const bool long_here = patience > 0 && now.seconds > patience / 2;
  ++mine_.beat;
  mine_.place = place_text(now);
  mine_.call = now.call == nullptr ? "" : fmt::format("{} over {}", now.call, now.axis);
  mine_.seconds = now.seconds;
  mine_.stack = long_here ? stack_of(watched_) : "";
  file_.write(mine_);
  if (!long_here || now.call == nullptr) return;
  look();
  judge(now);
}

// Reads the others' files. A rank is silent from when its beat was first seen to stand still.
void Watchdog::look() {
  for (Sight& sight : sights_) {
    RankSight& known = sight.known;
    const auto found = known.rank == rank_.rank ? std::optional(mine_)
                                                : read_heartbeat(options_.folder, known.rank);
    const auto now = Clock::now();
    const bool alive = found && (!known.seen || found->beat != known.last.beat);
    if (alive) sight.changed = now;
    if (found) known.last = *found;
    known.seen = known.seen || found.has_value();
    known.silent = std::chrono::duration<double>(now - sight.changed).count();
  }
}

// The first of those that wait speaks for all.
bool Watchdog::speaks() const {
  for (const Sight& sight : sights_) {
    if (sight.known.rank == rank_.rank) return true;
    const State state = state_of(sight.known, silent_after(interval_.count()));
    if (state == State::kWaits && sight.known.last.seconds > mine_.seconds / 2) return false;
  }
  return true;
}

void Watchdog::judge(const Activity::Now& now) {
  std::vector<RankSight> known;
  for (const Sight& sight : sights_) known.push_back(sight.known);
  const bool over = options_.limit > 0 && now.seconds >= options_.limit &&
                    !somebody_gets_on(known, options_.limit);
  if (said_calls_ != now.calls) {
    said_calls_ = now.calls;
    say_at_ = options_.slow > 0 ? options_.slow : options_.limit;
    over_at_ = options_.limit;
  }
  // One rank speaks and ends the job; the others only if that did not end them.
  if (!over) {
    yields_ = false;
    over_at_ = std::max(options_.limit, now.seconds);
  }
  const bool mine = speaks() && !yields_;
  if (over && !mine) yields_ = now.seconds < over_at_ + kPatience;
  if (over ? yields_ : !mine || now.seconds < say_at_) return;
  say_at_ = 2 * now.seconds;
  std::string text = waiting_report(rank_.rank, known, silent_after(interval_.count()),
                                    nodes_out_of_reach(rank_.rank, known));
  if (!over) return say_(text);
  say_(text + fmt::format("\n  longer than run.watchdog_seconds = {:g}: all ranks are ended",
                          options_.limit));
  give_up_();
}

}  // namespace weft
