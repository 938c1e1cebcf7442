// Ranks whose calls differ get an error that names both calls: every rank that waits gets it in the
// call itself, one that only gives in its next call.
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"

namespace tutti {
namespace {

using test::DeviceCluster;
using test::said;
using Clock = std::chrono::steady_clock;

/// A call of one rank: a collective, or a message from rank 0 to rank 1.
struct Call {
  Collective collective = Collective::kAllReduce;
  int root = 0;
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 64;
  bool message = false;
  std::string to_string() const {
    return (message ? "message" : std::string(tutti::to_string(collective))) + " of " +
           std::to_string(count) + " " + std::string(tutti::to_string(type)) + " " +
           std::string(tutti::to_string(op)) + " root " + std::to_string(root);
  }
};

/// Whether a rank of two returns only once the other one has given it something.
bool waits(const Call& call, int rank) {
  if (call.message) return rank == 1;
  const CollectiveTraits traits = traits_of(call.collective);
  if (traits.root_input) return rank != call.root;
  if (is_scan(call.collective)) return rank > 0;
  return !traits.root_output || rank == call.root;
}

std::vector<Call> kinds(std::size_t count) {
  std::vector<Call> calls;
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
        Collective::kBroadcast, Collective::kReduce, Collective::kGather, Collective::kScatter,
        Collective::kAllToAll, Collective::kScan, Collective::kExclusiveScan}) {
    for (const int root : {0, 1}) {
      if (root == 0 || has_root(collective))
        calls.push_back({.collective = collective, .root = root});
    }
  }

  calls.push_back({.message = true});
  for (Call& call : calls) call.count = count;
  return calls;
}

/// A rank's memory, large enough for any of the calls.
constexpr std::size_t kBytes = std::size_t{1} << 20;

Status make(DeviceCommunicator& comm, const Call& call, const exec::CudaMemory& memory,
            cudaStream_t stream) {
  std::byte* const output = memory.data() + kBytes / 2;
  if (call.message) {
    return comm.rank().value == 0 ? comm.send(memory.data(), call.count, call.type, Rank{1}, stream)
                                  : comm.recv(output, call.count, call.type, Rank{0}, stream);
  }
  return comm.call({.collective = call.collective,
                    .input = memory.data(),
                    .output = output,
                    .count = call.count,
                    .type = call.type,
                    .reduction = Reduction(call.op),
                    .root = Rank{call.root}},
                   stream);
}

struct Outcome {
  std::string first, next;  // The errors after the call and after the next one.
  bool mismatch = true;     // Whether each error was a mismatch.
};

std::string finish(const DeviceCommunicator& comm, cudaStream_t stream, Outcome& outcome) {
  const std::string wrong = said(cudaStreamSynchronize(stream));
  const Status status = comm.check();
  if (!status && status.error().code != Code::kMismatch) outcome.mismatch = false;
  return wrong + said(status);
}

