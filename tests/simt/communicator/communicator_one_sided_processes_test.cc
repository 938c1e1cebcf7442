// One-sided operations and copy engines between processes, and what becomes of waits for a process
// that is killed.
#include <chrono>
#include <csignal>
#include <string>
#include <vector>

#include <unistd.h>

#include "simt/communicator/one_sided_ring.h"
#include "support/catch.h"
#include "support/processes.h"

namespace tutti {
namespace {

using test::said;

Result<DeviceCommunicator> join_ranks(const test::ScratchDirectory& meeting, int rank, int ranks,
                                      const std::string& algorithm = "") {
  TUTTI_TRY(const auto rendezvous, file_rendezvous(meeting.path(), "one_sided"));
  Settings settings = test::small_settings();
  settings.timeout = std::chrono::seconds(60);
  settings.algorithm = algorithm;
  return DeviceCommunicator::create(*rendezvous, Rank{rank}, ranks, test::device_of(rank),
                                    settings);
}

TEST_CASE("processes put into each other's windows") {
  const test::ScratchDirectory meeting;
  test::Processes all(3, [&](int rank) -> std::string {
    auto comm = join_ranks(meeting, rank, 3);
    if (!comm) return comm.error().to_string();
    return test::pass_around(*comm, test::new_stream(comm->device()), 8);
  });
  for (int rank = 0; rank < 3; ++rank) CHECK(all.wait(rank) == 0);
}

TEST_CASE("a wait for a rank that is killed ends long before the deadline") {
  const test::ScratchDirectory meeting;
  test::Processes all(2, [&](int rank) -> std::string {
    auto comm = join_ranks(meeting, rank, 2);
    if (!comm) return comm.error().to_string();
    const cudaStream_t stream = test::new_stream(comm->device());
    test::say_ready(meeting, rank);
    if (rank == 1) {
      while (!test::all_ready(meeting, 2)) usleep(1000);
      kill(getpid(), SIGKILL);
    }
    for (int i = 0; i < 3; ++i) {
      const std::string wrong = said(comm->wait_signal(Rank{1}, i, 1, stream));
      if (!wrong.empty()) return wrong;
    }
    auto data = exec::CudaMemory::allocate(comm->device(), 64);
    if (!data) return data.error().to_string();
    // Pageable: from here on nobody else can launch anything on the device.
    std::vector<std::byte> list(64);
    std::string wrong =
        said(cudaMemcpyAsync(list.data(), data->data(), list.size(), cudaMemcpyDefault, stream));
    wrong += said(cudaStreamSynchronize(stream));
    const Status found = comm->check();
    const bool told =
        !found && found.error().code == Code::kPeerFailed && found.error().peer.value == 1;
    return told ? wrong : "another end: " + said(found);
  });
  CHECK(all.wait(1) == 128 + SIGKILL);
  CHECK(all.wait(0) == 0);
}

TEST_CASE("processes copy from each other by copy engines, until one is killed") {
  const test::ScratchDirectory meeting;
  test::Processes all(3, [&](int rank) -> std::string {
    auto comm = join_ranks(meeting, rank, 3, "copy_engines");
    if (!comm) return comm.error().to_string();
    const cudaStream_t stream = test::new_stream(comm->device());
    test::Case test;
    test.collective = Collective::kAllGather;
    test.ranks = 3;
    test.count = 3000;
    const test::DeviceCase mine(test, static_cast<std::size_t>(rank), comm->device(), 1);
    std::string wrong;
    for (const auto* memory : {&mine.buffers().input_memory, &mine.buffers().output_memory})
      wrong += said(comm->register_memory(memory->data(), memory->size()));
    for (int i = 0; i < 4; ++i) wrong += mine.start(*comm, stream);
    wrong += mine.finish(*comm, stream);
    if (comm->describe().find(": copy_engines") == std::string::npos) wrong += "by a kernel";
    test::say_ready(meeting, rank);
    if (rank == 1) {
      while (!test::all_ready(meeting, 3)) usleep(1000);
      kill(getpid(), SIGKILL);
    }
    wrong += mine.start(*comm, stream);
    wrong += said(cudaStreamSynchronize(stream));
    const Status found = comm->check();
    const bool told =
        !found && found.error().code == Code::kPeerFailed && found.error().peer.value == 1;
    return told ? wrong : "another end: " + said(found) + wrong;
  });
  CHECK(all.wait(1) == 128 + SIGKILL);
  for (const int rank : {0, 2}) CHECK(all.wait(rank) == 0);
}

}  // namespace
}  // namespace tutti
