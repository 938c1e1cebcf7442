// File: tools/supervisor.h: runs local ranks to their end.
//
// One thread, one poll: signals come through a descriptor, so nothing interrupts anything.
//   - What ranks write is passed on in whole lines.
//   - SIGINT, SIGTERM and SIGHUP are passed on to all ranks; a second SIGINT kills them.
//   - When a rank fails, the others are asked to end (SIGTERM), and killed after the grace time.
//   - A rank's process group is killed once its leader has ended: nothing is left behind.
#pragma once
#include <poll.h>
#include <sys/signalfd.h>

#include <array>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "line_relay.h"
#include "spawn.h"

namespace tutti::tools {

struct RunOptions {
  std::vector<std::string> program;
  int rank_count = 1;
  bool prefix = true;                        // "[rank] " before each line.
  std::chrono::duration<double> grace{5.0};  // From SIGTERM to SIGKILL once a rank has failed.
};

class Supervisor {
 public:
  explicit Supervisor(RunOptions options);
  ~Supervisor();
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  /// Starts the ranks and waits for them. The exit code: that of the first rank that failed (128 +
  /// signal if it was killed), else 0; 126 or 127 if the program can't be started, as in a shell.
  int run(Job job);

 private:
  struct Stream {
    Fd source;
    LineCutter lines;
    Outlet* outlet;
  };
  struct Rank {
    pid_t pid;  // -1 once it has ended.
  };

  bool prepare();
  bool start_ranks(Job& job);
  void loop();
  bool done() const;
  int timeout_ms() const;
  void on_signal(const signalfd_siginfo& signal);
  void reap();
  void on_end(std::size_t rank, const siginfo_t& how);
  void signal_all(int number);
  void end_others();
  void enforce_grace();
  void relay(Stream& stream);
  void relay_input();
  void say(const std::string& line);

  const RunOptions options_;
  Outlet output_{1}, errors_{2};
  Outlet* const errors_outlet_;  // `output_` where both lead to the same place.
  Fd signals_;
  sigset_t old_mask_{};
  Fd input_;  // Into rank 0, where its input has to be passed on.
  std::vector<Rank> ranks_;
  std::vector<Stream> streams_;
  std::size_t alive_ = 0;
  int exit_code_ = 0;
  bool ending_ = false;
  std::optional<std::chrono::steady_clock::time_point> interrupted_at_;
  // When the ranks that still run are killed; and, once all have ended, when their output counts as
  // finished even though somebody keeps it open.
  std::optional<std::chrono::steady_clock::time_point> kill_at_, give_up_at_;
};

}  // namespace tutti::tools
