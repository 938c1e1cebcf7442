// File: tools/run/supervisor.h: runs ranks of this host, or agents that run those of others, to
// their end.
//
// One thread, one poll: signals come through a descriptor, so nothing interrupts anything.
//   - What ranks write is passed on in whole lines.
//   - SIGINT, SIGTERM and SIGHUP are passed on to all ranks; a second SIGINT kills them.
//   - When a rank fails, the others are asked to end (SIGTERM), and killed after the grace time.
//   - A rank's process group is killed once its leader has ended: nothing is left behind.
//   - An agent is no rank: signals for its ranks go to its standard input, as orders. When that
//     ends, because the launcher has, the agent kills its ranks.
#pragma once
#include <poll.h>
#include <sys/signalfd.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/run/line_relay.h"
#include "tools/run/spawn.h"

namespace tutti::tools {

struct Supervision {
  std::string_view what = "ranks";           // "hosts", if the children are agents.
  std::chrono::duration<double> grace{5.0};  // From SIGTERM to SIGKILL once a rank has failed.
  bool takes_orders = false;  // From the standard input: this is an agent. Else rank 0 gets it.
};

/// It has more than 15 fields: processes, their output, and how they end.
class Supervisor {
 public:
  explicit Supervisor(const Supervision& options);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Starts them and waits for them. The exit code: that of the first one that failed (128 + signal
  /// if it was killed), else 0; 126 or 127 if the program can't be started, as in a shell.
  int run(std::span<const Child> children);

 private:
  struct Stream {
    Fd source;
    LineCutter lines;
    Outlet* outlet;
  };
  struct Running {
    std::string name;
    pid_t pid;  // -1 once it has ended.
    Fd orders;  // Into an agent.
  };

  bool prepare();
  bool start_all(std::span<const Child> children);
  Result<Fd> open_orders(const Child& child, Fd& input) const;
  void loop();
  bool done() const;
  int timeout_ms() const;
  void on_signal(const signalfd_siginfo& signal);
  void reap();
  void on_end(Running& one, const siginfo_t& how);
  void signal_all(int number);
  void lose_output();
  void end_others();
  void enforce_grace();
  void relay(Stream& stream);
  void relay_input();
  void take_orders();
  void say(const std::string& line);

  const Supervision options_;
  Outlet output_{1}, errors_{2};
  Outlet* const errors_outlet_;  // `output_` where both lead to the same place.
  Fd signals_;
  sigset_t old_mask_{};
  Fd input_;            // Into rank 0, where its input has to be passed on.
  std::string orders_;  // The beginning of one that has not come whole.
  bool ordered_ = false;
  std::vector<Running> running_;
  std::vector<Stream> streams_;
  std::size_t alive_ = 0;
  int exit_code_ = 0;
  bool ending_ = false, output_lost_ = false;
  std::optional<std::chrono::steady_clock::time_point> interrupted_at_;
  // When the ranks that still run are killed; and, once all have ended, when their output counts as
  // finished even though somebody keeps it open.
  std::optional<std::chrono::steady_clock::time_point> kill_at_, give_up_at_;
};

}  // namespace tutti::tools
