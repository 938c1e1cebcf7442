// A rank among those of several hosts, met as its launcher says: every collective by every
// algorithm, of plain and of mapped buffers, in place and not, bit for bit; for tests that start it
// on several hosts (mapped_test.sh). Rank 0 says what was run; a rank that finds something wrong
// says that and ends with 1.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <thread>

#include "algorithms/algorithm.h"
#include "support/cluster.h"
#include "support/kinds.h"

namespace tutti::test {
namespace {

/// As every rank draws it.
Case random_case(std::mt19937_64& random, Collective collective, int ranks) {
  constexpr std::size_t kCounts[] = {1, 5, 300, 5000, 40001};
  Case test;
  test.collective = collective;
  test.ranks = ranks;
  do {
    test.type = all_types()[random() % all_types().size()];
    test.op = all_ops()[random() % all_ops().size()];
  } while (!is_supported(test.type, test.op));
  test.count = kCounts[random() % std::size(kCounts)];
  test.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  test.in_place = random() % 2 == 0;
  test.misalign = random() % 3 == 0 ? size_of(test.type) * (random() % 8) : 0;
  return test;
}

/// Whether an algorithm can be asked for here; if it can't, no rank makes the call.
bool is_taken(Communicator& comm, const Algorithm& algorithm) {
  Case test{.collective = algorithm.collective, .ranks = comm.rank_count()};
  test.algorithm = algorithm.name;
  const auto status = call(comm, test, nullptr, nullptr);
  return status || status.error().code != Code::kInvalidArgument;
}

std::string run_all(Communicator& comm, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  int taken = 0;
  for (const Algorithm* algorithm : algorithms()) {
    if (!is_taken(comm, *algorithm)) continue;
    ++taken;
    for (int i = 0; i < 4; ++i) {
      Case test = random_case(random, algorithm->collective, comm.rank_count());
      test.mapped = i % 2 == 0;
      test.algorithm = algorithm->name;
      if (auto wrong = run_case(comm, test, random()); !wrong.empty()) return wrong;
    }
  }
  if (comm.rank().value == 0) std::printf("%d algorithms\n%s", taken, comm.describe().c_str());
  return taken > 20 ? "" : "only " + std::to_string(taken) + " algorithms";
}

/// Blocks that differ in size: rank r has r + s + 1 times 1000 bytes for rank s, of its number.
std::string exchange_vector(Communicator& comm) {
  const auto ranks = static_cast<std::size_t>(comm.rank_count());
  const auto me = static_cast<std::size_t>(comm.rank().value);
  std::vector<std::size_t> counts(ranks), offsets(ranks);
  std::size_t bytes = 0;
  for (std::size_t other = 0; other < ranks; ++other) {
    counts[other] = 1000 * (me + other + 1);
    offsets[other] = bytes;
    bytes += counts[other];
  }
  const Memory in(bytes, true, 0), out(bytes, true, 0);
  std::memset(in.data(), static_cast<int>(me), bytes);
  const Blocks blocks{counts, offsets};
  if (auto done = comm.all_to_all_v(in.data(), blocks, out.data(), blocks, DataType::kUint8); !done)
    return done.error().to_string();
  for (std::size_t other = 0; other < ranks; ++other) {
    for (std::size_t i = 0; i < counts[other]; ++i) {
      if (out.data()[offsets[other] + i] != std::byte(other)) return "a wrong uneven block";
    }
  }
  return "";
}

/// Messages to and from all others, of mapped memory.
std::string send_all(Communicator& comm) {
  constexpr std::size_t kBytes = 100'000;
  const int ranks = comm.rank_count(), me = comm.rank().value;
  const Memory out(kBytes, true, 0), in(kBytes, true, 0);
  std::memset(out.data(), me + 1, kBytes);
  for (int hop = 1; hop < ranks; ++hop) {
    const int to = (me + hop) % ranks, from = (me + ranks - hop) % ranks;
    auto sent = comm.start_send(out.data(), kBytes, DataType::kUint8, Rank{to});
    if (!sent) return sent.error().to_string();
    if (auto got = comm.recv(in.data(), kBytes, DataType::kUint8, Rank{from}); !got)
      return got.error().to_string();
    if (auto left = sent->wait(); !left) return left.error().to_string();
    if (in.data()[kBytes - 1] != std::byte(from + 1)) return "a wrong message";
  }
  return "";
}

/// Waits for a file "go" in the folder. Then makes the last calls before this rank leaves, and
/// leaves at once.
std::string call_and_leave(Communicator comm, const std::string& folder) {
  if (auto status = comm.barrier(); !status) return status.error().to_string();
  std::ofstream(folder + "/ready." + std::to_string(comm.rank().value)).put('\n');
  while (!std::filesystem::exists(folder + "/go"))
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  for (int i = 0; i < 12; ++i) {
    if (auto status = comm.barrier(); !status) return status.error().to_string();
  }
  return "";
}

}  // namespace
}  // namespace tutti::test

// hosts_rank [SEED]; hosts_rank leave FOLDER
int main(int argc, char** argv) {
  if (argc == 3 && std::string_view(argv[1]) == "leave") {
    auto comm = tutti::Communicator::from_environment();
    const std::string error =
        comm ? tutti::test::call_and_leave(*std::move(comm), argv[2]) : comm.error().to_string();
    std::printf("%s\n", error.empty() ? "ok" : error.c_str());
    return error.empty() ? 0 : 1;
  }
  const std::uint64_t seed = argc > 1 ? std::stoull(argv[1]) : 1;
  auto comm = tutti::Communicator::from_environment();
  std::string error = comm ? "" : comm.error().to_string();
  if (error.empty()) error = tutti::test::run_all(*comm, seed);
  if (error.empty()) error = tutti::test::exchange_vector(*comm);
  if (error.empty()) error = tutti::test::send_all(*comm);
  if (error.empty()) {
    auto part = comm->split(comm->rank().value / 3, 0);  // Not as the hosts are.
    error = part ? tutti::test::run_all(*part, seed + 1) : part.error().to_string();
  }
  if (error.empty()) return 0;
  std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed), error.c_str());
  return 1;
}