/// Rank 1 makes one call and all others make the other; then all make an all-reduce of a count that
/// no other call of the tests has. Returns what is wrong. With a network each rank stands for a
/// host; then an error may name the other rank without its call.
std::string differ(const Call& one, const Call& other, std::size_t ranks,
                   const std::string& network = "") {
  Settings settings = test::small_settings();
  settings.timeout = std::chrono::seconds(12);
  settings.transport = network;
  std::vector<int> devices{0, 1, 2};
  devices.resize(ranks);
  DeviceCluster cluster(devices, settings);
  if (!cluster.complaint.empty()) return cluster.complaint;
  std::vector<Outcome> outcomes(ranks);
  const auto begin = Clock::now();
  std::string wrong = each(cluster, [&](std::size_t rank) -> std::string {
    DeviceCommunicator& comm = cluster.comms[rank];
    auto memory = exec::CudaMemory::allocate(comm.device(), kBytes);
    if (!memory) return "no memory";
    const Call& mine = rank == 1 ? other : one;
    Outcome& outcome = outcomes[rank];
    if (!mine.message || rank < 2)
      outcome.first = said(make(comm, mine, *memory, cluster.streams[rank]));
    outcome.first += finish(comm, cluster.streams[rank], outcome);
    outcome.next = said(make(comm, {.count = 48}, *memory, cluster.streams[rank]));
    outcome.next += finish(comm, cluster.streams[rank], outcome);
    return "";
  });
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Outcome& outcome = outcomes[rank];
    const std::string name = "; rank " + std::to_string(rank);
    // With three ranks, the two that agree may be done with each other.
    const bool must = ranks == 2 && waits(rank == 1 ? other : one, static_cast<int>(rank));
    if (must && outcome.first.empty()) wrong += name + " was not told in the call";
    if (outcome.next.empty()) wrong += name + " was not told at its next call";
    if (!outcome.mismatch) wrong += name + " was told otherwise: " + outcome.first + outcome.next;
    // Between hosts the other rank's call may come too late to be named (docs/devices.md).
    const bool named = outcome.next.find("'s call 1, ") != std::string::npos;
    const bool alone = outcome.next.find(" met another call of rank ") != std::string::npos;
    if (!named && (network.empty() || !alone) && !one.message && !other.message)
      wrong += name + ": " + outcome.next;
  }
  if (Clock::now() - begin > std::chrono::seconds(10)) wrong += "; it took too long";
  return wrong;
}

void check_pair(const Call& one, const Call& other, std::size_t ranks,
                const std::string& network = "") {
  const std::string wrong = differ(one, other, ranks, network);
  if (wrong.empty()) return;
  INFO(ranks << " ranks" << (network.empty() ? "" : " over ") << network << ": " << one.to_string()
             << " against " << other.to_string());
  CHECK(wrong == "");
}

/// All pairs of kinds, or one in `one_in`; each with one of the counts. Both are chosen by the
/// seed: every combination would take minutes.
void check_kinds(std::size_t ranks, const std::vector<std::size_t>& counts, unsigned one_in = 1,
                 const std::string& network = "") {
  const std::uint32_t seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937 choice(seed);
  for (std::size_t a = 0; a < kinds(0).size(); ++a) {
    for (std::size_t b = 0; b < kinds(0).size(); ++b) {
      const std::size_t count = counts[choice() % counts.size()];
      if (a == b || choice() % one_in != 0) continue;
      const std::vector<Call> calls = kinds(count);
      check_pair(calls[a], calls[b], ranks, network);
    }
  }
  SUCCEED();
}

TEST_CASE("two ranks whose calls are of different kinds or roots are told so") {
  check_kinds(2, {1, 64, 2000, 20000});
}

TEST_CASE("a rank whose call is of another kind or root than that of two others is told so") {
  check_kinds(3, {2000}, 3);
}

TEST_CASE("between hosts, calls of different kinds or roots are an error on every rank") {
  check_kinds(2, {64, 2000}, 2, "tcp");
}

TEST_CASE("between hosts, long waits in calls that agree end well") {
  const std::uint32_t seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  Settings settings = test::small_settings();
  settings.transport = "tcp";
  DeviceCluster cluster({0, 1}, settings);
  REQUIRE(cluster.complaint == "");
  CHECK(each(cluster, [&](std::size_t rank) -> std::string {
          DeviceCommunicator& comm = cluster.comms[rank];
          auto memory = exec::CudaMemory::allocate(comm.device(), kBytes);
          if (!memory) return "no memory";
          std::mt19937 choice(seed), delay(seed + 1 + static_cast<std::uint32_t>(rank));
          const std::vector<Call> calls = kinds(2000);
          std::string wrong;
          for (int i = 0; i < 40; ++i) {
            // A message every other time, as it is what waits for a rank that may be far ahead.
            const std::size_t which =
                choice() % 2 == 0 ? calls.size() - 1 : choice() % calls.size();
            // Long enough for notes (kernels/cuda/calls.h), or not.
            std::this_thread::sleep_for(std::chrono::milliseconds(delay() % 100));
            wrong += said(make(comm, calls[which], *memory, cluster.streams[rank]));
          }
          return wrong + said(cudaStreamSynchronize(cluster.streams[rank])) + said(comm.check());
        }) == "");
}

