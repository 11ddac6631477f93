#include "tests/support/vgpu/host/fault_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <regex>

#include "tests/support/vgpu/host/options.h"

namespace vgpu {
namespace {

using Kind = FaultPlan::Kind;
using Point = FaultPlan::Point;

const std::map<std::string, std::pair<Kind, Point>>& known_faults() {
  static const std::map<std::string, std::pair<Kind, Point>> known{
      {"out_of_memory@allocation", {Kind::kOutOfMemory, Point::kAllocation}},
      {"illegal_address@launch", {Kind::kIllegalAddress, Point::kLaunch}},
      {"ecc@launch", {Kind::kEcc, Point::kLaunch}},
      {"device_lost@launch", {Kind::kDeviceLost, Point::kLaunch}},
      {"hang@launch", {Kind::kHang, Point::kLaunch}},
      {"nccl_error@collective", {Kind::kNcclError, Point::kCollective}},
  };
  return known;
}

std::string rank_of_process() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* rank = std::getenv(name)) return rank;
  }
  return "0";
}

}  // namespace

FaultPlan::FaultPlan(const std::string& text) {
  static const std::regex form("([a-z_]+@[a-z]+)=([0-9]+)(:rank=([0-9]+))?");
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string one = text.substr(at, end - at);
    at = end + 1;
    std::smatch parts;
    const bool formed = std::regex_match(one, parts, form);
    const auto known = formed ? known_faults().find(parts[1]) : known_faults().end();
    if (known == known_faults().end()) {
      std::string names;
      for (const auto& [name, what] : known_faults()) names += fmt::format(" {}=N", name);
      refuse(fmt::format("VGPU_FAULT={}: known are{}, each with :rank=R or without", one, names));
    }
    if (parts[4].matched && parts[4] != rank_of_process()) continue;
    entries_.push_back({known->second.second, known->second.first, std::stoll(parts[2])});
  }
}

bool FaultPlan::reached(Point point, Kind kind) {
  int64_t& count = point == Point::kAllocation ? allocations_
                   : point == Point::kLaunch   ? launches_
                                               : collectives_;
  ++count;
  return std::any_of(entries_.begin(), entries_.end(), [&](const Entry& e) {
    return e.point == point && e.kind == kind && e.at == count;
  });
}

Fault FaultPlan::launch() {
  ++launches_;
  for (const Entry& e : entries_) {
    if (e.point != Point::kLaunch || e.at != launches_) continue;
    switch (e.kind) {
      case Kind::kIllegalAddress: return Fault::kIllegalAddress;
      case Kind::kEcc: return Fault::kEcc;
      case Kind::kDeviceLost: return Fault::kDeviceLost;
      default: return Fault::kHang;
    }
  }
  return Fault::kNone;
}

}  // namespace vgpu
