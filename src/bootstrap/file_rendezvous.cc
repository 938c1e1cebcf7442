// A store in a directory.
//
//   <directory>/job.<job>/members        locked (shared) by every rank that takes part
//                        /k.<key>        a value; long names continue in directories ("+" at
//                                        the end)
//                        /t.<unique>     a value that is being written
//                        /failed         what `fail` was told first
//                        /m.<rank>       locked by a rank while it joins; names its process
//                        /m.-1.<unique>  the same while the rank is not yet known
//
// A value appears whole or not at all: it is written beside its place and renamed. Values are
// written only under the shared lock, and a job's files are removed only under the exclusive one.
// The kernel drops the lock of a process that dies, whatever way it dies, so
//   - the first to come finds leftovers of an earlier run of the same job, and clears them;
//   - the last to leave removes the job;
//   - a waiting rank that finds m.<rank> without a lock tells all that this rank has died.
// Where the file system has no locks, nothing is cleared: then the job's name has to be new.
#include "bootstrap/file_rendezvous.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "base/fd.h"
#include "base/folder.h"
#include "base/fork.h"
#include "base/log.h"
#include "base/wall.h"
#include "bootstrap/limits.h"
#include "bootstrap/wire.h"

namespace tutti {
namespace bootstrap {
namespace {

using std::chrono::microseconds;

constexpr std::size_t kMostNameBytes = 200;  // File systems take 255.
constexpr std::size_t kMostJobBytes = 64;
constexpr microseconds kFirstPause{100}, kLongestPause{5000};
// Each further one means that another rank removed the job in between.
constexpr int kMostAttempts = 100;
// How long another rank may take to clear or remove a job.
constexpr std::chrono::seconds kLockTime{10};
constexpr const char *kMembers = "members", *kFailed = "failed";
constexpr std::string_view kJoining = "m.";
// A search for dead ranks costs some system calls for each rank. It happens no more often than
// every kLookPause, and takes at most 1 / kLookShare of the time.
constexpr std::chrono::milliseconds kLookPause{50};
constexpr int kLookShare = 20;

/// Letters, digits, '-', '_' and '.' stay; everything else becomes %XX.
std::string escape(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string escaped;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.';
    const auto byte = static_cast<unsigned char>(c);
    if (plain)
      escaped += c;
    else
      (escaped += '%').append({kDigits[byte >> 4], kDigits[byte & 15]});
  }
  return escaped;
}

/// The path of a key inside its job: no component is too long, none is both file and directory.
std::string key_path(std::string_view key) {
  std::string rest = "k." + escape(key), path;
  while (rest.size() > kMostNameBytes) {
    path += rest.substr(0, kMostNameBytes) + "+/";
    rest.erase(0, kMostNameBytes);
  }
  return path + rest;
}

Status write_all(int file, std::span<const std::byte> bytes, const std::string& what) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return system_error(what, written == 0 ? ENOSPC : errno);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return ok();
}

/// The file's bytes; empty if there is none.
Result<std::optional<Bytes>> read_file(int directory, const char* path, std::size_t most,
                                       const std::string& what) {
  const Fd file(::openat(directory, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file && errno == ENOENT) return std::optional<Bytes>{};
  struct stat status {};
  if (!file || ::fstat(file.get(), &status) != 0) return system_error(what, errno);
  if (!S_ISREG(status.st_mode) || static_cast<std::size_t>(status.st_size) > most)
    return Error{Code::kSystem, what + ": it is no file of ours"};
  Bytes bytes(static_cast<std::size_t>(status.st_size));
  for (std::size_t read = 0; read < bytes.size();) {
    const ssize_t got = ::read(file.get(), bytes.data() + read, bytes.size() - read);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return system_error(what, got == 0 ? EIO : errno);
    read += static_cast<std::size_t>(got);
  }
  return std::optional(std::move(bytes));
}

/// Opens a directory that nobody else may write to; it is made if it is missing.
Result<Fd> open_private(const std::string& path) {
  Fd directory;
  // Again where another rank removes it between the two calls.
  for (int attempt = 0; attempt < kMostAttempts && !directory; ++attempt) {
    if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST)
      return system_error("rendezvous: making " + path, errno);
    directory = Fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!directory && errno != ENOENT) break;
  }
  struct stat status {};
  if (!directory || ::fstat(directory.get(), &status) != 0)
    return system_error("rendezvous: opening " + path, errno);
  if (status.st_uid != geteuid() || (status.st_mode & 077) != 0) {
    return Error{Code::kSystem, "rendezvous: " + path +
                                    " belongs to another user or is open to others; remove it, or "
                                    "name another directory in TUTTI_RENDEZVOUS"};
  }
  return directory;
}

