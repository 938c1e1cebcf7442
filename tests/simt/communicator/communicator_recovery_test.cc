// What ranks of devices that are left do after a failure: health, revoke, agree, shrink, grow.
// Processes that are killed: communicator_recovery_processes_test, nccl/processes_test.
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <optional>
#include <stop_token>
#include <thread>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "support/processes.h"

namespace tutti {
namespace {

using test::DeviceCluster;
using test::said;
using test::small_settings;
using test::sum_up;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Empty if the call failed in that way.
template <class Outcome>
std::string fails_as(const Outcome& outcome, Code code, const std::string& part = "") {
  if (outcome) return "it did not fail; ";
  if (outcome.error().code == code && has(outcome.error().what, part)) return "";
  return outcome.error().to_string() + "; ";
}

TEST_CASE("after a revoke all ranks agree, and shrink to all of them or to some") {
  DeviceCluster cluster({0, 1, 2});
  REQUIRE(cluster.complaint.empty());
  std::barrier<> summed(3);
  CHECK(test::each(cluster, [&](std::size_t rank) {
          DeviceCommunicator& comm = cluster.comms[rank];
          std::string wrong = sum_up(comm) + said(comm.health());
          summed.arrive_and_wait();
          if (rank == 1) comm.revoke("new ranks");
          if (!test::eventually([&] { return !comm.check(); })) return wrong + "no end";
          wrong += fails_as(comm.check(), Code::kRevoked, "new ranks");
          wrong += fails_as(comm.health(), Code::kRevoked, "new ranks");
          const auto flags = comm.agree(8U | 1U << rank);
          if (!flags || *flags != 8) wrong += "other flags; ";
          auto all = comm.shrink();
          if (!all) return wrong + all.error().to_string();
          if (all->members != std::vector{Rank{0}, Rank{1}, Rank{2}}) wrong += "other members; ";
          wrong += sum_up(all->communicator);
          if (rank == 0) return wrong;
          const Rank out{0};
          auto less = all->communicator.shrink(std::span(&out, 1));
          if (!less) return wrong + less.error().to_string();
          if (less->communicator.rank().value != static_cast<int>(rank) - 1) wrong += "its rank; ";
          return wrong + sum_up(less->communicator);
        }) == "");
}

/// How many all-reduces a rank puts on its stream.
std::string start_sums(DeviceCommunicator& comm, cudaStream_t stream, const test::DeviceCase& one,
                       int times) {
  std::string wrong;
  for (int call = 0; call < times; ++call) wrong += one.start(comm, stream);
  return wrong;
}

TEST_CASE("a shrunk communicator says how many collectives all members completed") {
  const std::size_t count = GENERATE(100, 30000);
  const bool aborted = GENERATE(false, true);
  INFO(count << (aborted ? ", aborted" : ", at the deadline"));
  Settings settings = small_settings();
  if (!aborted) settings.timeout = std::chrono::seconds(5);
  DeviceCluster cluster({0, 1, 2}, settings);
  REQUIRE(cluster.complaint.empty());
  // Rank 0 is ahead of the others, and rank 2 behind them: rank 2's third call is never made.
  constexpr std::array kCalls{6, 5, 2};
  CHECK(test::each(cluster, [&](std::size_t rank) {
          DeviceCommunicator& comm = cluster.comms[rank];
          const test::DeviceCase one(test::all_reduce_of(count, 3), rank, comm.device(), 1);
          std::string wrong = start_sums(comm, cluster.streams[rank], one, kCalls[rank]);
          if (rank == 2) {
            wrong += said(comm.wait());
            if (aborted) comm.revoke("new ranks");
          }
          if (!test::eventually([&] { return !comm.check(); }, std::chrono::seconds(60)))
            return wrong + "no end";
          wrong += said(cudaStreamSynchronize(cluster.streams[rank]));
          auto left = comm.shrink();
          if (!left) return wrong + left.error().to_string();
          if (left->completed != 2) wrong += std::to_string(left->completed) + " completed; ";
          if (left->members.size() != 3) wrong += "other members; ";
          wrong += sum_up(left->communicator);
          // The new one counts anew; all that is on streams counts where nothing has failed.
          auto again = left->communicator.shrink();
          if (!again) return wrong + again.error().to_string();
          if (again->completed != 1) wrong += std::to_string(again->completed) + " later; ";
          return wrong;
        }) == "");
}

TEST_CASE("calls that still run when ranks shrink are not counted as completed") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint.empty());
  std::barrier<> shrunk(2);
  CHECK(test::each(cluster, [&](std::size_t rank) {
          DeviceCommunicator& comm = cluster.comms[rank];
          const test::DeviceCase one(test::all_reduce_of(3000, 2), rank, comm.device(), 1);
          cudaStream_t stream = cluster.streams[rank];
          std::string wrong = start_sums(comm, stream, one, rank == 0 ? 3 : 2);
          if (rank == 1) wrong += said(comm.wait());
          auto left = comm.shrink();  // Rank 0's third call waits for rank 1's.
          if (!left) return wrong + left.error().to_string();
          if (left->completed > 2) wrong += std::to_string(left->completed) + " completed; ";
          shrunk.arrive_and_wait();
          if (rank == 1) wrong += start_sums(comm, stream, one, 1);
          wrong += one.finish(comm, stream);
          auto all = comm.shrink();
          if (!all) return wrong + all.error().to_string();
          return all->completed == 3 ? wrong : std::to_string(all->completed) + " completed";
        }) == "");
}

