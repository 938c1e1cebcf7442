#include "tools/report/said.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "base/fd.h"

extern char** environ;

namespace tutti::tools {
namespace {

Error failed(const char* what, int number) {
  return {Code::kSystem, std::string(what) + ": " + std::generic_category().message(number)};
}

struct Pipe {
  Fd read, write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return failed("a pipe", errno);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

/// Reads both until both have ended, as they come: a full one would stop the writer.
void read_all(const Pipe& output, const Pipe& errors, Said& said) {
  std::array<pollfd, 2> waits{{{output.read.get(), POLLIN, 0}, {errors.read.get(), POLLIN, 0}}};
  const std::array<std::string*, 2> into{&said.output, &said.errors};
  std::array<char, 16384> bytes;
  for (int open = 2; open > 0;) {
    if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < waits.size(); ++i) {
      if (waits[i].fd < 0 || waits[i].revents == 0) continue;
      const ssize_t got = ::read(waits[i].fd, bytes.data(), bytes.size());
      if (got > 0) into[i]->append(bytes.data(), static_cast<std::size_t>(got));
      if (got > 0 || (got < 0 && errno == EINTR)) continue;
      waits[i].fd = -1;
      --open;
    }
  }
}

}  // namespace

Result<Said> said_by(const std::vector<std::string>& arguments) {
  TUTTI_TRY(Pipe output, make_pipe());
  TUTTI_TRY(Pipe errors, make_pipe());
  std::string name = "tutti";
  std::vector<std::string> words = arguments;
  std::vector<char*> argv{name.data()};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, output.write.get(), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors.write.get(), STDERR_FILENO);
  pid_t child = 0;
  const int number = posix_spawn(&child, "/proc/self/exe", &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (number != 0) return failed("starting tutti", number);
  output.write.reset();
  errors.write.reset();
  Said said;
  read_all(output, errors, said);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  said.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return said;
}

}  // namespace tutti::tools
