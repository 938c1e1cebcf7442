// Memory that peers map: what may be registered, and which processes its server serves.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <numeric>

#include "support/catch.h"
#include "support/processes.h"
#include "transport/local/segments.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kPage = 4096;

/// A memfd, and mappings of it.
class File {
 public:
  explicit File(std::size_t bytes) : fd_(memfd_create("test", MFD_CLOEXEC)) {
    REQUIRE(ftruncate(fd_, static_cast<off_t>(bytes)) == 0);
  }
  ~File() {
    for (const auto& [data, bytes] : maps_) munmap(data, bytes);
    close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }
  std::byte* map(std::size_t bytes, std::size_t offset = 0, int flags = MAP_SHARED,
                 int access = PROT_READ | PROT_WRITE, void* at = nullptr) {
    void* const data = mmap(at, bytes, access, flags, fd_, static_cast<off_t>(offset));
    REQUIRE(data != MAP_FAILED);
    maps_.emplace_back(data, bytes);
    return static_cast<std::byte*>(data);
  }

 private:
  int fd_;
  std::vector<std::pair<void*, std::size_t>> maps_;
};

/// The error of registering this; empty: it was registered, and is deregistered again.
std::string refusal(void* data, std::size_t bytes, int fd, std::size_t offset) {
  const Status added = segments::add(data, bytes, fd, offset);
  if (!added) {
    CHECK(added.error().code == Code::kInvalidArgument);
    return added.error().what;
  }
  CHECK(segments::remove(data));
  return "";
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("what is a mapping of the file is registered, any part of it") {
  File file(16 * kPage);
  std::byte* const all = file.map(16 * kPage);
  CHECK(refusal(all, 16 * kPage, file.fd(), 0) == "");
  CHECK(refusal(all + 100, kPage, file.fd(), 100) == "");
  CHECK(refusal(all + 5 * kPage, 11 * kPage, file.fd(), 5 * kPage) == "");
  // Mappings with other access, which the kernel lists apart, and one that is put together.
  REQUIRE(mprotect(all + kPage, kPage, PROT_READ) == 0);
  CHECK(refusal(all, 16 * kPage, file.fd(), 0) == "");
  std::byte* const behind = file.map(4 * kPage);
  (void)file.map(2 * kPage, 2 * kPage, MAP_SHARED | MAP_FIXED, PROT_READ | PROT_WRITE,
                 behind + 2 * kPage);
  CHECK(refusal(behind, 4 * kPage, file.fd(), 0) == "");
  // Contents are not looked at, nor changed: another thread may be writing them.
  std::fill(all + 2 * kPage, all + 16 * kPage, std::byte{7});
  CHECK(refusal(all, 16 * kPage, file.fd(), 0) == "");
  CHECK(all[2 * kPage] == std::byte{7});
}

TEST_CASE("what is no mapping of the file is refused, and says what it is") {
  File file(16 * kPage), other(16 * kPage);
  std::byte* const memory = file.map(16 * kPage);
  std::vector<std::byte> plain(16 * kPage);
  CHECK(contains(refusal(plain.data(), 8 * kPage, file.fd(), 0), "private"));
  CHECK(contains(refusal(memory, kPage, other.fd(), 0), "no mapping of this descriptor's file"));
  CHECK(contains(refusal(memory, kPage, file.fd(), kPage), "offset 0 of the file, not 4096"));
  CHECK(contains(refusal(memory + 8, kPage, file.fd(), 0), "offset 8 of the file, not 0"));
  CHECK(contains(refusal(memory, 17 * kPage, file.fd(), 0), "the file has 65536 bytes"));
  CHECK(contains(refusal(memory, kPage, file.fd(), SIZE_MAX - 10), "the file has"));
  CHECK(contains(refusal(memory, SIZE_MAX - 10, file.fd(), 0), "address space"));
  CHECK(contains(refusal(memory, kPage, -1, 0), "descriptor -1"));
  std::byte* const copy = file.map(kPage, 0, MAP_PRIVATE);
  CHECK(contains(refusal(copy, kPage, file.fd(), 0), "private"));
  // The beginning is right, the rest is not.
  std::byte* const part = file.map(8 * kPage);
  (void)other.map(kPage, 4 * kPage, MAP_SHARED | MAP_FIXED, PROT_READ | PROT_WRITE,
                  part + 4 * kPage);
  CHECK(contains(refusal(part, 8 * kPage, file.fd(), 0), "no mapping of this"));
  CHECK(refusal(part, 4 * kPage, file.fd(), 0) == "");
  munmap(part + 2 * kPage, kPage);
  CHECK(contains(refusal(part, 4 * kPage, file.fd(), 0), "nothing is mapped at"));
}

TEST_CASE("a file that peers could not map is refused") {
  File file(kPage);
  std::byte* const memory = file.map(kPage);
  const std::string path = "/proc/self/fd/" + std::to_string(file.fd());
  const int reading = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  REQUIRE(reading >= 0);
  CHECK(contains(refusal(memory, kPage, reading, 0), "peers can't map"));
  close(reading);
  std::array<int, 2> ends{};
  REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
  const Status added = segments::add(memory, kPage, ends[0], 0);
  REQUIRE_FALSE(added);
  CHECK(added.error().code == Code::kUnsupported);
  for (const int end : ends) close(end);
}

int connect_to(const segments::Address& address) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const std::size_t length = strnlen(address.socket.data(), address.socket.size());
  std::memcpy(name.sun_path + 1, address.socket.data(), length);
  if (connect(fd, reinterpret_cast<sockaddr*>(&name),
              static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length)) == 0)
    return fd;
  close(fd);
  return -1;
}

