#include "launcher/app/cli.h"

#include <cstdio>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/error.h"
#include "core/base/nearest.h"
#include "launcher/app/abort.h"
#include "launcher/app/info.h"
#include "launcher/app/unsupported.h"
#include "layers/mixers/registry.h"

namespace weft {
namespace {

// The innermost command the user named: "weft bench gemm" rather than "weft".
const CLI::App& innermost(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  return *at;
}

std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent ? full_name(*parent) + " " + app.get_name() : app.get_name();
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(sub->get_name());
  }
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

void say(const std::string& message) { fmt::print(stderr, "weft: {}\n", message); }

// For ranges without upper bound the library prints the largest double.
std::string readable(const std::string& what) {
  const size_t value = what.find("Value "), range = what.find(" not in range 0.000000 to 1797");
  if (value == std::string::npos || range == std::string::npos) return what;
  return fmt::format("{}{} is too small; give a positive number", what.substr(0, value),
                     what.substr(value + 6, range - value - 6));
}

int refuse_arguments(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = innermost(app);
  let_first_rank_speak(kEverybodysMistake);
  const std::string leftovers = explain_leftovers(app);
  const std::string what = leftovers.empty() ? readable(error.what()) : leftovers;
  say(fmt::format("{} (see {} --help)", what, full_name(command)));
  return kExitUser;
}

// A group of commands ("weft data") needs one of its commands.
void require_command(const CLI::App& app) {
  const CLI::App& command = innermost(app);
  const auto names = command_names(command);
  if (names.empty()) return;
  throw ConfigError("{} needs a command: {} (see {} --help)", full_name(command),
                    fmt::join(names, ", "), full_name(command));
}

}  // namespace

std::string explain_leftovers(const CLI::App& app) {
  const CLI::App& command = innermost(app);
  const std::vector<std::string> extras = app.remaining(true);
  if (extras.empty()) return "";
  const std::string& extra = extras.front();
  const bool option = extra.starts_with("-");
  const auto known = option ? option_names(command) : command_names(command);
  const std::string name = option ? extra.substr(0, extra.find('=')) : extra;
  const std::string hint = nearest_or_all(name, known);
  return fmt::format("{} has no {} '{}'{}{}", full_name(command),
                     option          ? "option"
                     : known.empty() ? "argument"
                                     : "command",
                     extra, hint.empty() ? "" : "; ", hint);
}

int run_program(int argc, const char* const* argv,
                const std::vector<void (*)(CLI::App&)>& commands) {
  CLI::App app("Trains Linear-MoE models: linear sequence mixers and mixtures of experts.", "weft");
  app.set_version_flag("--version", version_text());
  app.footer(
      "Example:\n"
      "  weft info\n"
      "\n"
      "Exit codes: 0 done, 2 invalid input, 3 failed while running, 75 stopped on request.");
  for (const auto add : commands) add(app);
  try {
    app.parse(argc, argv);
    require_command(app);
  } catch (const CLI::RuntimeError& e) {
    return e.get_exit_code();
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help and --version
  } catch (const CLI::ParseError& e) {
    return refuse_arguments(app, e);
  } catch (...) {
    return report_failure(std::current_exception());
  }
  return kExitOk;
}

std::shared_ptr<ConfigArguments> add_config_arguments(CLI::App& command) {
  auto args = std::make_shared<ConfigArguments>();
  command.add_option("CONFIG", args->path_, "TOML file of the run");
  command.add_option("key=value", args->overrides_,
                     "Overrides, for example train.steps=100 model.pattern=LN");
  command.add_option("--explain", args->explain_,
                     "Explain a KEY, a table or all: meaning, type, rule and default");
  return args;
}

bool ConfigArguments::explained() const {
  if (explain_.empty()) return false;
  fmt::print("{}", explain(explain_));
  return true;
}

Config ConfigArguments::load(const std::vector<std::string>& more) const {
  if (path_.empty()) {
    throw ConfigError(
        "no config file; name one, for example configs/tiny.toml, or read the "
        "meaning of a key with --explain KEY");
  }
  std::vector<std::string> overrides = overrides_;
  overrides.insert(overrides.end(), more.begin(), more.end());
  Config config = load_config(path_, overrides);
  std::vector<std::string> mixers;
  for (const MixerInfo& mixer : mixer_list()) mixers.push_back(mixer.name);
  check_mixer_names(config, mixers);
  refuse_unbuilt(config);
  return config;
}

void check_mixer_names(const Config& config, const std::vector<std::string>& known) {
  for (const auto& [letter, layer] : config.model.letters) {
    const std::string& name = layer.mixer;
    if (known.empty() || std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string key = fmt::format("model.layer.{}.mixer", letter);
    throw ConfigError("{}: {} = \"{}\" is not a mixer; {} (weft info --mixers)", config.where(key),
                      key, name, nearest_or_all(name, known));
  }
}

}  // namespace weft