bool lock(int file, int how) {
  while (::flock(file, how) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

class FileRendezvous : public Rendezvous {
 public:
  static Result<std::unique_ptr<Rendezvous>> open(const std::string& path);
  ~FileRendezvous() override;
  FileRendezvous(const FileRendezvous&) = delete;
  FileRendezvous& operator=(const FileRendezvous&) = delete;

  Status put(std::string_view key, std::span<const std::byte> value) override;
  Result<Bytes> get(std::string_view key, Deadline deadline) override;
  Status fail(const Error& error) override;
  void enter(Rank me) override;
  void leave() override;

 private:
  explicit FileRendezvous(std::string path) : path_(std::move(path)) {}
  /// If a rank has died while it joined, tells all ranks.
  void look_for_deaths();
  std::optional<std::string> name_dead(const std::string& file) const;
  /// False: the job was being removed; try again.
  Result<bool> join();
  void show(const std::string& name);
  void hide();
  /// The name of a new file that holds `bytes`.
  Result<std::string> write_aside(std::span<const std::byte> bytes);
  std::string about(const char* verb, std::string_view key) const {
    return "rendezvous: " + std::string(verb) + " '" + std::string(key) + "' in " + path_;
  }

  const std::string path_;
  const pid_t owner_ = getpid();
  Fd directory_, members_;
  // Closed before an error is told to all: the error may be that no descriptor is left.
  Fd reserve_;
  std::mutex mutex_;
  Fd joining_;  // Locked, and named `joining_name_`, while `entered_` is not 0.
  ClosedInChild closed_in_child_{joining_};
  std::string joining_name_;
  bool came_ = true;  // Enter was not called yet.
  int entered_ = 1;   // Calls of enter without leave, and `came_`.
  std::chrono::steady_clock::time_point next_look_{};
};

/// Removes a file, or a directory with all that is in it. Not by std::filesystem; see
/// base/folder.h.
void remove_all(const std::string& path) {
  if (::unlink(path.c_str()) == 0 || errno != EISDIR) return;
  if (const auto names = names_in(path)) {
    for (const std::string& name : *names) remove_all(path + "/" + name);
  }
  ::rmdir(path.c_str());
}

/// Removes everything but the members file. Under the exclusive lock.
Status clear(const std::string& path) {
  TUTTI_TRY(const auto names, names_in(path));
  for (const std::string& name : names) {
    if (name != kMembers) remove_all(path + "/" + name);
  }
  return ok();
}

/// Removes the job. Needs the exclusive lock. A process that waits for the lock then sees that the
/// job is gone.
void remove_job(const std::string& path, int directory) {
  (void)clear(path);
  ::unlinkat(directory, kMembers, 0);
  ::rmdir(path.c_str());
}

Result<bool> FileRendezvous::join() {
  TUTTI_TRY(directory_, open_private(path_));
  members_ =
      Fd(::openat(directory_.get(), kMembers, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!members_) {
    if (errno == ENOENT) return false;  // Removed between the two opens.
    return system_error("rendezvous: opening " + path_ + "/members", errno);
  }
  if (lock(members_.get(), LOCK_EX | LOCK_NB)) {
    struct stat status {};
    if (::fstat(members_.get(), &status) == 0 && status.st_nlink == 0) return false;
    // Nobody takes part, so whatever is here is from an earlier run.
    TUTTI_RETURN_IF_ERROR(clear(path_));
  }
  const Deadline deadline = Deadline::after(kLockTime);
  while (!lock(members_.get(), LOCK_SH | LOCK_NB)) {
    if (errno != EWOULDBLOCK) {
      log::info(log::Part::kJoin, "rendezvous: {} has no locks; leftovers of earlier runs stay",
                path_);
      break;
    }
    if (deadline.passed())
      return Error{Code::kTimeout, "rendezvous: " + path_ + "/members stays locked"};
    std::this_thread::sleep_for(kFirstPause);
  }
  struct stat status {};
  return ::fstat(members_.get(), &status) != 0 || status.st_nlink != 0;
}

Result<std::unique_ptr<Rendezvous>> FileRendezvous::open(const std::string& path) {
  std::unique_ptr<FileRendezvous> made(new FileRendezvous(path));
  for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
    TUTTI_TRY(const bool joined, made->join());
    if (joined) {
      made->reserve_ = Fd(::fcntl(made->directory_.get(), F_DUPFD_CLOEXEC, 0));
      made->show("");
      return std::unique_ptr<Rendezvous>(std::move(made));
    }
    std::this_thread::sleep_for(kFirstPause);
  }
  return Error{Code::kSystem, "rendezvous: " + path + " is removed again and again"};
}

FileRendezvous::~FileRendezvous() {
  if (!members_ || owner_ != getpid()) return;  // A fork shares its parent's lock.
  if (came_) hide();                            // It does not want to join after all.
  if (!lock(members_.get(), LOCK_EX | LOCK_NB)) return;
  // What is left for lack of memory the next run of the job clears.
  (void)walled("rendezvous", [this] { return remove_job(path_, directory_.get()), ok(); });
}

Result<std::string> FileRendezvous::write_aside(std::span<const std::byte> bytes) {
  static std::atomic<std::uint64_t> count{0};
  std::string name;
  Fd file;
  // Try again if a process of another host has the same number.
  for (int attempt = 0; attempt < kMostAttempts && !file; ++attempt) {
    // relaxed: it matters only that each value is given out once.
    name = fmt::format("t.{}.{}", getpid(), count.fetch_add(1, std::memory_order_relaxed));
    file =
        Fd(::openat(directory_.get(), name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!file && errno != EEXIST) break;
  }
  const int reason = errno;
  const std::string what = about("writing", name);
  if (!file) return system_error(what, reason);
  if (auto written = write_all(file.get(), bytes, what); !written) {
    ::unlinkat(directory_.get(), name.c_str(), 0);
    return std::move(written.error());
  }
  return name;
}

Status FileRendezvous::put(std::string_view key, std::span<const std::byte> value) {
  TUTTI_RETURN_IF_ERROR(check_sizes(key, value.size()));
  const std::string path = key_path(key);
  for (auto slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1))
    ::mkdirat(directory_.get(), path.substr(0, slash).c_str(), 0700);  // Rename tells if not.
  TUTTI_TRY(const std::string aside, write_aside(value));
  if (::renameat(directory_.get(), aside.c_str(), directory_.get(), path.c_str()) != 0) {
    const int reason = errno;
    ::unlinkat(directory_.get(), aside.c_str(), 0);
    return system_error(about("storing", key), reason);
  }
  return ok();
}

Result<Bytes> FileRendezvous::get(std::string_view key, Deadline deadline) {
  TUTTI_RETURN_IF_ERROR(check_sizes(key));
  const std::string path = key_path(key);
  microseconds pause = kFirstPause;
  for (;;) {
    const bool last = deadline.passed();  // Before the look, so that there is one after the wait.
    TUTTI_TRY(const auto failure, read_file(directory_.get(), kFailed, kMostErrorBytes + 64,
                                            about("reading", kFailed)));
    if (failure) {
      TUTTI_TRY(auto message, wire::parse(*failure));
      return std::move(message.error);
    }
    TUTTI_TRY(auto value,
              read_file(directory_.get(), path.c_str(), kMostValueBytes, about("reading", key)));
    if (value) return *std::move(value);
    if (last) return never_came(key);
    look_for_deaths();
    const auto left =
        std::chrono::ceil<microseconds>(deadline.at - std::chrono::steady_clock::now());
    std::this_thread::sleep_for(std::clamp(left, microseconds(0), pause));
    pause = std::min(pause * 2, kLongestPause);
  }
}

/// From now on the others notice this process's end. An empty name: one of its own, without a rank.
void FileRendezvous::show(const std::string& name) {
  const std::string process = this_process_name();
  auto aside = write_aside(std::as_bytes(std::span(process.data(), process.size())));
  if (!aside) return;  // The next operation fails for the same reason, and reports it.
  joining_ = Fd(::openat(directory_.get(), aside->c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  joining_name_ = name.empty() ? std::string(kJoining) + "-1." + *aside : name;
  // Lock the file before it gets its name: as long as this rank lives, no rank finds it unlocked.
  const bool locked = joining_ && lock(joining_.get(), LOCK_EX | LOCK_NB);
  if (!locked ||
      ::renameat(directory_.get(), aside->c_str(), directory_.get(), joining_name_.c_str()) != 0) {
    ::unlinkat(directory_.get(), aside->c_str(), 0);
    joining_.reset();
  }
}

void FileRendezvous::hide() {
  // Another process that claims this rank may have put its own file there.
  struct stat mine {
  }, there{};
  if (joining_ && ::fstat(joining_.get(), &mine) == 0 &&
      ::fstatat(directory_.get(), joining_name_.c_str(), &there, AT_SYMLINK_NOFOLLOW) == 0 &&
      mine.st_ino == there.st_ino) {
    ::unlinkat(directory_.get(), joining_name_.c_str(), 0);
  }
  joining_.reset();
}

void FileRendezvous::enter(Rank me) {
  const std::lock_guard guard(mutex_);
  const std::string name = std::string(kJoining) + std::to_string(me.value);
  const bool came = std::exchange(came_, false);
  if (!came && ++entered_ != 1) return;
  if (joining_ &&
      ::renameat(directory_.get(), joining_name_.c_str(), directory_.get(), name.c_str()) == 0) {
    joining_name_ = name;
    return;
  }
  show(name);
}

void FileRendezvous::leave() {
  const std::lock_guard guard(mutex_);
  if (owner_ != getpid() || entered_ == 0 || --entered_ != 0) return;
  hide();
}

/// The name of the process if its file is unlocked, so that it has died; empty if it lives or left.
std::optional<std::string> FileRendezvous::name_dead(const std::string& file) const {
  const Fd theirs(::openat(directory_.get(), file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!theirs || !lock(theirs.get(), LOCK_SH | LOCK_NB)) return std::nullopt;
  struct stat status {};
  if (::fstat(theirs.get(), &status) != 0 || status.st_nlink == 0) return std::nullopt;
  auto text = read_file(directory_.get(), file.c_str(), kMostErrorBytes, file);
  if (!text || !*text) return std::nullopt;
  return std::string(reinterpret_cast<const char*>((*text)->data()), (*text)->size());
}

void FileRendezvous::look_for_deaths() {
  const auto start = std::chrono::steady_clock::now();
  {
    const std::lock_guard guard(mutex_);
    if (start < next_look_) return;
    next_look_ = start + kLookPause;  // So only one of two threads looks.
  }
  Fd listed(::openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const std::unique_ptr<DIR, int (*)(DIR*)> listing(::fdopendir(listed.get()), ::closedir);
  if (listing) (void)listed.release();
  for (const dirent* one = nullptr; listing && (one = ::readdir(listing.get())) != nullptr;) {
    const std::string file = one->d_name;
    if (!file.starts_with(kJoining)) continue;
    const auto process = name_dead(file);
    if (!process) continue;
    const Rank rank{std::atoi(file.c_str() + kJoining.size())};
    (void)fail(ended_while_joining(rank, *process));
    break;
  }
  const auto end = std::chrono::steady_clock::now();
  const std::lock_guard guard(mutex_);
  next_look_ = end + std::max<std::chrono::nanoseconds>(kLookPause, (end - start) * kLookShare);
}

Status FileRendezvous::fail(const Error& error) {
  {
    const std::lock_guard guard(mutex_);
    reserve_.reset();
  }
  const Bytes frame = wire::encode({.kind = wire::Kind::kFailed, .error = error});
  TUTTI_TRY(const std::string aside, write_aside(std::span(frame).subspan(wire::kLengthBytes)));
  // A link, not a rename: the first failure stays.
  const bool linked = ::linkat(directory_.get(), aside.c_str(), directory_.get(), kFailed, 0) == 0;
  const int reason = errno;
  ::unlinkat(directory_.get(), aside.c_str(), 0);
  return linked || reason == EEXIST ? ok()
                                    : Status(system_error(about("storing", kFailed), reason));
}

}  // namespace

Result<std::string> user_directory() {
  const char* runtime = secure_getenv("XDG_RUNTIME_DIR");
  struct stat status {};
  // Under sudo -E it belongs to another user; in a container it may not exist.
  const bool ours = runtime != nullptr && *runtime == '/' && ::stat(runtime, &status) == 0 &&
                    status.st_uid == geteuid();
  const std::string path =
      ours ? std::string(runtime) + "/tutti" : "/tmp/tutti-" + std::to_string(geteuid());
  TUTTI_TRY([[maybe_unused]] const Fd directory, open_private(path));
  return path;
}

void remove_dead_jobs(const std::string& directory) {
  const auto names = names_in(directory);
  if (!names) return;
  for (const std::string& name : *names) {
    if (!name.starts_with("job.")) continue;
    const std::string path = directory + "/" + name;
    const Fd job(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    const Fd members(::openat(job.get(), kMembers, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
    if (!members)
      ::rmdir(path.c_str());  // Works only if it is empty: made, and never joined.
    else if (lock(members.get(), LOCK_EX | LOCK_NB))
      remove_job(path, job.get());
  }
}

}  // namespace bootstrap

Result<std::unique_ptr<Rendezvous>> file_rendezvous(const std::string& directory,
                                                    std::string_view job) {
  if (directory.empty() || job.empty() || job.size() > bootstrap::kMostJobBytes) {
    return Error{Code::kInvalidArgument,
                 "file_rendezvous: it takes a directory, and a job's name of 1 to " +
                     std::to_string(bootstrap::kMostJobBytes) + " bytes, not '" +
                     std::string(job.substr(0, 100)) + "'"};
  }
  std::error_code failure;
  if (std::filesystem::create_directories(directory, failure))
    std::filesystem::permissions(directory, std::filesystem::perms::owner_all, failure);
  if (failure) {
    return Error{Code::kSystem,
                 "rendezvous: making the directory " + directory + ": " + failure.message()};
  }
  return bootstrap::FileRendezvous::open(directory + "/job." + bootstrap::escape(job));
}

}  // namespace tutti
