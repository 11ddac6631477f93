#pragma once

#include <CLI/CLI.hpp>

// Every command of the program lives in its own file and adds itself here: `void
// add_NAME(CLI::App&)` makes a subcommand with a description, its options, a footer with an
// example, and a callback. weft.cc lists all commands.
//
// A callback ends with 0 by returning, with 2 by throwing ConfigError, with 3 by any other
// exception, and with another code by `throw CLI::RuntimeError(code)`.
namespace weft {

void add_train(CLI::App& app);
void add_verify(CLI::App& app);
void add_data(CLI::App& app);
void add_info(CLI::App& app);
void add_checkpoint(CLI::App& app);
void add_generate(CLI::App& app);
void add_convert(CLI::App& app);
void add_eval(CLI::App& app);

void add_bench(CLI::App& app);
void add_bench_checkpoint(CLI::App& bench);
void add_bench_comm(CLI::App& bench);
void add_bench_decode(CLI::App& bench);
void add_bench_gemm(CLI::App& bench);
void add_bench_mixer(CLI::App& bench);
void add_bench_moe(CLI::App& bench);
void add_bench_step(CLI::App& bench);
void add_bench_tokenizer(CLI::App& bench);

}  // namespace weft
