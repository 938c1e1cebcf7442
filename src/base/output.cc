#include "base/output.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/fd.h"

namespace tutti {
namespace {

// Relaxed: only the number is passed on, and any of several failures will do.
std::atomic<int> first_failure{0};

void remember(int error) {
  int none = 0;
  first_failure.compare_exchange_strong(none, error == 0 ? EIO : error, std::memory_order_relaxed);
}

Error cannot_write(const std::string& path, int error) {
  return {Code::kSystem, fmt::format("can't write '{}': {}", path, std::strerror(error))};
}

/// The file that a path leads to through symbolic links; the path itself if there is no file yet.
std::string real_path(const std::string& path) {
  char* const found = ::realpath(path.c_str(), nullptr);
  if (found == nullptr) return path;
  std::string real = found;
  std::free(found);
  return real;
}

/// How a path has to be written.
struct Target {
  std::string path;      // With symbolic links followed.
  bool in_place = true;  // False: into a new file beside it, which is then renamed.
  mode_t mode = 0;       // The mode of the file that is there; 0: there is none.
};

Target target_of(const std::string& path) {
  Target target{.path = real_path(path)};
  struct stat there {};
  const bool exists = ::lstat(target.path.c_str(), &there) == 0;
  target.in_place = exists && !S_ISREG(there.st_mode);
  if (exists && !target.in_place) target.mode = there.st_mode & 07777;
  return target;
}

/// A new file beside `path`, and its name; -1 with errno.
Fd open_beside(const std::string& path, std::string& name) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    unsigned random = 0;
    if (::getrandom(&random, sizeof(random), 0) < 0) return {};
    name = fmt::format("{}.{:08x}.new", path, random);
    Fd file(::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file || errno != EEXIST) return file;
  }
  return {};
}

/// 0, or errno.
int write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(descriptor, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written == 0 ? EIO : errno;
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

int write_in_place(const std::string& path, std::string_view text) {
  const Fd file(::open(path.c_str(), O_WRONLY | O_TRUNC | O_CLOEXEC));
  return file ? write_all(file.get(), text) : errno;
}

/// A file may be writable although its folder is not.
bool only_the_file_is_ours(const Target& target, int error) {
  return (error == EACCES || error == EPERM || error == EROFS) &&
         ::access(target.path.c_str(), W_OK) == 0;
}

/// Checks that write_file could write there, by trying it without changing the file.
Status check_writable(const std::string& path) {
  const Target target = target_of(path);
  struct stat there {};
  if (::stat(target.path.c_str(), &there) == 0 && S_ISDIR(there.st_mode))
    return cannot_write(path, EISDIR);
  if (target.in_place)
    return ::access(target.path.c_str(), W_OK) == 0 ? ok() : cannot_write(path, errno);
  std::string name;
  const Fd file = open_beside(target.path, name);
  const int error = errno;
  if (file) {
    ::unlink(name.c_str());
    return ok();
  }
  return only_the_file_is_ours(target, error) ? ok() : cannot_write(path, error);
}

}  // namespace

void put_output(std::string_view text) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size()) remember(errno);
}

void flush_output() {
  errno = 0;
  if (std::fflush(stdout) != 0) remember(errno);
}

int output_failure() { return first_failure.load(std::memory_order_relaxed); }

void fill_standard_descriptors() {
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    // open takes the lowest free descriptor, which is this one. Writes to it fail: it is read-only.
    (void)!::open("/dev/null", descriptor == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

std::string output_failure_words(int failure) {
  return fmt::format("standard output could not be written: {}", std::strerror(failure));
}

int finish_output(std::string_view program, int exit_code) {
  flush_output();
  // On a network file system, some failures show only when the file is closed.
  const int copy = ::dup(STDOUT_FILENO);
  if (copy >= 0 && ::close(copy) != 0) remember(errno);
  if (std::ferror(stdout) != 0) remember(EIO);
  const int failure = output_failure();
  if (failure == 0) return exit_code;
  if (failure == EPIPE) {  // Ends as if SIGPIPE had not been ignored: the reader closed the pipe.
    ::signal(SIGPIPE, SIG_DFL);
    ::raise(SIGPIPE);
  }
  say_error("{}: {}\n", program, output_failure_words(failure));
  return exit_code == 0 ? 1 : exit_code;
}

Status check_outputs(std::initializer_list<OutputOption> outputs) {
  for (const OutputOption& output : outputs) {
    if (output.path.empty() || output.path == "-") continue;
    if (const Status status = check_writable(output.path); !status) {
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: {}", output.option, status.error().what)};
    }
  }
  return ok();
}

Status write_file(const std::string& path, std::string_view text) {
  const Target target = target_of(path);
  int error = 0;
  if (target.in_place) {
    error = write_in_place(target.path, text);
    return error == 0 ? ok() : cannot_write(path, error);
  }
  std::string name;
  Fd file = open_beside(target.path, name);
  if (!file) {
    error = errno;
    if (only_the_file_is_ours(target, error)) error = write_in_place(target.path, text);
    return error == 0 ? ok() : cannot_write(path, error);
  }
  error = write_all(file.get(), text);
  if (error == 0 && target.mode != 0 && ::fchmod(file.get(), target.mode) != 0) error = errno;
  if (error == 0 && ::close(file.release()) != 0) error = errno;
  if (error == 0 && ::rename(name.c_str(), target.path.c_str()) != 0) error = errno;
  if (error == 0) return ok();
  ::unlink(name.c_str());
  return cannot_write(path, error);
}

Status write_text(const std::string& path, std::string_view text) {
  if (!path.empty() && path != "-") return write_file(path, text);
  put_output(text);
  return ok();
}

}  // namespace tutti
