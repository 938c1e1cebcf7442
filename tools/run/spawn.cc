#include "tools/run/spawn.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

namespace tutti::tools {
namespace {

/// The environment of a rank: ours, less what another launcher said, plus what we say.
std::vector<std::string> environment_of(const Job& job, int local_rank) {
  const std::string me = std::to_string(job.first_rank + local_rank),
                    count = std::to_string(job.rank_count), local = std::to_string(local_rank),
                    local_count = std::to_string(job.local_rank_count);
  // The last six are what torch.distributed reads: a script for torchrun runs unchanged.
  std::vector<std::string> ours{"TUTTI_RANK=" + me,
                                "TUTTI_RANK_COUNT=" + count,
                                "TUTTI_LOCAL_RANK=" + local,
                                "TUTTI_LOCAL_RANK_COUNT=" + local_count,
                                "TUTTI_JOB=" + job.name,
                                "TUTTI_SECRET=" + job.secret,
                                "RANK=" + me,
                                "WORLD_SIZE=" + count,
                                "LOCAL_RANK=" + local,
                                "LOCAL_WORLD_SIZE=" + local_count,
                                "MASTER_ADDR=" + job.master_address,
                                "MASTER_PORT=" + std::to_string(job.master_port)};
  if (!job.rendezvous.empty()) ours.push_back("TUTTI_RENDEZVOUS=" + job.rendezvous);
  const auto name_of = [](std::string_view entry) { return entry.substr(0, entry.find('=')); };
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view name = name_of(*entry);
    // Set by an outer torchrun: its store is not ours.
    if (name.starts_with("TORCHELASTIC_")) continue;
    const bool replaced = std::any_of(ours.begin(), ours.end(),
                                      [&](const auto& one) { return name_of(one) == name; });
    if (!replaced) all.emplace_back(*entry);
  }
  all.insert(all.end(), ours.begin(), ours.end());
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (auto& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

/// In the new process: never returns. An error goes through `trouble`, as an errno.
[[noreturn]] void become(char* const* program, char* const* environment, const sigset_t& signals,
                         pid_t launcher, int input, int output, int errors, int trouble) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The launcher may have died before it could be noticed.
  if (::getppid() == launcher && ::dup2(input, 0) >= 0 && ::dup2(output, 1) >= 0 &&
      ::dup2(errors, 2) >= 0) {
    for (const int number : {SIGPIPE, SIGTTIN}) ::signal(number, SIG_DFL);
    ::sigprocmask(SIG_SETMASK, &signals, nullptr);
    ::execvpe(program[0], program, environment);
  }
  const int reason = errno;
  [[maybe_unused]] const ssize_t written = ::write(trouble, &reason, sizeof(reason));
  ::_exit(127);
}

}  // namespace

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    return Error{Code::kSystem, "pipe: " + std::generic_category().message(errno)};
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

std::vector<Child> ranks_of(const Job& job) {
  std::vector<Child> ranks;
  for (int i = 0; i < job.local_rank_count; ++i) {
    const std::string rank = std::to_string(job.first_rank + i);
    ranks.push_back({.name = "rank " + rank,
                     .prefix = job.prefix ? "[" + rank + "] " : "",
                     .rank = job.first_rank + i,
                     .program = job.program,
                     .environment = environment_of(job, i),
                     .orders = {}});
  }
  return ranks;
}

Result<ChildProcess> start(const Child& child, int input, const sigset_t& signals) {
  TUTTI_TRY(auto output, make_pipe());
  TUTTI_TRY(auto errors, make_pipe());
  TUTTI_TRY(auto trouble, make_pipe());
  auto arguments = child.program, environment = child.environment;
  const auto argument_pointers = pointers(arguments), environment_pointers = pointers(environment);
  const pid_t launcher = ::getpid();
  const pid_t pid = ::fork();
  if (pid < 0) return Error{Code::kSystem, "fork: " + std::generic_category().message(errno)};
  if (pid == 0) {
    become(argument_pointers.data(), environment_pointers.data(), signals, launcher, input,
           output.write.get(), errors.write.get(), trouble.write.get());
  }
  ::setpgid(pid, pid);  // Both sides do it: the group must exist when either signals it.
  trouble.write.reset();
  int reason = 0;
  ssize_t got = 0;
  // Ends when the program has begun, which closes the pipe.
  do got = ::read(trouble.read.get(), &reason, sizeof(reason));
  while (got < 0 && errno == EINTR);
  if (got == static_cast<ssize_t>(sizeof(reason))) {
    ::waitpid(pid, nullptr, 0);
    return Error{Code::kSystem,
                 "'" + child.program[0] + "': " + std::generic_category().message(reason)};
  }
  return ChildProcess{pid, std::move(output.read), std::move(errors.read)};
}

}  // namespace tutti::tools