/// How long it takes to fetch memory of this process from this process.
std::chrono::nanoseconds time_to_fetch(const segments::Address& address, const void* memory) {
  const auto begin = std::chrono::steady_clock::now();
  const auto mapping = segments::fetch({address, 0}, segments::id_of(memory), Deadline::after(60s));
  if (!mapping) FAIL(mapping.error().to_string());
  return std::chrono::steady_clock::now() - begin;
}

TEST_CASE("clients that say nothing hold nobody up") {
  const auto address = segments::serve();
  REQUIRE(address);
  const auto memory = mem_alloc(kPage);
  REQUIRE(memory);
  for (const int count : {32, 400}) {  // More than it looks after side by side.
    INFO(count << " clients");
    std::vector<int> mute;
    for (int i = 0; i < count; ++i) mute.push_back(connect_to(*address));
    // One after another they would take a second each.
    CHECK(time_to_fetch(*address, *memory) < (count == 32 ? 20s : 25s));
    for (const int fd : mute) close(fd);
  }
  CHECK(mem_free(*memory));
}

TEST_CASE("other users are sent away before they have said anything") {
  if (geteuid() != 0) {
    WARN("only root can be another user");
    return;
  }
  const auto address = segments::serve();
  REQUIRE(address);
  const auto memory = mem_alloc(kPage);
  REQUIRE(memory);
  const ScratchDirectory directory;
  REQUIRE(chmod(directory.path().c_str(), 0777) == 0);
  Processes stranger(1, [&](int) -> std::string {
    if (setresuid(65534, 65534, 65534) != 0) return "setresuid";
    std::vector<int> mute;
    for (int i = 0; i < 300; ++i) mute.push_back(connect_to(*address));
    say_ready(directory, 0);
    // All are closed by the other side.
    for (const int fd : mute) {
      char byte = 0;
      if (fd >= 0 && !eventually([&] { return recv(fd, &byte, 1, 0) == 0; }, 20s))
        return "a stranger's connection was kept";
    }
    return "";
  });
  REQUIRE(all_ready(directory, 1));
  CHECK(time_to_fetch(*address, *memory) < 10s);
  CHECK(stranger.wait(0) == 0);
  CHECK(mem_free(*memory));
}

/// Serves a segment in a process of its own, whose address and the segment's id it tells.
struct Told {
  segments::Address address;
  std::uint64_t id = 0;
  pid_t pid = 0;
};
/// `descriptors`: how many the process may have; 0: as many as this one.
std::string serve_and_wait(int to, rlim_t descriptors = 0) {
  rlimit most{};
  if (descriptors != 0 && (getrlimit(RLIMIT_NOFILE, &most) != 0 ||
                           (most.rlim_cur = descriptors, setrlimit(RLIMIT_NOFILE, &most) != 0)))
    return "can't limit itself";
  const auto address = segments::serve();
  const auto memory = mem_alloc(kPage);
  if (!address || !memory) return "can't serve";
  const Told told{*address, segments::id_of(*memory), getpid()};
  if (write(to, &told, sizeof(told)) != sizeof(told)) return "write";
  pause();
  return "";
}

