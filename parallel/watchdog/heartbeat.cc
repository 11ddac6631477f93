#include "parallel/watchdog/heartbeat.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>

namespace weft {
namespace {

constexpr size_t kFile = 2048;  // bytes; padded, so that a shorter text leaves nothing of a longer

std::string to_text(const Heartbeat& h) {
  std::string text = fmt::format(
      "beat {}\n"
      "rank {}\n"
      "coordinates {}\n"
      "host {}\n"
      "addresses {:.200}\n"
      "pid {}\n"
      "place {}\n"
      "call {}\n"
      "seconds {:.3f}\n"
      "stack {:.1300}\n",
      h.beat, h.rank, h.coordinates, h.host, h.addresses, h.pid, h.place, h.call, h.seconds,
      h.stack);
  // The beat again at the end: a reader that meets a half-written file sees two numbers.
  const std::string end = fmt::format("end {}\n", h.beat);
  text.resize(kFile - end.size(), '\n');
  return text + end;
}

}  // namespace

std::string heartbeat_path(const std::string& folder, int rank) {
  return fmt::format("{}/rank-{:06}", folder, rank);
}

std::string this_host() {
  char name[256] = "";
  gethostname(name, sizeof name - 1);
  return name;
}

int remove_heartbeats(const std::string& folder) {
  int removed = 0;
  std::error_code none;
  for (std::filesystem::directory_iterator file(folder, none), end; !none && file != end;
       file.increment(none)) {
    std::error_code failure;
    if (std::filesystem::remove(file->path(), failure)) ++removed;
  }
  return removed;
}

std::optional<Heartbeat> read_heartbeat(const std::string& folder, int rank) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    std::ifstream file(heartbeat_path(folder, rank));
    if (!file) return std::nullopt;
    std::map<std::string, std::string> values;
    for (std::string line; std::getline(file, line);) {
      const size_t space = line.find(' ');
      if (space != std::string::npos) values[line.substr(0, space)] = line.substr(space + 1);
    }
    if (values["beat"].empty() || values["beat"] != values["end"]) continue;
    return Heartbeat{.rank = rank,
                     .beat = std::atoll(values["beat"].c_str()),
                     .coordinates = values["coordinates"],
                     .host = values["host"],
                     .addresses = values["addresses"],
                     .pid = std::atoll(values["pid"].c_str()),
                     .place = values["place"],
                     .call = values["call"],
                     .seconds = std::atof(values["seconds"].c_str()),
                     .stack = values["stack"]};
  }
  return std::nullopt;
}

HeartbeatFile::HeartbeatFile(const std::string& folder, int rank)
    : path_(heartbeat_path(folder, rank)) {
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  file_ = open(path_.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0644);
}

HeartbeatFile::~HeartbeatFile() {
  if (file_ < 0) return;
  close(file_);
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
  std::filesystem::remove(std::filesystem::path(path_).parent_path(), ignored);  // by the last one
}

void HeartbeatFile::write(const Heartbeat& heartbeat) const {
  if (file_ < 0) return;
  const std::string text = to_text(heartbeat);
  static_cast<void>(!pwrite(file_, text.data(), text.size(), 0));
}

}  // namespace weft
