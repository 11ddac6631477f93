#pragma once

#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "core/config/run_config.h"

namespace weft {

// Parses the command line and runs the command it names; returns the exit code. A mistake prints
// one message on stderr that suggests the nearest command or option.
int run_program(int argc, const char* const* argv,
                const std::vector<void (*)(CLI::App&)>& commands);

// Suggestions for arguments that `app` (after a failed parse) did not accept. Empty when every
// argument was understood.
std::string explain_leftovers(const CLI::App& app);

// CONFIG [key=value ...] and --explain KEY, for every command that reads a config.
//   auto args = add_config_arguments(*command);
//   command->callback([args] { if (!args->explained()) train(args->load()); });
class ConfigArguments {
 public:
  // Prints the answer to --explain; true if the option was given and nothing else is to be done.
  bool explained() const;

  // The config with the overrides applied: valid, with known mixers, and without keys that this
  // version would silently ignore.
  Config load(const std::vector<std::string>& more = {}) const;  // `more` after the overrides

  const std::string& path() const { return path_; }

 private:
  friend std::shared_ptr<ConfigArguments> add_config_arguments(CLI::App& command);
  std::string path_;
  std::vector<std::string> overrides_;
  std::string explain_;
};
std::shared_ptr<ConfigArguments> add_config_arguments(CLI::App& command);

// Refuses names of mixers that do not exist, with the nearest that does.
void check_mixer_names(const Config& config, const std::vector<std::string>& known);

}  // namespace weft
