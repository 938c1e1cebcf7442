// Communicators of devices behind NVSwitches whose ranks are processes: they share multicast
// memory, and one that dies while it is made is named.
#include <unistd.h>

#include <random>
#include <string>

#include "simt/communicator/multicast_cases.h"
#include "simt/runtime_multicast.h"
#include "support/catch.h"
#include "support/processes.h"

namespace tutti {
namespace {

using test::Case;
using test::case_of;
using test::DeviceCase;
using test::kTaken;
using test::settings_of;

/// One rank's life in a process of its own.
std::string live(const std::string& meeting, int rank, int ranks, std::uint64_t seed,
                 Contract contract) {
  const auto rendezvous = file_rendezvous(meeting, "multicast");
  if (!rendezvous) return rendezvous.error().to_string();
  const int device = 1 + rank;
  auto comm = DeviceCommunicator::create(**rendezvous, Rank{rank}, ranks, device,
                                         settings_of("nvls", contract));
  if (!comm) return comm.error().to_string();
  if (const std::string text = comm->describe();
      text.find("\nmulticast memory: ") == std::string::npos)
    return text;
  const cudaStream_t stream = test::new_stream(device);
  std::mt19937_64 random(seed);  // The same in all.
  std::string complaint;
  for (const Collective collective : kTaken) {
    const Case test = case_of(collective, ranks, random, contract == Contract::kRelaxed);
    const DeviceCase one(test, static_cast<std::size_t>(rank), device, random());
    if (complaint.empty()) complaint = one.start(*comm, stream);
    if (complaint.empty()) complaint = one.finish(*comm, stream);
  }
  if (!complaint.empty()) comm->abort(complaint);  // The others are not to wait.
  return complaint;
}

TEST_CASE("ranks in processes share multicast memory") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  for (const Contract contract : {Contract::kDeterministic, Contract::kRelaxed}) {
    const test::ScratchDirectory meeting;
    test::Processes all(3, [&](int rank) { return live(meeting.path(), rank, 3, seed, contract); });
    for (int rank = 0; rank < 3; ++rank) CHECK(all.wait(rank) == 0);
  }
}

TEST_CASE("a rank that dies while multicast memory is made is named") {
  const test::ScratchDirectory meeting;
  constexpr int kDead = 77;
  test::Processes all(3, [&](int rank) -> std::string {
    if (rank == 2) simt::set_multicast_hook([](int) { _exit(kDead); });
    const auto rendezvous = file_rendezvous(meeting.path(), "multicast");
    if (!rendezvous) return rendezvous.error().to_string();
    const auto comm = DeviceCommunicator::create(**rendezvous, Rank{rank}, 3, 1 + rank,
                                                 settings_of("nvls", Contract::kRelaxed));
    if (comm) return "it was made without rank 2";
    const std::string text = comm.error().to_string();
    return text.find("rank 2") != std::string::npos ? "" : text;
  });
  CHECK(all.wait(0) == 0);
  CHECK(all.wait(1) == 0);
  CHECK(all.wait(2) == kDead);
}

}  // namespace
}  // namespace tutti
