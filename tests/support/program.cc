#include "tests/support/program.h"
#include "tests/support/paths.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <stdexcept>
#include <thread>

extern char** environ;

namespace weft::test {

Program::Program(const std::string& executable, const std::vector<std::string>& arguments) {
  std::vector<char*> argv = {const_cast<char*>(executable.c_str())};
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  const std::string out = folder_ / "out", err = folder_ / "err";
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0600);
  const int failed = posix_spawn(&pid_, executable.c_str(), &files, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&files);
  if (failed != 0) throw std::runtime_error("cannot start " + executable);
}

Program::~Program() {
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Program::signal(int number) const { kill(pid_, number); }

bool Program::wait_for(const std::string& text) {
  return wait_until([&] { return out_so_far().find(text) != std::string::npos; });
}

bool Program::wait_until(const std::function<bool()>& fact) const {
  for (;;) {
    if (fact()) return true;
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
    if (info.si_pid != 0) return fact();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

bool Program::wait_for_halt() const {
  siginfo_t info{};
  waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT);
  return info.si_code == CLD_STOPPED;
}

Outcome Program::wait() {
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out_so_far(),
          get_file(folder_ / "err")};
}

Outcome run_weft(const std::vector<std::string>& arguments) { return Program(arguments).wait(); }

std::string python_with(const std::string& package) {
  const std::string find = ". \"$0\" " + package + " && printf %s \"$python\"";
  const Outcome o = Program("/bin/bash", {"-c", find, in_project("tests/e2e/python")}).wait();
  return o.code == 0 ? o.out : "";
}

std::vector<std::string> on_ranks(int ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> all = {"-n", std::to_string(ranks), weft_program()};
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

Outcome run_ranked(int ranks, const std::vector<std::string>& arguments) {
  return Program(in_project("launcher/run"), on_ranks(ranks, arguments)).wait();
}

}  // namespace weft::test
