// Ranks of devices, each a process, of which some are killed while the others shrink.
#include <chrono>
#include <csignal>
#include <optional>
#include <thread>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "support/processes.h"

namespace tutti {
namespace {

using test::small_settings;
using test::sum_up;

/// Rank 3 of four dies, and rank 1 so many milliseconds after the others have begun to shrink.
std::string lose_two(int rank, int later_ms, const std::string& place) {
  const auto rendezvous = file_rendezvous(place, "recovery");
  if (!rendezvous) return rendezvous.error().to_string();
  Settings settings = small_settings();
  settings.timeout = std::chrono::seconds(60);
  auto comm =
      DeviceCommunicator::create(**rendezvous, Rank{rank}, 4, test::device_of(rank), settings);
  if (!comm) return comm.error().to_string();
  if (std::string wrong = sum_up(*comm); !wrong.empty()) return wrong;
  if (rank == 3) raise(SIGKILL);
  static_cast<void>(sum_up(*comm));  // It fails on all, or rank 3 had done its part.
  std::optional<std::jthread> killer;
  if (rank == 1) {
    killer.emplace([later_ms] {
      std::this_thread::sleep_for(std::chrono::milliseconds(later_ms));
      raise(SIGKILL);
    });
  }
  // Whether rank 1 is in it or not, two ranks are left in the end.
  for (int round = 0; round < 10; ++round) {
    auto made = comm->shrink();
    if (!made) return made.error().to_string();
    comm = std::move(made->communicator);
    const std::string wrong = sum_up(*comm);
    if (comm->rank_count() == 2) return wrong;
  }
  return "it has never got to two ranks";
}

TEST_CASE("ranks that die while others shrink are left out") {
  // Slower machines are earlier in it at each of these.
  const int later_ms = GENERATE(0, 3, 10, 20, 40, 80);
  const test::ScratchDirectory directory;
  test::Processes ranks(4, [&](int rank) { return lose_two(rank, later_ms, directory.path()); });
  for (const int rank : {0, 1, 2, 3}) {
    INFO("rank " << rank << " of those where rank 1 is killed after " << later_ms << " ms");
    CHECK((ranks.wait(rank) == 0) == (rank % 2 == 0));
  }
}

}  // namespace
}  // namespace tutti
