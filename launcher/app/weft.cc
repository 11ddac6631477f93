#include <fmt/format.h>

#include "core/report/console.h"
#include "launcher/app/abort.h"
#include "launcher/app/cli.h"
#include "launcher/app/commands.h"

int main(int argc, char** argv) {
  weft::console::guard();
  const int code = weft::run_program(argc, argv,
                                     {
                                         weft::add_train,
                                         weft::add_bench,
                                         weft::add_verify,
                                         weft::add_data,
                                         weft::add_checkpoint,
                                         weft::add_generate,
                                         weft::add_convert,
                                         weft::add_eval,
                                         weft::add_info,
                                     });
  const std::string lost = weft::console::failure();
  if (lost.empty()) return code;
  fmt::print(stderr, "weft: standard output could not be written: {}\n", lost);
  return code == weft::kExitOk ? weft::kExitFailed : code;
}
