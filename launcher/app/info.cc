#include "launcher/app/info.h"

#include <map>
#include <memory>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "core/config/run_config.h"
#include "core/files/hdf5.h"
#include "core/gpu/cuda_driver.h"
#include "core/report/run_record.h"
#include "kernels/gpu_libraries.h"
#include "launcher/app/commands.h"
#include "launcher/app/progress.h"
#include "launcher/app/unsupported.h"
#include "layers/mixers/registry.h"
#include "parallel/comm/nccl.h"
#include "parallel/comm/world.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

struct InfoArguments {
  bool json = false;
  std::string mixer;  // of --mixers NAME
};

// The values of a key that this version supports.
std::vector<std::string> built_choices(const std::string& key) {
  std::vector<std::string> out;
  for (const FieldInfo& info : describe<Config>()) {
    if (info.name != key) continue;
    for (const std::string& choice : info.choices) {
      const Config config = config_from_text("model.pattern = \"N\"\nmodel.layer.N.ffn = \"moe\"",
                                             "probe", {fmt::format("{}={}", key, choice)});
      try {
        refuse_unbuilt(config);
        out.push_back(choice);
      } catch (const ConfigError&) {  // known, but not supported
      }
    }
  }
  return out;
}

std::map<std::string, kernels::LibraryVersion> gpu_libraries() {
  return {{"nccl", nccl_version()},
          {"cublaslt", kernels::cublaslt_version()},
          {"transformer_engine", kernels::transformer_engine_version()}};
}

Json toolkit_version() {
  const std::string version = WEFT_CUDA_VERSION;
  return version.empty() ? Json(nullptr) : Json(version);
}

Json libraries() {
  Json out;
  out["mpi"] = mpi_version();
  out["hdf5"] = {
      {"version", WEFT_HDF5_VERSION}, {"parallel", false}, {"threadsafe", hdf5_is_threadsafe()}};
  const CudaDriver driver = find_cuda_driver();
  out["cuda"] = {{"toolkit", toolkit_version()},
                 {"driver", driver.version > 0 ? Json(driver.version) : Json(nullptr)},
                 {"devices", driver.devices}};
  for (const auto& [name, library] : gpu_libraries()) {
    out[name] = library.version.empty() ? Json(nullptr) : Json(library.version);
  }
  return out;
}

Json build_options() {
#ifdef NDEBUG
  const bool assertions = false;
#else
  const bool assertions = true;
#endif
  return {{"compiler", __VERSION__},
          {"type", WEFT_BUILD_TYPE},
          {"assertions", assertions},
          {"sanitizer", std::string(WEFT_SANITIZER).empty() ? Json(nullptr) : Json(WEFT_SANITIZER)},
          {"cuda", !toolkit_version().is_null()}};
}

Json mixers_json() {
  Json out = Json::array();
  for (const MixerInfo& mixer : mixer_list()) {
    Json options = Json::array();
    for (const FieldInfo& o : mixer.options) {
      options.push_back(
          {{"name", o.name}, {"type", o.type}, {"default", o.default_value}, {"doc", o.doc}});
    }
    out.push_back({{"name", mixer.name}, {"sentence", mixer.sentence}, {"options", options}});
  }
  return out;
}

Json info_json() {
  const Machine machine = this_machine();
  Json out = {{"version", version_number()}, {"revision", revision_text()}};
  out["build"] = build_options();
  out["instruction_sets"] = machine.instruction_sets;
  out["instruction_set"] = machine.instruction_set;
  out["cpu"] = machine.cpu;
  out["cores"] = machine.cores;
  out["memory"] = machine.memory;
  out.update(libraries());
  Json names = Json::array();
  for (const MixerInfo& mixer : mixer_list()) names.push_back(mixer.name);
  out["mixers"] = names;
  out["routers"] = built_choices("model.moe.router");
  out["schedules"] = built_choices("parallel.schedule");
  out["lr_schedules"] = built_choices("optimizer.schedule");
  return out;
}

std::string plain(const Json& value) {
  if (value.is_null()) return "not built in";
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_array()) {
    std::string out;
    for (const Json& item : value) {
      if (!out.empty()) out += ", ";
      out += plain(item);
    }
    return out.empty() ? "none" : out;
  }
  if (value.is_object()) {
    std::string out;
    for (const auto& [key, item] : value.items()) {
      if (item.is_null()) continue;
      if (!out.empty()) out += "; ";
      out += fmt::format("{} {}", key, plain(item));
    }
    return out;
  }
  return value.dump();
}

// The table also states why a linked library cannot be used here, and what the driver lacks.
void print_table(const Json& info) {
  const auto gpu = gpu_libraries();
  for (const auto& [key, value] : info.items()) {
    std::string text = key == "memory" ? format_bytes(value.get<int64_t>()) : plain(value);
    if (const auto found = gpu.find(key); found != gpu.end() && value.is_null()) {
      text = found->second.why_not;
    }
    if (key == "cuda") {
      const std::string why_not = find_cuda_driver().why_not;
      const bool built = !value["toolkit"].is_null();
      text =
          fmt::format("{}{}", built ? text : "not built in", why_not.empty() ? "" : "; " + why_not);
    }
    fmt::print("{:<20} {}\n", key, text);
  }
}

void print_mixers() {
  const auto mixers = mixer_list();
  if (mixers.empty()) fmt::print("no mixers are built in\n");
  for (const MixerInfo& mixer : mixers) fmt::print("{:<16} {}\n", mixer.name, mixer.sentence);
}

void print_mixer(const std::string& name) {
  std::vector<std::string> names;
  for (const MixerInfo& mixer : mixer_list()) {
    names.push_back(mixer.name);
    if (mixer.name != name) continue;
    fmt::print("{}: {}\n\n", mixer.name, mixer.sentence);
    for (const FieldInfo& o : mixer.options) {
      fmt::print("  {:<16} {:<14} default {:<10} {}\n", o.name, o.type, o.default_value, o.doc);
    }
    return;
  }
  const std::string hint = names.empty() ? "no mixers are built in" : nearest_or_all(name, names);
  throw ConfigError("there is no mixer '{}'; {}", name, hint);
}

void run_info(const InfoArguments& args, bool list_mixers) {
  if (!list_mixers) {
    const Json info = info_json();
    if (args.json)
      fmt::print("{}\n", info.dump(2));
    else
      print_table(info);
  } else if (!args.mixer.empty()) {
    print_mixer(args.mixer);
  } else if (args.json) {
    fmt::print("{}\n", mixers_json().dump(2));
  } else {
    print_mixers();
  }
}

}  // namespace

std::string version_number() { return WEFT_VERSION; }
std::string revision_text() { return WEFT_REVISION; }
std::string version_text() { return fmt::format("weft {} ({})", WEFT_VERSION, WEFT_REVISION); }

void add_info(CLI::App& app) {
  CLI::App* command = app.add_subcommand("info", "Features of this build and of this machine");
  auto args = std::make_shared<InfoArguments>();
  command->add_flag("--json", args->json, "One JSON object instead of a table");
  const CLI::Option* mixers =
      command->add_option("--mixers", args->mixer, "The token mixers, or the options of NAME")
          ->expected(0, 1)
          ->option_text("[NAME]");
  command->footer("Examples:\n  weft info\n  weft info --mixers softmax\n  weft info --json");
  command->callback([args, mixers] { run_info(*args, mixers->count() > 0); });
}

}  // namespace weft
