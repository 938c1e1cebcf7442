// Reads and writes of another process's memory: the right bytes, or an error that says why.
#include "transport/local/peer_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <random>
#include <vector>

#include "support/catch.h"
#include "support/processes.h"

namespace tutti {
namespace {

/// What a process tells of itself, by a pipe; it lives until it is killed.
struct Introduction {
  Peer peer;
  std::uint64_t mark = 0, data = 0;
};

constexpr std::size_t kBytes = 3 * 4096 + 5;  // And a page behind it that nobody may touch.

/// A process with kBytes bytes made from `seed`, at the end of what can be read.
class Owner {
 public:
  explicit Owner(std::uint64_t seed) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    process_.emplace(1, [&](int) -> std::string {
      auto* pages = static_cast<std::byte*>(
          mmap(nullptr, 5 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      std::byte* const data = pages + 4 * 4096 - kBytes;
      std::mt19937_64 random(seed);
      for (std::size_t i = 0; i < kBytes; ++i) data[i] = static_cast<std::byte>(random());
      munmap(pages + 4 * 4096, 4096);
      const Introduction mine{this_process(), own_mark(), reinterpret_cast<std::uintptr_t>(data)};
      if (write(ends[1], &mine, sizeof(mine)) != sizeof(mine)) return "can't write to a pipe";
      pause();
      return "";
    });
    REQUIRE(::read(ends[0], &said, sizeof(said)) == sizeof(said));
    close(ends[0]);
    close(ends[1]);
  }
  void end() {
    process_->signal(0, SIGKILL);
    process_->wait(0);
  }

  Introduction said;

 private:
  std::optional<test::Processes> process_;
};

TEST_CASE("any part of a process's memory is read as it is, and written") {
  const std::uint64_t seed = Catch::rngSeed();
  const Owner owner(seed);
  const PeerMemory memory(owner.said.peer, owner.said.mark);
  std::vector<std::byte> expected(kBytes);
  std::mt19937_64 random(seed);
  for (std::byte& byte : expected) byte = static_cast<std::byte>(random());
  if (const auto allowed = memory.try_out(); !allowed) {
    WARN("this system permits no reads and writes: " << allowed.error().what);
    return;
  }
  for (int i = 0; i < 100; ++i) {
    const std::size_t from = random() % kBytes, bytes = random() % (kBytes - from + 1);
    INFO("seed " << seed << ", " << bytes << " bytes from " << from);
    std::vector<std::byte> got(bytes + 1, std::byte{42});
    REQUIRE(memory.read(owner.said.data + from, got.data(), bytes));
    CHECK(std::equal(got.begin(), got.end() - 1,
                     expected.begin() + static_cast<std::ptrdiff_t>(from)));
    CHECK(got.back() == std::byte{42});
    // Written from there on, nothing around it changes.
    for (std::size_t k = 0; k < bytes; ++k)
      expected[from + k] = got[k] = static_cast<std::byte>(random());
    REQUIRE(memory.write(got.data(), owner.said.data + from, bytes));
    std::vector<std::byte> all(kBytes);
    REQUIRE(memory.read(owner.said.data, all.data(), kBytes));
    CHECK(all == expected);
  }
}

TEST_CASE("memory that is not there, wholly or in part, is an error") {
  const Owner owner(1);
  const PeerMemory memory(owner.said.peer, owner.said.mark);
  if (!memory.try_out()) return;
  std::vector<std::byte> got(2 * kBytes);
  for (const auto& [from, bytes] : std::vector<std::pair<std::uint64_t, std::size_t>>{
           {owner.said.data, kBytes + 1},  // One byte on a page that is not there.
           {owner.said.data + kBytes, 1},
           {1, 8},
           {~std::uint64_t{0} - 4, 8}}) {
    INFO(bytes << " bytes at " << from);
    const auto status = memory.read(from, got.data(), bytes);
    REQUIRE_FALSE(status);
    CHECK(status.error().code == Code::kSystem);
    CHECK_THAT(status.error().what, Catch::Contains("can't be read"));
    const auto written = memory.write(got.data(), from, bytes);
    REQUIRE_FALSE(written);
    CHECK(written.error().code == Code::kSystem);
    CHECK_THAT(written.error().what, Catch::Contains("can't be written"));
  }
}

TEST_CASE("a process that has ended is not touched, nor one that has its number") {
  Owner owner(1);
  Peer other = owner.said.peer;
  other.process[0] ^= 1;
  std::byte got{};
  if (!PeerMemory(owner.said.peer, owner.said.mark).read(owner.said.data, &got, 1)) return;
  const auto stranger = PeerMemory(other, owner.said.mark).read(owner.said.data, &got, 1);
  REQUIRE_FALSE(stranger);
  CHECK(stranger.error().code == Code::kPeerFailed);
  const auto to_stranger = PeerMemory(other, owner.said.mark).write(&got, owner.said.data, 1);
  REQUIRE_FALSE(to_stranger);
  CHECK(to_stranger.error().code == Code::kPeerFailed);
  owner.end();
  const auto dead = PeerMemory(owner.said.peer, owner.said.mark).read(owner.said.data, &got, 1);
  REQUIRE_FALSE(dead);
  CHECK(dead.error().code == Code::kPeerFailed);
  const auto to_dead = PeerMemory(owner.said.peer, owner.said.mark).write(&got, owner.said.data, 1);
  REQUIRE_FALSE(to_dead);
  CHECK(to_dead.error().code == Code::kPeerFailed);
}

}  // namespace
}  // namespace tutti
