#include "soak/round.h"

#include <dirent.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include <fmt/format.h>

#include "soak/board.h"
#include "soak/ranks.h"
#include "soak/schedstat.h"

namespace tutti::soak {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

// Only what hangs takes so long, on a machine that others use.
constexpr auto kLongestJoin = 120s, kLongestEnd = 60s;

/// A new directory, removed with the object.
class Directory {
 public:
  Directory() {
    std::string pattern = (fs::temp_directory_path() / "tutti-soak-XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
    fs::create_directory(path_ / "run");
    fs::permissions(path_ / "run", fs::perms::owner_all);
  }
  ~Directory() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  fs::path path() const { return path_; }
  fs::path run() const { return path_ / "run"; }

 private:
  fs::path path_;
};

/// The sockets in the file system of names that a process holds.
std::set<std::string> sockets_of(pid_t pid) {
  std::set<std::string> inodes, names;
  std::error_code gone;
  for (const auto& entry : fs::directory_iterator(fmt::format("/proc/{}/fd", pid), gone)) {
    const std::string to = fs::read_symlink(entry.path(), gone).string();
    if (to.starts_with("socket:[")) inodes.insert(to.substr(8, to.size() - 9));
  }
  std::ifstream file("/proc/net/unix");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::vector<std::string> fields;
    for (std::string word; words >> word;) fields.push_back(word);
    if (fields.size() >= 8 && inodes.contains(fields[6])) names.insert(fields[7]);
  }
  return names;
}

std::set<std::string> all_sockets() {
  std::ifstream file("/proc/net/unix");
  std::set<std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (const auto at = line.find('@'); at != std::string::npos) names.insert(line.substr(at));
  }
  return names;
}

/// Whether a name has that number, and not as a part of a longer word.
bool has_number(const std::string& name, const std::string& number) {
  const auto is_word = [&](std::size_t at) {
    return at < name.size() && std::isalnum(static_cast<unsigned char>(name[at])) != 0;
  };
  for (auto at = name.find(number); at != std::string::npos; at = name.find(number, at + 1)) {
    if (!is_word(at - 1) && !is_word(at + number.size())) return true;  // Wraps before the first.
  }
  return false;
}

std::set<std::string> shared_files() {
  std::set<std::string> names;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator("/dev/shm", missing))
    names.insert(entry.path().filename());
  return names;
}

