#include "core/report/run_record.h"

#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/isa.h"
#include "core/files/hash.h"
#include "core/files/new_file.h"
#include "core/threads/thread_pool.h"

namespace weft {
namespace {

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

int64_t memory_bytes() {
  struct sysinfo info {};
  int64_t bytes = 0;
  if (sysinfo(&info) == 0) {
    bytes = static_cast<int64_t>(info.totalram) * static_cast<int64_t>(info.mem_unit);
  }
  // A container's limit; "max" (not a number) means none.
  std::ifstream in("/sys/fs/cgroup/memory.max");
  int64_t limit = 0;
  if (in >> limit && limit > 0) bytes = std::min(bytes, limit);
  return bytes;
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

}  // namespace

Machine this_machine() {
  Machine m;
  char host[256] = {};
  if (gethostname(host, sizeof host - 1) == 0) m.host = host;
  m.cpu = cpu_name();
  m.cores = available_cores();
  m.memory = memory_bytes();
  for (const Isa isa : available_isas()) m.instruction_sets.emplace_back(name_of(isa));
  m.instruction_set = name_of(chosen_isa());
  return m;
}

std::string to_json(const RunRecord& r) {
  nlohmann::ordered_json json;
  json["run"] = r.run;
  json["version"] = r.version;
  json["revision"] = r.revision;
  json["started"] = utc_now();
  json["machine"] = {{"host", r.machine.host},
                     {"cpu", r.machine.cpu},
                     {"cores", r.machine.cores},
                     {"memory", r.machine.memory},
                     {"instruction_sets", r.machine.instruction_sets},
                     {"instruction_set", r.machine.instruction_set}};
  json["layout"] = r.layout;
  json["data"] = r.data;
  json["config"] = r.config;
  // File names may hold any bytes; what is not UTF-8 is replaced rather than refused.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string new_run_name(const std::string& config) { return hash_of(config).substr(0, 12); }

std::string run_name_in(const std::string& dir) {
  std::ifstream in(dir + "/run.json");
  const auto json = nlohmann::json::parse(in, nullptr, false);
  if (!json.is_object() || !json.contains("run") || !json["run"].is_string()) return "";
  return json["run"];
}

void write_run_record(const std::string& dir, const RunRecord& record) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::create_directories(dir, error);
  if (error) throw Error("{}: cannot make this folder: {}", dir, error.message());
  write_checked((fs::path(dir) / "run.json").string(), to_json(record));
}

}  // namespace weft
