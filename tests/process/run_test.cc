// tutti run, as its users see it: a process with ranks, signals, output and an exit code.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "support/catch.h"
#include "support/environment.h"
#include "tutti/rendezvous.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

std::filesystem::path own_path() { return std::filesystem::read_symlink("/proc/self/exe"); }

/// The command that was built with this test.
std::string command_path() {
  const char* build = std::getenv("TUTTI_BUILD_DIR");
  const auto root =
      build != nullptr ? std::filesystem::path(build) : own_path().parent_path().parent_path();
  return (root / "tools" / "tutti").string();
}

/// Waits for `condition`, for up to a minute; whether it came true.
bool soon(const std::function<bool()>& condition) {
  const auto end = steady_clock::now() + 60s;
  while (!condition()) {
    if (steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(2ms);
  }
  return true;
}

/// `tutti …` with its output in files of a directory of its own.
class Command {
 public:
  explicit Command(std::vector<std::string> arguments, const std::string& input = "/dev/null") {
    REQUIRE(std::filesystem::exists(command_path()));  // Build the target tutti_command.
    std::string pattern = (std::filesystem::temp_directory_path() / "tutti-test-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
    arguments.insert(arguments.begin(), command_path());
    std::vector<char*> pointers;
    for (auto& argument : arguments) pointers.push_back(argument.data());
    pointers.push_back(nullptr);
    std::fflush(nullptr);
    pid_ = fork();
    if (pid_ == 0) {
      ::setsid();  // Should the input be a terminal, then it is the one that controls us.
      // Ranks that look for their own files find them here.
      setenv("TEST_DIRECTORY", directory_.c_str(), 1);
      const auto redirect = [](int descriptor, const std::string& path, int flags) {
        const int file = ::open(path.c_str(), flags | O_CLOEXEC, 0600);
        if (file < 0 || ::dup2(file, descriptor) < 0) _exit(99);
      };
      redirect(0, input, O_RDONLY);
      redirect(1, directory_ + "/out", O_WRONLY | O_CREAT | O_APPEND);
      redirect(2, directory_ + "/err", O_WRONLY | O_CREAT | O_APPEND);
      ::execv(pointers[0], pointers.data());
      _exit(99);
    }
  }
  ~Command() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
    std::error_code ignored;
    std::filesystem::remove_all(directory_, ignored);
  }
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  void signal(int number) const { ::kill(pid_, number); }
  /// The exit code; 128 + signal if it was killed; -1 if it did not end.
  int wait() {
    int status = 0;
    if (!soon([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::string file(const std::string& name) const {
    std::ifstream stream(directory_ + "/" + name);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  bool has(const std::string& name) const {
    return std::filesystem::exists(directory_ + "/" + name);
  }
  std::string out() const { return file("out"); }
  std::string err() const { return file("err"); }
  /// The process ids that ranks left in files "pid.<rank>".
  std::vector<pid_t> pids(int ranks) const {
    std::vector<pid_t> all;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string name = "pid." + std::to_string(rank);
      REQUIRE(soon([&] { return file(name).ends_with('\n'); }));
      all.push_back(std::stoi(file(name)));
    }
    return all;
  }

 private:
  std::string directory_;
  pid_t pid_ = -1;
};

/// `tutti run` of a shell script.
std::vector<std::string> shell(int ranks, const std::string& script,
                               const std::vector<std::string>& options = {}) {
  std::vector<std::string> arguments{"run", "-n", std::to_string(ranks)};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), {"--", "sh", "-c", script});
  return arguments;
}

/// A process that has ended, though perhaps nobody has asked how, is gone.
bool gone(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return true;
  return line.substr(line.rfind(')') + 2, 1) == "Z";
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

const std::string kLeavePid =
    "echo $$ > $TEST_DIRECTORY/pid.$TUTTI_RANK.new;"
    "mv $TEST_DIRECTORY/pid.$TUTTI_RANK.new $TEST_DIRECTORY/pid.$TUTTI_RANK;";

TEST_CASE("each run has a secret of its own, in the environment of its ranks and nowhere else") {
  std::string last;
  for (int run = 0; run < 2; ++run) {
    Command command(shell(2,
                          "echo $TUTTI_SECRET > $TEST_DIRECTORY/secret.$RANK;"
                          "cat /proc/$PPID/cmdline > $TEST_DIRECTORY/line.$RANK"));
    CHECK(command.wait() == 0);
    const std::string secret = command.file("secret.0");
    CHECK(secret.size() == 64 + 1);
    CHECK(secret == command.file("secret.1"));
    CHECK(secret != last);
    CHECK(command.file("line.0").find(secret.substr(0, 64)) == std::string::npos);
    CHECK((command.out() + command.err()).find(secret.substr(0, 64)) == std::string::npos);
    last = secret;
  }
}

TEST_CASE("each rank is told who it is, in its own and in torch's words") {
  Command command(shell(3,
                        "echo $TUTTI_RANK/$TUTTI_RANK_COUNT $TUTTI_LOCAL_RANK/"
                        "$TUTTI_LOCAL_RANK_COUNT $RANK/$WORLD_SIZE $LOCAL_RANK/"
                        "$LOCAL_WORLD_SIZE $MASTER_ADDR ${MASTER_PORT:+port} "
                        "${TUTTI_JOB:+job} ${TUTTI_RENDEZVOUS:+place}"));
  CHECK(command.wait() == 0);
  auto lines = lines_of(command.out());
  std::sort(lines.begin(), lines.end());
  CHECK(lines == std::vector<std::string>{"[0] 0/3 0/3 0/3 0/3 127.0.0.1 port job place",
                                          "[1] 1/3 1/3 1/3 1/3 127.0.0.1 port job place",
                                          "[2] 2/3 2/3 2/3 2/3 127.0.0.1 port job place"});
  CHECK(command.err().empty());
}

TEST_CASE("a job has the user's name and a number, in a rank a name of its own") {
  const test::Environment named({"TUTTI_JOB"}, {{"TUTTI_JOB", "demo"}});
  Command command(shell(1, "echo $TUTTI_JOB; " + command_path() +
                               " run -n 1 --no-prefix -- sh -c 'echo $TUTTI_JOB'"));
  CHECK(command.wait() == 0);
  const auto lines = lines_of(command.out());
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].starts_with("[0] demo-"));
  CHECK(lines[1].starts_with("[0] run-"));
}

TEST_CASE("whole lines, in each rank's order, stdout to stdout and stderr to stderr") {
  constexpr int kRanks = 4, kLines = 2000;
  const bool prefix = GENERATE(true, false);
  // Two writes a line, so that halves of different ranks meet on the way.
  Command command(shell(kRanks,
                        "i=0; while [ $i -lt 2000 ]; do printf 'half a '; echo \"line $i of "
                        "$TUTTI_RANK\"; echo \"e $i of $TUTTI_RANK\" >&2; i=$((i+1)); done;"
                        "printf 'no end'",
                        {prefix ? "--prefix" : "--no-prefix"}));
  REQUIRE(command.wait() == 0);
  for (const auto& [text, head] :
       std::map<std::string, std::string>{{command.out(), "half a line "}, {command.err(), "e "}}) {
    std::map<int, int> next;
    int unfinished = 0;
    for (const std::string& line : lines_of(text)) {
      int rank = -1, number = -1, named = -1;
      const std::string format = (prefix ? "[%d] " : "") + head + "%d of %d";
      if (line.ends_with("no end")) {
        ++unfinished;
      } else if (prefix) {
        REQUIRE(std::sscanf(line.c_str(), format.c_str(), &named, &number, &rank) == 3);
        REQUIRE(named == rank);
      } else {
        REQUIRE(std::sscanf(line.c_str(), format.c_str(), &number, &rank) == 2);
      }
      if (rank >= 0) REQUIRE(next[rank]++ == number);
    }
    for (int rank = 0; rank < kRanks; ++rank) CHECK(next[rank] == kLines);
    CHECK(unfinished == (head == "e " ? 0 : kRanks));
  }
}

TEST_CASE("equal lines of stderr that ranks write at about the same time are one line") {
  constexpr int kRounds = 20;
  const bool prefix = GENERATE(true, false);
  // All write at once. The last one dies after that.
  const std::string script =
      "cd $TEST_DIRECTORY; i=0; while [ $i -lt 20 ]; do : >$i.$TUTTI_RANK; "
      "until [ -e $i.0 ] && [ -e $i.1 ] && [ -e $i.2 ]; do sleep 0.001; done; "
      "echo same $i >&2; echo same $i; i=$((i+1)); done; [ $TUTTI_RANK != 2 ] || kill -9 $$";
  Command command(shell(3, script, {prefix ? "--prefix" : "--no-prefix", "--elastic"}));
  REQUIRE(command.wait() == 0);
  std::map<std::string, int> count;
  for (const std::string& line : lines_of(command.out())) ++count[line];
  for (int i = 0; i < kRounds; ++i)  // stdout is left as it is.
    CHECK(count[(prefix ? "[1] same " : "same ") + std::to_string(i)] == (prefix ? 1 : 3));
  std::array<int, 3> next{};
  int folded = 0, raw = 0;
  for (const std::string& line : lines_of(command.err())) {
    if (line.starts_with("tutti run: ")) {
      CHECK(line.find("rank 2 (process ") != std::string::npos);
      continue;
    }
    raw += line.starts_with("same ");
    if (!prefix) continue;
    const std::map<std::string, std::vector<std::size_t>> whose{
        {"[0]", {0}},      {"[1]", {1}},      {"[2]", {2}},        {"[0,1]", {0, 1}},
        {"[0,2]", {0, 2}}, {"[1,2]", {1, 2}}, {"[0-2]", {0, 1, 2}}};
    const auto ranks = whose.at(line.substr(0, line.find(' ')));
    folded += ranks.size() > 1;
    for (const std::size_t rank : ranks)
      CHECK(line.substr(line.find(' ')) == " same " + std::to_string(next[rank]++));
  }
  CHECK(raw == (prefix ? 0 : 3 * kRounds));
  CHECK((folded > 0) == prefix);
  for (const int each : next) CHECK(each == (prefix ? kRounds : 0));
}

TEST_CASE("stdin goes to rank 0") {
  const std::string words = own_path().parent_path() / "run_test_input";
  std::ofstream(words) << "some\nwords\n";
  Command command(shell(3, "cat"), words);
  CHECK(command.wait() == 0);
  CHECK(command.out() == "[0] some\n[0] words\n");
  std::filesystem::remove(words);
}

TEST_CASE("a terminal's input goes to rank 0, and its interrupt to all ranks") {
  const Fd terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  REQUIRE(terminal);
  REQUIRE(::grantpt(terminal.get()) == 0);
  REQUIRE(::unlockpt(terminal.get()) == 0);
  std::array<char, 64> name{};
  REQUIRE(::ptsname_r(terminal.get(), name.data(), name.size()) == 0);
  const auto type = [&](std::string_view keys) {
    REQUIRE(::write(terminal.get(), keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
  };
  Command command(shell(2, "trap 'echo interrupted; exit 0' INT;" + kLeavePid +
                               "while read line; do echo got $line; done; echo end;"
                               "while :; do sleep 0.01; done"),
                  name.data());
  command.pids(2);
  type("a word\n");
  for (const char* line : {"[0] got a word\n", "[1] end\n"})
    REQUIRE(soon([&] { return command.out().find(line) != std::string::npos; }));
  type("\x03");
  CHECK(command.wait() == 0);
  CHECK_THAT(command.out(),
             Catch::Contains("[0] interrupted\n") && Catch::Contains("[1] interrupted\n"));
  CHECK(command.out().find("[1] got") == std::string::npos);
}

TEST_CASE("a rank that exits with a code ends the others, and the code is the command's") {
  Command command(shell(3, "if [ $TUTTI_RANK = 1 ]; then exit 3; fi; sleep 1000"));
  CHECK(command.wait() == 3);
  REQUIRE(lines_of(command.err()).size() == 1);
  CHECK_THAT(command.err(), Catch::StartsWith("tutti run: rank 1 (process ") &&
                                Catch::Contains("exited with code 3; ending the other ranks"));
}

TEST_CASE("a rank that is killed ends the others, and what they started") {
  Command command(
      shell(3, "sleep 1000 & echo $! > $TEST_DIRECTORY/child.$TUTTI_RANK;" + kLeavePid + "wait"));
  const auto pids = command.pids(3);
  ::kill(pids[2], SIGKILL);
  CHECK(command.wait() == 128 + SIGKILL);
  CHECK_THAT(command.err(), Catch::Contains("rank 2 (process " + std::to_string(pids[2]) +
                                            ") was killed by signal 9 (Killed)"));
  for (int rank = 0; rank < 3; ++rank) {
    const pid_t child = std::stoi(command.file("child." + std::to_string(rank)));
    CHECK(gone(pids[static_cast<std::size_t>(rank)]));
    CHECK(soon([&] { return gone(child); }));
  }
}

TEST_CASE("ranks that do not listen to SIGTERM are killed after the grace time") {
  Command command(shell(3,
                        "trap '' TERM;" + kLeavePid +
                            "if [ $TUTTI_RANK = 0 ]; then while [ ! -e $TEST_DIRECTORY/pid.1 -o ! "
                            "-e $TEST_DIRECTORY/pid.2 ]; do sleep 0.01; done; exit 7; fi;"
                            "while :; do sleep 1; done",
                        {"--timeout-after-failure", "0.2"}));
  CHECK(command.wait() == 7);
  CHECK_THAT(command.err(), Catch::Contains("2 of 3 ranks did not end within 0.2 s; killing them"));
  for (const pid_t pid : command.pids(3)) CHECK(gone(pid));
}

TEST_CASE("signals are passed on to every rank, which may handle them") {
  const int number = GENERATE(SIGINT, SIGTERM, SIGHUP);
  INFO("signal " << number);
  Command command(shell(
      3, "trap 'echo heard; exit 0' INT TERM HUP;" + kLeavePid + "while :; do sleep 0.01; done"));
  command.pids(3);  // All traps are set.
  command.signal(number);
  CHECK(command.wait() == 0);
  auto lines = lines_of(command.out());
  std::sort(lines.begin(), lines.end());
  CHECK(lines == std::vector<std::string>{"[0] heard", "[1] heard", "[2] heard"});
}

TEST_CASE("a second SIGINT kills ranks that do not listen to the first") {
  Command command(shell(2, "trap 'touch $TEST_DIRECTORY/int.$TUTTI_RANK' INT;" + kLeavePid +
                               "while :; do sleep 0.01; done"));
  const auto pids = command.pids(2);
  command.signal(SIGINT);
  REQUIRE(soon([&] { return command.has("int.0") && command.has("int.1"); }));
  const std::string first = "tutti run: interrupted; a second Ctrl-C kills the ranks at once\n";
  CHECK(soon([&] { return command.err() == first; }));
  std::this_thread::sleep_for(400ms);  // Closer together they are one interrupt.
  command.signal(SIGINT);
  CHECK(command.wait() == 128 + SIGKILL);
  CHECK(command.err().starts_with(first + "tutti run: interrupted again; killing the ranks\n"));
  for (const pid_t pid : pids) CHECK(gone(pid));
}

TEST_CASE("ranks do not outlive a launcher that is killed") {
  Command command(shell(3, kLeavePid + "exec sleep 1000"));
  const auto pids = command.pids(3);
  command.signal(SIGKILL);
  CHECK(command.wait() == 128 + SIGKILL);
  for (const pid_t pid : pids) CHECK(soon([&] { return gone(pid); }));
}

TEST_CASE("a program that can't be started is one line, and a shell's exit code") {
  Command missing({"run", "-n", "4", "--", "/nowhere/program"});
  CHECK(missing.wait() == 127);
  CHECK(missing.err() ==
        "tutti run: can't start rank 0: '/nowhere/program': No such file or directory\n");
  Command forbidden({"run", "-n", "4", "--", "/etc/passwd"});
  CHECK(forbidden.wait() == 126);
  CHECK(forbidden.err() == "tutti run: can't start rank 0: '/etc/passwd': Permission denied\n");
}

TEST_CASE("what people get wrong is one line that names it, and exit code 2") {
  struct Mistake {
    std::vector<std::string> arguments;
    const char* says;
  };
  const Mistake mistakes[] = {
      {{}, "tutti: which command? See tutti --help\n"},
      {{"frobnicate"}, "tutti: unknown command 'frobnicate'; see tutti --help\n"},
      {{"run", "-n", "2", "--frob", "--", "true"},
       "tutti run: unknown option '--frob'; see tutti run --help\n"},
      {{"run", "--", "true"}, "tutti run: --ranks or --hosts is required; see tutti run --help\n"},
      {{"run", "-n", "2"}, "tutti run: program is required; see tutti run --help\n"},
      {{"run", "-n", "none", "--", "true"},
       "tutti run: --ranks: 'none' is not a whole number from 1 to 4096; see tutti run --help\n"},
      {{"run", "-n", "0", "--", "true"},
       "tutti run: --ranks: '0' is not a whole number from 1 to 4096; see tutti run --help\n"},
      {{"info", "--yaml"}, "tutti info: unknown option '--yaml'; see tutti info --help\n"},
  };
  for (const auto& mistake : mistakes) {
    Command command(mistake.arguments);
    CHECK(command.wait() == 2);
    CHECK(command.err() == mistake.says);
    CHECK(command.out().empty());
  }
}

// Not a test of its own: what ranks run in the next one.
TEST_CASE("as a rank of tutti run", "[.rank]") {
  for (int meeting = 0; meeting < 3; ++meeting) {
    const auto info = detect_launch();
    REQUIRE(info);
    CHECK(info->launcher == "tutti");
    auto rendezvous = launch_rendezvous(*info, Deadline::after(60s));
    REQUIRE(rendezvous);
    const std::array<std::byte, 1> mine{static_cast<std::byte>(info->rank.value)};
    const auto all = exchange(**rendezvous, info->rank, info->rank_count, "world/hello", mine,
                              Deadline::after(60s));
    REQUIRE(all);
    for (std::size_t rank = 0; rank < all->size(); ++rank)
      CHECK((*all)[rank] == Bytes{static_cast<std::byte>(rank)});
  }
}

TEST_CASE("ranks of tutti run meet from the environment alone, again and again") {
  for (const int ranks : {1, 2, 8}) {
    Command command(
        {"run", "-n", std::to_string(ranks), "--", own_path().string(), "as a rank of tutti run"});
    const int code = command.wait();
    INFO(command.out() << command.err());
    CHECK(code == 0);
  }
}

TEST_CASE("tutti info tells the same to people and to programs") {
  Command text({"info"}), json({"info", "--json"});
  CHECK(text.wait() == 0);
  CHECK(json.wait() == 0);
  for (const char* word : {"shared_memory", "two_shot", "timeout_ms", "TUTTI_TIMEOUT_MS"}) {
    CHECK_THAT(text.out(), Catch::Contains(word));
    CHECK_THAT(json.out(), Catch::Contains('"' + std::string(word) + '"'));
  }
  CHECK_THAT(json.out(), Catch::StartsWith("{") && Catch::EndsWith("}\n"));
}

}  // namespace
}  // namespace tutti
