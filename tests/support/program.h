#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/scratch_folder.h"

namespace weft::test {

struct Outcome {
  int code = 0;  // exit code; 128 + signal when a signal ended it
  std::string out, err;
};

// The built program, or another one, run as by a user: in its own process, with output to files.
class Program {
 public:
  explicit Program(const std::vector<std::string>& arguments)
      : Program(weft_program(), arguments) {}
  Program(const std::string& executable, const std::vector<std::string>& arguments);
  ~Program();  // ends it if it still runs

  void signal(int number) const;
  std::string out_so_far() const { return get_file(folder_ / "out"); }
  std::string err_so_far() const { return get_file(folder_ / "err"); }
  // Waits until `text` is printed or the program has ended; false in the latter case.
  bool wait_for(const std::string& text);
  // Waits until `fact` is true or the program has ended; false if it is still not true.
  bool wait_until(const std::function<bool()>& fact) const;
  // Until it halts itself (--fault 0:STEP:stopped) or has ended; false in the latter case.
  // signal(SIGCONT) lets it go on.
  bool wait_for_halt() const;
  Outcome wait();

 private:
  ScratchFolder folder_;
  pid_t pid_ = -1;
};

Outcome run_weft(const std::vector<std::string>& arguments);

// An interpreter that has a package, found as tests/e2e/python does; empty: there is none.
std::string python_with(const std::string& package);

// launcher/run -n RANKS weft ...
std::vector<std::string> on_ranks(int ranks, const std::vector<std::string>& arguments);
Outcome run_ranked(int ranks, const std::vector<std::string>& arguments);

}  // namespace weft::test
