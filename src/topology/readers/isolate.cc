#include "topology/readers/isolate.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>

#include "base/fd.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostBytes = std::size_t{256} << 20;
constexpr auto kLongest = std::chrono::seconds(10);

[[noreturn]] void run_child(const std::function<std::string()>& work, int to) {
  // A crash here is expected and reported by the parent: no core dump, no handler of the program's.
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL}) std::signal(signal, SIG_DFL);
  const std::string text = work();
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t put = ::write(to, text.data() + at, text.size() - at);
    if (put <= 0 && errno != EINTR) _exit(1);
    if (put > 0) at += static_cast<std::size_t>(put);
  }
  _exit(0);
}

/// Reads until the child closes its end; what went wrong, or "".
std::string read_all(int from, std::string& text) {
  const auto deadline = std::chrono::steady_clock::now() + kLongest;
  std::array<char, 65536> piece{};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd wait{from, POLLIN, 0};
    const int ready = left.count() <= 0 ? 0 : ::poll(&wait, 1, static_cast<int>(left.count()));
    if (ready == 0) return "took more than 10 s";
    if (ready < 0 && errno == EINTR) continue;
    const ssize_t got = ::read(from, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return std::strerror(errno);
    if (got == 0) return "";
    if (text.size() + static_cast<std::size_t>(got) > kMostBytes) return "makes more than 256 MiB";
    text.append(piece.data(), static_cast<std::size_t>(got));
  }
}

}  // namespace

Result<std::string> in_child(const std::function<std::string()>& work, std::string_view what) {
  const auto failed = [what](std::string_view how) {
    return Error{Code::kInvalidArgument, fmt::format("{}: {}", what, how), {}, {}};
  };
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failed(std::strerror(errno));
  Fd from(ends[0]), to(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return failed(std::strerror(errno));
  if (child == 0) run_child(work, to.get());
  to = Fd();
  std::string text;
  const std::string trouble = read_all(from.get(), text);
  if (!trouble.empty()) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!trouble.empty()) return failed(trouble);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return failed("crashed on it");
  return text;
}

}  // namespace tutti::topology