class Round {
 public:
  Round(const RoundOptions& options, const trainer::Split& data)
      : options_(options),
        data_(data),
        random_(options.seed),
        files_before_(shared_files()),
        board_(Board::make()) {}
  ~Round() {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
    }
    if (board_ != nullptr) Board::remove(board_);
  }
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;

  Outcome run() {
    if (board_ == nullptr) return complain("no memory for the board"), outcome_;
    start();
    if (all_reach(Phase::kRunning, kLongestJoin)) {
      for (const pid_t pid : pids_) sockets_.merge(sockets_of(pid));
      attack();
    } else {
      complain("not all ranks joined and made a call in time");
    }
    end();
    return std::move(outcome_);
  }

 private:
  void complain(const std::string& what) { outcome_.complaints.push_back(what); }
  Place& place(int rank) { return board_->ranks[static_cast<std::size_t>(rank)]; }
  pid_t& pid(int rank) { return pids_[static_cast<std::size_t>(rank)]; }
  bool survives(int rank) const {
    return options_.attack != Attack::kKill || rank != options_.victim;
  }

  void start() {
    std::fflush(nullptr);
    for (int rank = 0; rank < options_.ranks; ++rank) {
      const pid_t child = ::fork();
      if (child == 0) {
        ::setenv("XDG_RUNTIME_DIR", directory_.run().c_str(), 1);
        be_rank(options_, data_, *board_, (directory_.path() / "meeting").string(), rank);
      }
      pids_.push_back(child);
      numbers_.push_back(std::to_string(child));
    }
  }

  /// Whether all that survive come that far in time.
  bool all_reach(Phase phase, Clock::duration limit) {
    const auto last = Clock::now() + limit;
    for (int rank = 0; rank < options_.ranks; ++rank) {
      if (!survives(rank) && phase == Phase::kEnded) continue;
      while (place(rank).at() < phase) {
        if (Clock::now() > last) return false;
        std::this_thread::sleep_for(200us);
      }
    }
    return true;
  }

  void attack() {
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % 150'000));
    switch (options_.attack) {
      case Attack::kKill: return kill_one();
      case Attack::kStop: return stop_one();
      case Attack::kFork: std::this_thread::sleep_for(1s); return finish();
    }
  }

  void kill_one() {
    std::vector<std::map<int, std::uint64_t>> before;
    for (const pid_t one : pids_) before.push_back(waited_ns(one));
    const auto killed = Clock::now();
    ::kill(pid(options_.victim), SIGKILL);
    ::waitpid(std::exchange(pid(options_.victim), -1), nullptr, 0);
    if (!all_reach(Phase::kEnded, kLongestEnd)) complain("a rank hangs after the death of another");
    const std::int64_t killed_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(killed.time_since_epoch()).count();
    for (int rank = 0; rank < options_.ranks; ++rank) {
      if (!survives(rank) || place(rank).at() != Phase::kEnded) continue;
      judge_error(rank, Code::kPeerFailed);
      const Place& at = place(rank);
      Answer answer;
      answer.seconds = static_cast<double>(at.ended_ns - std::max(killed_ns, at.called_ns)) / 1e9;
      auto& old = before[static_cast<std::size_t>(rank)];
      for (int i = 0; i < at.wait_count; ++i) {
        const auto [task, waited] = at.waits[static_cast<std::size_t>(i)];
        answer.waited_for_cpu_seconds =
            std::max(answer.waited_for_cpu_seconds, static_cast<double>(waited - old[task]) / 1e9);
      }
      outcome_.answers.push_back(answer);
      if (answer.seconds - answer.waited_for_cpu_seconds > options_.within_seconds) {
        complain(fmt::format(
            "rank {} answered after {:.2f} s ({:.2f} of them without a CPU), in {}: {}", rank,
            answer.seconds, answer.waited_for_cpu_seconds, at.call.data(), at.text.data()));
      }
    }
  }

  /// A rank's error has to be of that code, and to name the victim.
  void judge_error(int rank, Code code) {
    const Place& at = place(rank);
    const std::string name = fmt::format("rank {}", at.named);
    const std::string text = at.text.data();
    if (at.code == 0 && at.wrong.front() != 0) return;  // Told in any case.
    const bool named = text.find(name) != std::string::npos;
    if (at.code == static_cast<int>(code) && at.peer == options_.victim && named) return;
    // A rank that waits in the whole can not see that another one waits in a part: it names both.
    const std::string victim = fmt::format("for rank {}", options_.victim);
    if (code == Code::kTimeout && at.code == static_cast<int>(code) && named &&
        text.find(victim) != std::string::npos)
      return;
    complain(fmt::format("rank {} does not blame rank {} but {}, in {}: {}: {}", rank,
                         options_.victim, at.peer, at.call.data(),
                         to_string(static_cast<Code>(at.code)), text));
  }

  void stop_one() {
    const bool past_deadline = random_() % 2 == 0;
    ::kill(pid(options_.victim), SIGSTOP);
    if (past_deadline) {
      const auto last = Clock::now() + kLongestEnd;
      const auto others_have_ended = [&] {
        for (int rank = 0; rank < options_.ranks; ++rank) {
          if (rank != options_.victim && place(rank).at() != Phase::kEnded) return false;
        }
        return true;
      };
      while (!others_have_ended() && Clock::now() < last) std::this_thread::sleep_for(1ms);
    } else {
      std::this_thread::sleep_for(500ms);
    }
    ::kill(pid(options_.victim), SIGCONT);
    if (!past_deadline) return finish();
    if (!all_reach(Phase::kEnded, kLongestEnd)) complain("a rank hangs after another was stopped");
    for (int rank = 0; rank < options_.ranks; ++rank) {
      if (place(rank).at() != Phase::kEnded) continue;
      if (rank != options_.victim)
        judge_error(rank, Code::kTimeout);
      else if (place(rank).code == 0)
        complain("the stopped rank goes on as if nothing had been");
    }
  }

  /// Nothing has happened: all come to an end without an error.
  void finish() {
    board_->finish.store(true, std::memory_order_relaxed);
    if (options_.trains) return;  // It has no end of its own.
    if (!all_reach(Phase::kEnded, kLongestEnd)) complain("a rank hangs though nothing happened");
    for (int rank = 0; rank < options_.ranks; ++rank) {
      if (place(rank).code != 0)
        complain(fmt::format("rank {} fails though nothing happened, in {}: {}", rank,
                             place(rank).call.data(), place(rank).text.data()));
    }
  }

  void end() {
    board_->leave.store(true, std::memory_order_relaxed);
    for (int rank = 0; rank < options_.ranks; ++rank) {
      if (place(rank).wrong.front() != 0)
        complain(fmt::format("rank {}: {}", rank, place(rank).wrong.data()));
      outcome_.steps += place(rank).steps;
      if (pid(rank) < 0) continue;
      const int how = wait_for(rank);
      if (how != 0) complain(fmt::format("rank {} ended with {}", rank, how));
      pid(rank) = -1;
    }
    for (int rank = 0; rank < options_.ranks; ++rank) {
      // relaxed: the rank has ended.
      if (const int child = place(rank).child.load(std::memory_order_relaxed); child > 0)
        ::kill(child, SIGKILL);
    }
    look_for_leftovers();
    if (outcome_.complaints.empty()) return;
    for (int rank = 0; rank < options_.ranks; ++rank) {  // What all of them said.
      if (place(rank).code != 0)
        complain(fmt::format("(rank {}, in {}: {})", rank, place(rank).call.data(),
                             place(rank).text.data()));
    }
  }

  /// The exit code; 128 + the signal that ended it; -1: it had to be killed.
  int wait_for(int rank) {
    int status = 0;
    // What trains without an end is ended here.
    const bool trains_on = options_.trains && place(rank).at() != Phase::kEnded;
    if (trains_on) ::kill(pid(rank), SIGKILL);
    const auto last = Clock::now() + kLongestEnd;
    while (::waitpid(pid(rank), &status, WNOHANG) != pid(rank)) {
      if (Clock::now() > last) {
        ::kill(pid(rank), SIGKILL);
        ::waitpid(pid(rank), &status, 0);
        return -1;
      }
      std::this_thread::sleep_for(200us);
    }
    if (trains_on) return 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  void look_for_leftovers() {
    // Killed children may take a moment.
    const auto gone = [](const std::function<bool()>& condition) {
      for (const auto last = Clock::now() + 10s; Clock::now() < last;) {
        if (condition()) return true;
        std::this_thread::sleep_for(1ms);
      }
      return false;
    };
    // This process inherits orphans (PR_SET_CHILD_SUBREAPER).
    if (!gone([] {
          while (::waitpid(-1, nullptr, WNOHANG) > 0) {
          }
          return ::waitpid(-1, nullptr, WNOHANG) == -1;
        }))
      complain("a process is left");
    if (!gone([this] {
          const auto now = all_sockets();
          return std::ranges::none_of(sockets_, [&](const auto& one) { return now.contains(one); });
        }))
      complain("a socket is left");
    for (const fs::path& folder : {directory_.run(), directory_.path() / "meeting"}) {
      std::error_code missing;
      for (const auto& entry : fs::recursive_directory_iterator(folder, missing))
        complain("left: " + entry.path().string());
    }
    // Others' files may come and go there: those of a rank would have its number.
    for (const std::string& name : shared_files()) {
      if (!files_before_.contains(name) &&
          std::ranges::any_of(numbers_, [&](const auto& one) { return has_number(name, one); }))
        complain("left: /dev/shm/" + name);
    }
  }

  const RoundOptions& options_;
  const trainer::Split& data_;
  std::mt19937_64 random_;
  Directory directory_;
  std::set<std::string> files_before_;  // In /dev/shm.
  Board* board_;
  std::vector<pid_t> pids_;  // -1: it has ended.
  std::set<std::string> sockets_;
  std::vector<std::string> numbers_;  // All processes that were ranks.
  Outcome outcome_;
};

}  // namespace

Outcome run_round(const RoundOptions& options, const trainer::Split& data) {
  return Round(options, data).run();
}

std::string_view name_of(Attack attack) {
  switch (attack) {
    case Attack::kKill: return "kill";
    case Attack::kStop: return "stop";
    case Attack::kFork: return "fork";
  }
  return "";
}

std::optional<Attack> attack_of(std::string_view name) {
  for (const Attack attack : {Attack::kKill, Attack::kStop, Attack::kFork}) {
    if (name_of(attack) == name) return attack;
  }
  return std::nullopt;
}

}  // namespace tutti::soak
