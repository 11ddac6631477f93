#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

// Standard output and standard error that a program outlives: a full disk behind them, a terminal
// that is gone, or signals that never end make it lose text, and nothing else. Without this the
// libraries that print throw, in places that cannot.
namespace weft::console {

// From here on stdout and stderr are written this way. Once, at the start of the program.
void guard();

// Whether the stream ends at a terminal, and its file; both also before guard().
bool is_terminal(std::FILE* stream);
int file_of(std::FILE* stream);

// While one lives, text that standard output loses goes to `keep`, with the reason when it is the
// first time. Text that is kept there is not lost, so the program does not fail for it.
class Keeper {
 public:
  using Keep = std::function<void(std::string_view text, const std::string& first_reason)>;
  explicit Keeper(Keep keep);
  ~Keeper();
  Keeper(const Keeper&) = delete;
  Keeper& operator=(const Keeper&) = delete;
};

// Writes the text that is still buffered. Returns why text of standard output was lost that no
// Keeper has; empty when none was.
std::string failure();

}  // namespace weft::console
