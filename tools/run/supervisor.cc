#include "tools/run/supervisor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <charconv>
#include <cstring>

#include "base/output.h"
#include "tools/run/line_folder.h"
#include "tools/run/line_relay.h"

namespace tutti::tools {
namespace {

using std::chrono::steady_clock;

// How long output is still read after the last rank has ended, while somebody outside its process
// group keeps it open.
constexpr std::chrono::milliseconds kDrainTime{200};

// Some senders send SIGINT to us and then to our process group; that is one interrupt.
constexpr std::chrono::milliseconds kOnePress{300};

/// Where both lead to the same file, lines of one must not end up inside lines of the other.
bool same_file(int a, int b) {
  struct stat first {
  }, second{};
  return ::fstat(a, &first) == 0 && ::fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

/// The signals to pass on, less those that we were started to ignore (nohup, jobs in the
/// background).
sigset_t handled_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action {};
    ::sigaction(number, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&set, number);
  }
  ::signal(SIGCHLD, SIG_DFL);  // Were it ignored, ranks would vanish without an exit code.
  sigaddset(&set, SIGCHLD);
  return set;
}

/// It has more than 15 fields: processes, their output, and how they end.
class Supervisor {
 public:
  explicit Supervisor(const Supervision& options)
      : options_(options), errors_outlet_(same_file(1, 2) ? &output_ : &errors_) {}
  ~Supervisor() {
    for (const Running& one : running_) {
      if (one.pid > 0) {
        ::kill(-one.pid, SIGKILL);
        ::waitpid(one.pid, nullptr, 0);
      }
    }
    ::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  }
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  int run(std::span<const Child> children) {
    if (!prepare()) exit_code_ = 1;
    ordered_ = options_.takes_orders;
    if (exit_code_ == 0 && !start_all(children)) {
      ending_ = true;
      signal_all(SIGKILL);
    }
    loop();
    return succeeded_ && !ending_ ? 0 : exit_code_;
  }

 private:
  struct Stream {
    Fd source;
    std::string prefix;
    int rank;
    bool folded;  // Equal lines of several ranks become one.
    Outlet* outlet;
    LineCutter lines{};
  };
  struct Running {
    std::string name;
    pid_t pid;  // -1 once it has ended.
    Fd orders;  // Into an agent.
  };

  /// After what ranks have written before.
  void say(const std::string& line) { folder_.add_own("tutti run: " + line, steady_clock::now()); }