TEST_CASE("a shrunk communicator has the settings of the one before, or its own") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint.empty());
  CHECK(test::each(cluster, [&](std::size_t rank) {
          Settings more = small_settings();
          more.lanes = 3;
          for (const auto& [settings, lanes] :
               {std::pair<const Settings*, const char*>{nullptr, "2"}, {&more, "3"}}) {
            auto made = cluster.comms[rank].shrink({}, {settings, {}});
            if (!made) return made.error().to_string();
            if (!has(made->communicator.describe(), std::string("; ") + lanes + " lanes"))
              return made->communicator.describe();
          }
          return std::string();
        }) == "");
}

TEST_CASE("a shrink that a rank gives up ends for all, also for those that come later") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint.empty());
  for (const bool late : {false, true}) {
    std::stop_source stop;
    if (late) stop.request_stop();
    std::atomic<bool> over{false};
    CHECK(test::each(cluster, [&](std::size_t rank) {
            DeviceCommunicator& comm = cluster.comms[rank];
            const bool quits = rank == 0;
            std::optional<std::jthread> quitter;
            if (quits && !late) {
              quitter.emplace([&] {
                std::this_thread::sleep_for(std::chrono::milliseconds(20));
                stop.request_stop();
              });
            }
            while (!quits && late && !over) std::this_thread::yield();
            if (!quits && !late) {  // Rank 0 waits for this one, until it gives up.
              while (!stop.stop_requested()) std::this_thread::yield();
            }
            const auto made =
                comm.shrink({}, {nullptr, quits ? stop.get_token() : std::stop_token()});
            over = over || quits;
            std::string wrong = fails_as(made, Code::kAborted, "gave the communicator up");
            return wrong.empty() ? said(comm.health()) : wrong;
          }) == "");
  }
  CHECK(test::each(cluster, [&](std::size_t rank) {  // All are at the same one again.
          auto made = cluster.comms[rank].shrink();
          return made ? sum_up(made->communicator) : made.error().to_string();
        }) == "");
}

TEST_CASE("ranks of devices that call different functions are told so") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint.empty());
  for (int round = 0; round < 40; ++round) {  // Now the one, now the other sees it first.
    CHECK(test::each(cluster, [&](std::size_t rank) {
            DeviceCommunicator& comm = cluster.comms[rank];
            if (rank == 0) return fails_as(comm.shrink(), Code::kMismatch, "rank 1 called agree");
            return fails_as(comm.agree(1), Code::kMismatch, "rank 0 called shrink");
          }) == "");
  }
}

TEST_CASE("one rank shares an id, and new ranks come") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint.empty());
  std::barrier<> failed(2);
  const auto id = make_unique_id();
  REQUIRE(id);
  std::jthread late([&] {
    auto comm = DeviceCommunicator::create(*id, Rank{2}, 3, test::device_of(2), small_settings());
    CHECK(comm);
    if (comm) CHECK(sum_up(*comm) == "");
  });
  CHECK(test::each(cluster, [&](std::size_t rank) {
          DeviceCommunicator& comm = cluster.comms[rank];
          std::string wrong = fails_as(comm.share_id(nullptr), Code::kInvalidArgument, "0 ranks");
          failed.arrive_and_wait();  // Its next call would tell a late rank that this one is over.
          wrong += fails_as(comm.share_id(&*id), Code::kInvalidArgument, "2 ranks");
          failed.arrive_and_wait();
          wrong += fails_as(comm.grow(*id, 1), Code::kInvalidArgument, "fewer");
          const auto told = comm.share_id(rank == 1 ? &*id : nullptr);
          if (!told || told->bytes != id->bytes) return wrong + "another id";
          auto grown = comm.grow(*told, 3);
          return wrong + (grown ? sum_up(*grown) : grown.error().to_string());
        }) == "");
}

}  // namespace
}  // namespace tutti