std::array<int, 2> make_pipe() {
  std::array<int, 2> ends{};
  REQUIRE(pipe2(ends.data(), O_CLOEXEC) == 0);
  return ends;
}

/// A process that does so.
struct Owner {
  explicit Owner(rlim_t descriptors = 0)
      : process(1, [&](int) { return serve_and_wait(ends[1], descriptors); }) {
    close(ends[1]);  // So that nothing comes if the process has ended.
    REQUIRE(read(ends[0], &told, sizeof(told)) == sizeof(told));
    close(ends[0]);
  }
  std::array<int, 2> ends = make_pipe();
  Told told;
  Processes process;
};

TEST_CASE("a process that may have few descriptors hands out its memory too") {
  for (const rlim_t most : {16, 64}) {  // Fewer than the clients that it would look after.
    INFO(most << " descriptors");
    Owner owner(most);
    CHECK(segments::fetch({owner.told.address, 3}, owner.told.id, Deadline::after(20s)));
    owner.process.signal(0, SIGKILL);
    CHECK(owner.process.wait(0) == 128 + SIGKILL);
  }
  // Below what it has open already.
  Owner owner;
  const rlimit two{2, 64};
  REQUIRE(prlimit(owner.told.pid, RLIMIT_NOFILE, &two, nullptr) == 0);
  for (int i = 0; i < 2; ++i) {  // The first connection ends the wait that is under way.
    const auto told = segments::fetch({owner.told.address, 3}, owner.told.id, Deadline::after(1s));
    CHECK_FALSE(told);
  }
  const rlimit enough{64, 64};
  REQUIRE(prlimit(owner.told.pid, RLIMIT_NOFILE, &enough, nullptr) == 0);
  CHECK(segments::fetch({owner.told.address, 3}, owner.told.id, Deadline::after(20s)));
  owner.process.signal(0, SIGKILL);
  CHECK(owner.process.wait(0) == 128 + SIGKILL);
}

TEST_CASE("a process that does not hand out its memory is named, and whether it has ended") {
  Owner served;
  Processes& owner = served.process;
  const Told& told = served.told;
  CHECK(segments::fetch({told.address, 3}, told.id, Deadline::after(60s)));
  const auto unknown = segments::fetch({told.address, 3}, 12345, Deadline::after(60s));
  REQUIRE_FALSE(unknown);
  CHECK(contains(unknown.error().what, "rank 3"));
  CHECK(unknown.error().peer.value == 3);
  // It is not to blame for what this process has run out of.
  rlimit descriptors{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &descriptors) == 0);
  const rlimit none{0, descriptors.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  const auto refused = segments::fetch({told.address, 3}, told.id, Deadline::after(60s));
  REQUIRE(setrlimit(RLIMIT_NOFILE, &descriptors) == 0);
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == Code::kSystem);
  CHECK(refused.error().peer.value == -1);

  owner.signal(0, SIGSTOP);
  Status late;  // It stops a moment later.
  REQUIRE(eventually([&] {
    const auto got = segments::fetch({told.address, 3}, told.id, Deadline::after(300ms));
    if (!got) late = got.error();
    return !got;
  }));
  CHECK(late.error().code == Code::kTimeout);
  CHECK(contains(late.error().what, "rank 3"));
  CHECK(late.error().peer.value == 3);
  // A process that is told to stop waiting does so at once.
  const auto begin = std::chrono::steady_clock::now();
  const auto aborted =
      segments::fetch({told.address, 3, [] { return true; }}, told.id, Deadline::after(60s));
  REQUIRE_FALSE(aborted);
  CHECK(aborted.error().code == Code::kPeerFailed);
  CHECK(std::chrono::steady_clock::now() - begin < 20s);

  owner.signal(0, SIGKILL);
  CHECK(owner.wait(0) == 128 + SIGKILL);
  const auto dead = segments::fetch({told.address, 3}, told.id, Deadline::after(60s));
  REQUIRE_FALSE(dead);
  CHECK(dead.error().code == Code::kPeerFailed);
  CHECK(contains(dead.error().what, "rank 3"));
  CHECK(dead.error().peer.value == 3);
}

}  // namespace
}  // namespace tutti::test