  bool prepare() {
    const sigset_t handled = handled_signals();
    ::sigprocmask(SIG_BLOCK, &handled, &old_mask_);
    // A reader that goes away is told by write; a terminal that is not ours by read.
    for (const int number : {SIGPIPE, SIGTTIN}) ::signal(number, SIG_IGN);
    signals_ = Fd(::signalfd(-1, &handled, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!signals_) say(std::string("signalfd: ") + std::strerror(errno));
    return static_cast<bool>(signals_);
  }

  static Result<Pipe> open_orders(const Child& child) {
    TUTTI_TRY(auto pipe, make_pipe());
    // All of it fits, so that nobody has to wait for a connection to be made.
    const auto bytes = static_cast<int>(child.orders.size()) + PIPE_BUF;
    const int orders = pipe.write.get();
    ::fcntl(orders, F_SETFL, O_NONBLOCK);
    if (::fcntl(orders, F_SETPIPE_SZ, bytes) < 0 ||
        ::write(orders, child.orders.data(), child.orders.size()) !=
            static_cast<ssize_t>(child.orders.size()))
      return Error{Code::kSystem, fmt::format("no room for an environment of {} bytes: {}", bytes,
                                              std::strerror(errno))};
    return pipe;
  }

  bool start_all(std::span<const Child> children) {
    const Fd nothing(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    int first_input = 0;  // Rank 0's.
    Fd passed_on;         // From a terminal: only our process group may read it.
    if (!options_.takes_orders && ::isatty(0) == 1 && children.front().orders.empty()) {
      if (auto pipe = make_pipe()) {
        passed_on = std::move(pipe->read);
        first_input = passed_on.get();
        input_ = std::move(pipe->write);
        ::fcntl(input_.get(), F_SETFL, O_NONBLOCK);
      }
    }
    for (const Child& child : children) {
      Pipe orders;
      const auto begin = [&]() -> Result<ChildProcess> {
        if (!child.orders.empty()) {
          TUTTI_TRY(orders, open_orders(child));
        }
        const bool first = &child == &children.front() && !options_.takes_orders;
        const int usual = first ? first_input : nothing.get();
        return start(child, orders.read ? orders.read.get() : usual, old_mask_);
      };
      auto started = begin();
      if (!started) {
        say("can't start " + child.name + ": " + started.error().what);
        const bool missing = started.error().what.ends_with(std::strerror(ENOENT));
        exit_code_ = missing ? 127 : 126;
        return false;
      }
      running_.push_back({child.name, started->pid, std::move(orders.write)});
      const bool folded = !child.prefix.empty();
      if (folded) folder_.add_rank();
      streams_.push_back({std::move(started->output), child.prefix, child.rank, false, &output_});
      streams_.push_back(
          {std::move(started->errors), child.prefix, child.rank, folded, errors_outlet_});
      ++alive_;
    }
    return true;
  }

  bool all_closed() const {
    return std::all_of(streams_.begin(), streams_.end(),
                       [](const Stream& one) { return !one.source; });
  }

  bool done() const {
    if (alive_ > 0 || !folder_.empty() || !output_.empty() || !errors_.empty()) return false;
    return all_closed() || (give_up_at_ && steady_clock::now() >= *give_up_at_);
  }

  int timeout_ms() const {
    auto next = steady_clock::time_point::max();
    if (kill_at_) next = std::min(next, *kill_at_);
    if (give_up_at_) next = std::min(next, *give_up_at_);
    if (const auto release = folder_.next()) next = std::min(next, *release);
    if (next == steady_clock::time_point::max()) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - steady_clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
  }

  void loop() {
    while (!done()) {
      // poll skips negative descriptors.
      std::vector<pollfd> polled{{signals_.get(), POLLIN, 0},
                                 {output_.empty() ? -1 : output_.descriptor(), POLLOUT, 0},
                                 {errors_.empty() ? -1 : errors_.descriptor(), POLLOUT, 0},
                                 {input_ || ordered_ ? 0 : -1, POLLIN, 0}};
      const std::size_t first_stream = polled.size();
      for (const Stream& stream : streams_)
        polled.push_back({stream.outlet->full() ? -1 : stream.source.get(), POLLIN, 0});
      if (::poll(polled.data(), polled.size(), timeout_ms()) < 0 && errno != EINTR) return;
      signalfd_siginfo signal{};
      while (polled[0].revents != 0 &&
             ::read(signals_.get(), &signal, sizeof(signal)) == sizeof(signal)) {
        on_signal(signal);
      }
      for (std::size_t i = 0; i < streams_.size(); ++i) {
        if (polled[first_stream + i].revents != 0) relay(streams_[i]);
      }
      if (polled[3].revents != 0) ordered_ ? take_orders() : relay_input();
      if (polled[1].revents != 0 && !output_.write_some()) lose_output();
      if (polled[2].revents != 0) errors_.write_some();
      enforce_grace();
      release_lines();
    }
    for (Stream& stream : streams_) finish(stream);
    folder_.release_all(errors_outlet_->queue());
    while (!output_.empty()) output_.write_some();
    if (output_.failure() != 0) lose_output();
    folder_.release_all(errors_outlet_->queue());
    while (!errors_.empty()) errors_.write_some();
  }

  void release_lines() {
    if (alive_ == 0 && all_closed()) {  // None will come that could join.
      folder_.release_all(errors_outlet_->queue());
    } else {
      folder_.release(steady_clock::now(), errors_outlet_->queue());
    }
  }

  void take_line(const Stream& stream, std::string_view line) {
    if (stream.folded) {
      folder_.add(stream.rank, line, steady_clock::now(), stream.outlet->queue());
      return;
    }
    // Where both lead to the same place, a rank's error stays before what the rank writes later.
    if (stream.outlet == errors_outlet_ && stream.rank >= 0)
      folder_.release_of(stream.rank, errors_outlet_->queue());
    stream.outlet->queue().append(stream.prefix).append(line) += '\n';
  }

  void finish(Stream& stream) {
    stream.lines.finish([&](std::string_view line) { take_line(stream, line); });
  }

  void relay(Stream& stream) {
    std::array<char, 16384> buffer;
    const ssize_t got = ::read(stream.source.get(), buffer.data(), buffer.size());
    if (got > 0) {
      stream.lines.append({buffer.data(), static_cast<std::size_t>(got)},
                          [&](std::string_view line) { take_line(stream, line); });
    } else if (got == 0 || errno != EINTR) {
      finish(stream);
      stream.source.reset();
    }
  }

  void relay_input() {
    std::array<char, 4096> buffer;  // The longest input that a terminal gives at once.
    const ssize_t got = ::read(0, buffer.data(), buffer.size());
    // The end, a terminal that is another's for now, or a rank that does not read: that was all.
    if (got <= 0 || ::write(input_.get(), buffer.data(), static_cast<std::size_t>(got)) != got)
      input_.reset();
  }

  void take_orders() {
    std::array<char, 256> buffer;
    const ssize_t got = ::read(0, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) return;
    if (got <= 0) {
      ordered_ = false;
      if (exit_code_ == 0) exit_code_ = 128 + SIGHUP;
      ending_ = true;
      say("the connection with the launcher has ended; killing the ranks");
      signal_all(SIGKILL);
      return;
    }
    orders_.append(buffer.data(), static_cast<std::size_t>(got));
    for (std::size_t end = 0; (end = orders_.find('\n')) != std::string::npos;) {
      int number = 0;  // A signal's number: there are no other orders.
      const auto [stop, failure] = std::from_chars(orders_.data(), orders_.data() + end, number);
      if (failure == std::errc{} && stop == orders_.data() + end && number > 0 && number < NSIG)
        signal_all(number);
      orders_.erase(0, end + 1);
    }
    if (orders_.size() > buffer.size()) orders_.clear();  // That is none of ours.
  }

  void on_signal(const signalfd_siginfo& signal) {
    const int number = static_cast<int>(signal.ssi_signo);
    if (number == SIGCHLD) {
      reap();
      return;
    }
    const auto now = steady_clock::now();
    if (number == SIGINT && interrupted_at_ && now - *interrupted_at_ > kOnePress) {
      say(fmt::format("interrupted again; killing the {}", options_.what));
      signal_all(SIGKILL);
      return;
    }
    if (number == SIGINT && !interrupted_at_) {
      interrupted_at_ = now;
      say(fmt::format("interrupted; a second Ctrl-C kills the {} at once", options_.what));
    }
    signal_all(number);
  }

  void signal_all(int number) {
    const std::string order = std::to_string(number) + "\n";
    for (const Running& one : running_) {
      // An agent must not die of what is meant for its ranks; but when it dies, they do.
      if (one.pid > 0 && one.orders && number != SIGKILL) {
        (void)!::write(one.orders.get(), order.data(), order.size());
      } else if (one.pid > 0) {
        ::kill(-one.pid, number);
      }
    }
  }

  void reap() {
    for (;;) {
      siginfo_t how{};
      // Looks first and buries later: until then nobody else can get the number of the group.
      if (::waitid(P_ALL, 0, &how, WEXITED | WNOHANG | WNOWAIT) != 0 || how.si_pid == 0) return;
      const auto one = std::find_if(running_.begin(), running_.end(),
                                    [&](const Running& each) { return each.pid == how.si_pid; });
      if (one != running_.end()) ::kill(-how.si_pid, SIGKILL);  // Its leftover processes.
      ::waitpid(how.si_pid, nullptr, 0);
      if (one != running_.end()) on_end(*one, how);
    }
  }

  void on_end(Running& one, const siginfo_t& how) {
    const std::string who = fmt::format("{} (process {})", one.name, one.pid);
    one.pid = -1;
    if (--alive_ == 0) give_up_at_ = steady_clock::now() + kDrainTime;
    const bool exited = how.si_code == CLD_EXITED;
    if (exited && how.si_status == 0) {
      succeeded_ = options_.elastic;
      return;
    }
    if (exit_code_ != 0 && !options_.elastic) return;
    if (exit_code_ == 0) exit_code_ = exited ? how.si_status : 128 + how.si_status;
    const std::string end = exited ? fmt::format("exited with code {}", how.si_status)
                                   : fmt::format("was killed by signal {} ({})", how.si_status,
                                                 strsignal(how.si_status));
    const char* const then = options_.elastic ? "the others go on" : "ending the other ";
    say(who + " " + end +
        (alive_ > 0 ? fmt::format("; {}{}", then, options_.elastic ? "" : options_.what) : ""));
    if (!options_.elastic) end_others();
  }

  void lose_output() {
    if (std::exchange(output_lost_, true)) return;
    const bool unread = output_.failure() == EPIPE;
    if (exit_code_ == 0) exit_code_ = unread ? 128 + SIGPIPE : 1;
    if (!unread) say(output_failure_words(output_.failure()));
    end_others();
  }

  void end_others() {
    if (std::exchange(ending_, true)) return;
    signal_all(SIGTERM);
    signal_all(SIGCONT);  // A stopped one could not end.
    kill_at_ =
        steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(options_.grace);
  }

  void enforce_grace() {
    if (!kill_at_ || steady_clock::now() < *kill_at_) return;
    kill_at_.reset();
    if (alive_ == 0) return;
    say(fmt::format("{} of {} {} did not end within {} s; killing them", alive_, running_.size(),
                    options_.what, options_.grace.count()));
    signal_all(SIGKILL);
  }

  const Supervision options_;
  Outlet output_{1}, errors_{2};
  Outlet* const errors_outlet_;  // `output_` where both lead to the same place.
  LineFolder folder_;            // Before that outlet.
  Fd signals_;
  sigset_t old_mask_{};
  Fd input_;            // Into rank 0, where its input has to be passed on.
  std::string orders_;  // The beginning of one that has not come whole.
  bool ordered_ = false;
  std::vector<Running> running_;
  std::vector<Stream> streams_;
  std::size_t alive_ = 0;
  int exit_code_ = 0;
  bool succeeded_ = false;  // One of an elastic job has.
  bool ending_ = false, output_lost_ = false;
  std::optional<std::chrono::steady_clock::time_point> interrupted_at_;
  // When the ranks that still run are killed; and, once all have ended, when their output counts as
  // finished even though somebody keeps it open.
  std::optional<std::chrono::steady_clock::time_point> kill_at_, give_up_at_;
};

}  // namespace

int supervise(const Supervision& options, std::span<const Child> children) {
  return Supervisor(options).run(children);
}

}  // namespace tutti::tools
