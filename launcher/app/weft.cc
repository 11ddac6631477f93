#include "launcher/app/cli.h"
#include "launcher/app/commands.h"

int main(int argc, char** argv) {
  return weft::run_program(argc, argv,
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
}
