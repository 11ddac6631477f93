#pragma once

#include "core/memory/exec.h"

namespace weft {

// Resources of a command: memory, threads, instruction set.
class Runtime {
 public:
  explicit Runtime(int threads)  // 0: every core this process may use
      : pool_(ledger_),
        threads_(threads > 0 ? threads : available_cores()),
        exec_{threads_, pool_, chosen_isa()} {}

  Ledger& ledger() { return ledger_; }
  Pool& pool() { return pool_; }
  Exec& exec() { return exec_; }

 private:
  Ledger ledger_;
  Pool pool_;
  ThreadPool threads_;
  Exec exec_;
};

}  // namespace weft