TEST_CASE("ranks whose calls differ in count, type or operation are told so") {
  const std::size_t ranks = GENERATE(2, 3);
  const std::string network = GENERATE("", "tcp");
  for (const Collective collective : {Collective::kAllReduce, Collective::kBroadcast,
                                      Collective::kReduceScatter, Collective::kAllToAll}) {
    for (const std::size_t count : {1, 64, 2000, 20000}) {
      const Call call{.collective = collective, .count = count};
      Call other = call;
      for (const std::size_t more : {count + 1, 2 * count, count + 2139}) {
        other.count = more;
        check_pair(call, other, ranks, network);
      }
      other = call;
      other.type = DataType::kInt32;
      check_pair(call, other, ranks, network);
      other.type = DataType::kFloat16;
      other.count = 2 * count;  // As many bytes.
      check_pair(call, other, ranks, network);
      if (!reduces(collective)) continue;
      other = call;
      other.op = ReduceOp::kMax;
      check_pair(call, other, ranks, network);
      other.op = ReduceOp::kAvg;
      check_pair(call, other, ranks, network);
    }
  }
  SUCCEED();
}

TEST_CASE("messages of which the ends expect different sizes are told so") {
  for (const std::size_t sent : {1, 64, 2000, 20000}) {
    for (const std::size_t expected : {1, 64, 2000, 20000}) {
      if (sent == expected) continue;
      for (const char* network : {"", "tcp"})
        check_pair({.count = sent, .message = true}, {.count = expected, .message = true}, 2,
                   network);
    }
  }
  SUCCEED();
}

TEST_CASE("the deadline's error names the call of both ranks") {
  Settings settings = test::small_settings();
  settings.timeout = std::chrono::milliseconds(300);
  DeviceCluster cluster({0, 1}, settings);
  REQUIRE(cluster.complaint == "");
  std::vector<std::string> texts(2);
  CHECK(each(cluster, [&](std::size_t rank) -> std::string {
          DeviceCommunicator& comm = cluster.comms[rank];
          auto memory = exec::CudaMemory::allocate(comm.device(), kBytes);
          if (!memory) return "no memory";
          std::string wrong = said(make(comm, {.count = 77}, *memory, cluster.streams[rank]));
          wrong += said(cudaStreamSynchronize(cluster.streams[rank])) + said(comm.check());
          if (rank == 0) {
            wrong += said(make(comm, {.collective = Collective::kAllGather, .count = 5000}, *memory,
                               cluster.streams[rank]));
            wrong += said(cudaStreamSynchronize(cluster.streams[rank]));
            texts[0] = said(comm.check());
          }
          return wrong;
        }) == "");
  texts[1] = said(cluster.comms[1].check());
  for (const std::string& text : texts) {
    CAPTURE(text);
    CHECK(
        text.find("rank 0's call 2, all_gather of 5000 float32, waited too long for rank 1, whose "
                  "last is call 1, all_reduce of 77 float32 (sum)") != std::string::npos);
  }
}

TEST_CASE("a call that makes progress for longer than the deadline ends well") {
  Settings settings = test::small_settings();
  settings.timeout = std::chrono::milliseconds(250);
  DeviceCluster cluster({0, 1}, settings);
  REQUIRE(cluster.complaint == "");
  const std::size_t count = 3'000'000;  // Some seconds in rings of two slots of 2 KiB.
  const auto begin = Clock::now();
  CHECK(each(cluster, [&](std::size_t rank) -> std::string {
          DeviceCommunicator& comm = cluster.comms[rank];
          auto memory = exec::CudaMemory::allocate(comm.device(), count * 4);
          if (!memory) return "no memory";
          std::string wrong = said(comm.call({.collective = Collective::kAllReduce,
                                              .input = memory->data(),
                                              .output = memory->data(),
                                              .count = count,
                                              .type = DataType::kFloat32},
                                             cluster.streams[rank]));
          return wrong + said(cudaStreamSynchronize(cluster.streams[rank])) + said(comm.check());
        }) == "");
  CHECK(Clock::now() - begin > settings.timeout);
}

}  // namespace
}  // namespace tutti
