#include "exec/flight/place.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include <fmt/format.h>

#include "base/clock.h"
#include "base/log.h"
#include "exec/flight/layout.h"

namespace tutti::exec::flight {
namespace {

Place in_folder(const std::string& folder, std::string host) {
  Place made;
  std::ranges::replace(host, '/', '-');
  // With the time: a number is given to another process later.
  made.path =
      fmt::format("{}/{}-{}-{}-{}{}", folder, kFileName, host, getpid(), monotonic_ns(), kFileEnd);
  made.fd = Fd(::open(made.path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (made.fd) return made;
  log::warn(log::Part::kCalls, "TUTTI_FLIGHT: {}: {}; a rank that is killed leaves no record",
            made.path, std::generic_category().message(errno));
  return {};
}

Place in_memory() {
  Place made;
  rlimit limit{};
  // A file beyond this limit is not an error but a signal, SIGXFSZ.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && kFileBytes > limit.rlim_cur) return made;
  Fd fd(memfd_create(kFileName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(kFileBytes)) != 0) return made;
  fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  made.fd = std::move(fd);
  return made;
}

}  // namespace

Place Place::make(const std::string& folder, const std::string& host) {
  if (!folder.empty()) {
    if (Place made = in_folder(folder, host); made.fd) return made;
  }
  return in_memory();
}

bool Place::hold(std::size_t offset, std::size_t bytes) const {
  if (path.empty()) return true;  // It has that size, and is memory like any other.
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && offset + bytes > limit.rlim_cur) return false;
  if (fallocate(fd.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) == 0)
    return true;
  log::warn(log::Part::kCalls, "TUTTI_FLIGHT: {}: {}; a rank that is killed leaves no record", path,
            std::generic_category().message(errno));
  return false;
}

void Place::remove() {
  if (path.empty()) return;
  ::unlink(path.c_str());
  path.clear();
  fd.reset();
}

}  // namespace tutti::exec::flight
