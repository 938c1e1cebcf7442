// Plain buffers that peers read and write: right bits, with every algorithm; errors where a buffer
// or a peer is gone; slots where the system permits no reads.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <cstddef>
#include <random>

#include "algorithms/algorithm.h"
#include "support/catch.h"
#include "support/cluster.h"
#include "support/processes.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// From now on this process gets EPERM for this system call, as in a container that forbids it.
bool forbid(std::uint32_t call) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

bool reads(const Communicator& comm) { return contains(comm.describe(), "peers: read"); }

/// Collectives that copy, by every algorithm of theirs.
std::string run_all(Communicator& comm, std::uint64_t seed) {
  std::mt19937_64 random(seed);  // The same on every rank.
  for (const Algorithm* algorithm : algorithms()) {
    const plan::Shape shape{algorithm->collective, comm.rank_count(), 0, 1};
    if (reduces(algorithm->collective) || !algorithm->applies(shape)) continue;
    for (const int count : {1, 40001}) {
      Case test;
      test.collective = algorithm->collective;
      test.ranks = comm.rank_count();
      test.count = static_cast<std::size_t>(count);
      test.root = static_cast<int>(random() % static_cast<unsigned>(test.ranks));
      test.in_place = random() % 2 == 0;
      test.mapped = count == 1 && random() % 2 == 0;  // Every algorithm has plain buffers once.
      if (auto wrong = run_case(comm, test, random()); !wrong.empty())
        return std::string(algorithm->name) + ": " + wrong;
    }
  }
  return "";
}

TEST_CASE(
    "where the kernel gets at peers plain buffers need no slots, and where one can't none is") {
  const std::uint64_t seed = Catch::rngSeed();
  std::size_t checked = 0;
  for (const Algorithm* algorithm : algorithms()) checked += !reduces(algorithm->collective);
  REQUIRE(checked > 0);
  for (const int ranks : {2, 3, 5}) {
    for (const std::uint32_t forbidden : {0, SYS_process_vm_readv, SYS_process_vm_writev}) {
      if (forbidden == SYS_process_vm_writev && ranks != 3) continue;  // Once is enough.
      INFO("seed " << seed << ", " << ranks << " ranks, forbidden to one: " << forbidden);
      const ScratchDirectory meeting;
      Processes processes(ranks, [&](int rank) -> std::string {
        if (forbidden != 0 && rank == ranks - 1 && !forbid(forbidden)) return "";
        Settings settings;
        settings.read_from_bytes = 1;
        auto comm = join(meeting, rank, ranks, settings);
        if (!comm) return comm.error().to_string();
        if (forbidden != 0 && reads(*comm)) return "gets at peers, which one rank is forbidden";
        if (auto wrong = run_all(*comm, seed); !wrong.empty()) return wrong;
        const bool read = contains(comm->describe(), "+read");
        const bool write = contains(comm->describe(), "+write");
        const bool share = contains(comm->describe(), "+share");
        return read == reads(*comm) && (write || share) == read && (ranks == 2 || !share)
                   ? ""
                   : "a plan for the wrong access: " + comm->describe();
      });
      for (int rank = 0; rank < ranks; ++rank) CHECK(processes.wait(rank) == 0);
    }
  }
}

TEST_CASE("of two ranks the root does half of what it has in place") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  for (const bool in_place : {true, false}) {
    const ScratchDirectory meeting;
    Processes processes(2, [&](int rank) -> std::string {
      Settings settings;
      settings.read_from_bytes = 1;
      auto comm = join(meeting, rank, 2, settings);
      if (!comm) return comm.error().to_string();
      for (const Collective collective :
           {Collective::kBroadcast, Collective::kGather, Collective::kScatter}) {
        for (const std::size_t count : {std::size_t{1} << 14, (std::size_t{1} << 20) + 7}) {
          Case test;
          test.collective = collective;
          test.ranks = 2;
          test.count = count;
          test.root = static_cast<int>(count % 2);
          test.in_place = in_place;
          if (auto wrong = run_case(*comm, test, seed); !wrong.empty()) return wrong;
        }
      }
      if (!reads(*comm)) return "";
      const bool share = contains(comm->describe(), "+share");
      return share == in_place ? "" : "a plan for the wrong access: " + comm->describe();
    });
    CHECK(processes.wait(0) == 0);
    CHECK(processes.wait(1) == 0);
  }
}

