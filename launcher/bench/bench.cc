#include "launcher/app/commands.h"

namespace weft {

void add_bench(CLI::App& app) {
  CLI::App* bench =
      app.add_subcommand("bench", "Benchmarks, compared with the measured peak of this machine");
  bench->footer("Example: weft bench step configs/tiny.toml --json step.json");
  add_bench_checkpoint(*bench);
  add_bench_comm(*bench);
  add_bench_decode(*bench);
  add_bench_gemm(*bench);
  add_bench_mixer(*bench);
  add_bench_moe(*bench);
  add_bench_step(*bench);
  add_bench_tokenizer(*bench);
}

}  // namespace weft
