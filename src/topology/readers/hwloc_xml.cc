// File: topology/readers/hwloc_xml.cc: hwloc's files, read in a process of its own.
//
// libhwloc 2.9 trusts the files that it reads: one renamed attribute makes it follow a null
// pointer. A file that a user was sent must not end the user's program, so it is read in a child,
// which hands back the graph in its text form.
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
#include <functional>

#include "base/fd.h"
#include "base/json.h"
#include "topology/graph/count_gpus.h"
#include "topology/graph/text.h"
#include "topology/nccl/xml.h"
#include "topology/readers/hwloc_reader.h"
#include "topology/readers/reader.h"

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
  std::array<char, 16384> piece{};
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

/// Runs `work` in a forked child and returns the text that it returned: at most 256 MiB, within 10
/// seconds. An Error, which begins with `what`, if the child crashed, was slow or said too much.
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

std::string said(const Result<Imported>& made) {
  Json text;
  if (!made) {
    text = {{"code", static_cast<int>(made.error().code)}, {"error", made.error().what}};
  } else {
    text = {{"graph", print(made->graph)}, {"findings", Json::array()}};
    for (const Finding& f : made->findings)
      text["findings"].push_back(Json::array(
          {static_cast<int>(f.severity), f.code, f.where, f.what, f.evidence, f.remedy, f.loss}));
  }
  return text.text();
}

Result<Imported> understood(const std::string& text, std::string_view source) {
  const Json made = Json::parse(text).value_or(nullptr);
  const auto strange = [&] {
    return Error{Code::kInternal, std::string(source) + ": the child said something else", {}, {}};
  };
  if (!made.is_object()) return strange();
  if (made.contains("error"))
    return Error{static_cast<Code>(made.value("code", 0)), made.value("error", ""), {}, {}};
  if (!made.contains("graph") || !made.contains("findings")) return strange();
  TUTTI_TRY(Graph graph, parse_graph(made.value("graph", ""), source));
  Imported imported{std::move(graph), {}};
  for (const Json& f : made["findings"]) {
    const auto words = [&f](int at) { return f[at].get<std::string>(); };
    imported.findings.push_back({static_cast<Severity>(f[0].get<int>()), words(1), words(2),
                                 words(3), words(4), words(5), f[6].get<double>()});
  }
  return imported;
}

Result<Imported> read_hwloc(std::string_view text, std::string_view source) {
  TUTTI_TRY(const std::string made, in_child([&] { return said(read_hwloc_here(text, source)); },
                                             std::string(source) + ": libhwloc can't read it"));
  TUTTI_TRY(Imported imported, understood(made, source));
  count_gpus(imported.graph);
  return imported;
}

bool is_hwloc(std::string_view text) { return first_element(text) == "topology"; }

}  // namespace

constinit const Reader hwloc_xml_reader{"hwloc_xml", "hwloc's XML, as lstopo writes it", is_hwloc,
                                        read_hwloc};

}  // namespace tutti::topology
