#include "tests/support/vgpu/host/report.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <vector>

namespace vgpu {
namespace {

using Json = nlohmann::ordered_json;

void add(Json& to, uint64_t x) { to = (to.is_number() ? to.get<uint64_t>() : 0) + x; }

// Kernels that no process of the run launched.
Json never_launched(const Json& before, bool first, const Report& report) {
  Json names = Json::array();
  for (const std::string& kernel : report.kernels) {
    const bool open = first || std::find(before.begin(), before.end(), kernel) != before.end();
    if (open && report.launches.count(kernel) == 0) names.push_back(kernel);
  }
  return names;
}

void add_collectives(Json& all, const Report& report) {
  if (!all.is_array()) all = Json::array();
  for (const auto& [key, c] : report.collectives) {
    const auto& [group, operation] = key;
    auto found = std::find_if(all.begin(), all.end(), [&](const Json& x) {
      return x["group"] == group && x["operation"] == operation;
    });
    if (found == all.end()) {
      all.push_back({{"group", group}, {"operation", operation}});
      found = std::prev(all.end());
    }
    add((*found)["calls"], c.calls);
    add((*found)["bytes"], c.bytes);
  }
}

}  // namespace

void Report::write(const std::string& path, const std::string& run) const {
  const int lock = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock < 0 || flock(lock, LOCK_EX) != 0) {
    std::fprintf(stderr, "vgpu: cannot write %s\n", path.c_str());
    return;
  }
  Json j = Json::parse(std::ifstream(path), nullptr, /*allow_exceptions=*/false);
  const bool first = !j.is_object() || run.empty() || j.value("run", "") != run;
  if (first) j = Json{{"run", run}};
  add(j["processes"], 1);
  add(j["devices"], devices);
  Json& counts = j["launches"];
  if (first) counts = Json::object();
  for (const auto& [kernel, count] : launches) add(counts[kernel], count);
  for (const auto& [kernel, count] : threads_of) add(j["threads_by_kernel"][kernel], count);
  add(j["threads"], threads);
  add(j["bytes"]["h2d"], host_to_device);
  add(j["bytes"]["d2h"], device_to_host);
  add(j["bytes"]["d2d"], device_to_device);
  add(j["bytes"]["set"], set);
  uint64_t waits = 0;
  for (const auto& [call, count] : host_waits) {
    add(j["host_waits_by_call"][call], count);
    waits += count;
  }
  add(j["host_waits"], waits);
  add(j["allocations"]["count"], allocations);
  Json& peak = j["allocations"]["peak_bytes"];
  peak = std::max(peak.is_number() ? peak.get<uint64_t>() : 0, peak_bytes);
  add(j["products"]["count"], products);
  add(j["products"]["flops"], product_flops);
  add_collectives(j["collectives"], *this);
  j["never_launched"] = never_launched(j.value("never_launched", Json::array()), first, *this);
  std::ofstream(path) << j.dump(1) << "\n";
  close(lock);
}

}  // namespace vgpu