TEST_CASE("one setting keeps ranks from reading") {
  const ScratchDirectory meeting;
  Processes processes(2, [&](int rank) -> std::string {
    Settings settings;
    settings.read_from_bytes = SIZE_MAX;
    auto comm = join(meeting, rank, 2, settings);
    if (!comm) return comm.error().to_string();
    if (auto wrong = run_all(*comm, 1); !wrong.empty()) return wrong;
    const std::string text = comm->describe();
    return contains(text, "+read") || contains(text, "+write") ? "a plan that reads" : "";
  });
  CHECK(processes.wait(0) == 0);
  CHECK(processes.wait(1) == 0);
}

TEST_CASE("a buffer that ends too early is an error on all ranks, and no crash") {
  constexpr std::size_t kCount = 1 << 20;
  const ScratchDirectory meeting;
  Processes processes(3, [&](int rank) -> std::string {
    Settings settings;
    settings.read_from_bytes = 1;
    auto comm = join(meeting, rank, 3, settings);
    if (!comm) return comm.error().to_string();
    if (!reads(*comm)) return "";
    // The last block is missing: of rank 2, which reads it.
    auto* input = static_cast<std::byte*>(
        mmap(nullptr, 3 * kCount, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(input + 2 * kCount, kCount);
    std::vector<std::byte> output(kCount);
    Status status = comm->scatter(input, output.data(), kCount, DataType::kUint8, Rank{0});
    if (rank == 1 && status) status = comm->barrier();  // Its block was there.
    if (status) return "no error";
    const std::string error = status.error().to_string();
    return contains(error, "rank 0 has 1048576 bytes at") && contains(error, "can't be read")
               ? ""
               : "unexpected: " + error;
  });
  for (int rank = 0; rank < 3; ++rank) CHECK(processes.wait(rank) == 0);
}

TEST_CASE("an output that ends too early is an error on all ranks too") {
  constexpr std::size_t kCount = 1 << 20;
  const ScratchDirectory meeting;
  Processes processes(3, [&](int rank) -> std::string {
    Settings settings;
    settings.read_from_bytes = 1;
    auto comm = join(meeting, rank, 3, settings);
    if (!comm) return comm.error().to_string();
    if (!reads(*comm)) return "";
    // The last block is missing: that of rank 2, which writes it.
    auto* output = static_cast<std::byte*>(
        mmap(nullptr, 3 * kCount, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    munmap(output + 2 * kCount, kCount);
    const std::vector<std::byte> input(kCount);
    Status status = comm->gather(input.data(), output, kCount, DataType::kUint8, Rank{0});
    if (rank == 1 && status) status = comm->barrier();  // Its block was there.
    if (status) return "no error";
    const std::string error = status.error().to_string();
    return contains(error, "rank 0 has 1048576 bytes at") && contains(error, "can't be written")
               ? ""
               : "unexpected: " + error;
  });
  for (int rank = 0; rank < 3; ++rank) CHECK(processes.wait(rank) == 0);
}

TEST_CASE("a rank killed while others read it ends them, by name") {
  const ScratchDirectory meeting;
  Processes processes(3, [&](int rank) -> std::string {
    auto comm = join(meeting, rank, 3);
    if (!comm) return comm.error().to_string();
    std::vector<std::byte> mine(1 << 20), all(3 << 20);
    for (bool first = true;;) {
      const auto status = comm->all_gather(mine.data(), all.data(), mine.size(), DataType::kUint8);
      if (status) {
        if (std::exchange(first, false)) say_ready(meeting, rank);
        continue;
      }
      const std::string error = status.error().to_string();
      return contains(error, "rank 1") && contains(error, "peer failed") ? ""
                                                                         : "unexpected: " + error;
    }
  });
  REQUIRE(all_ready(meeting, 3));
  processes.signal(1, SIGKILL);
  CHECK(processes.wait(0, 10s) == 0);
  CHECK(processes.wait(2, 10s) == 0);
}

}  // namespace
}  // namespace tutti::test
