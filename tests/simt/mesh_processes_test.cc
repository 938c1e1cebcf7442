// Ranks that are processes, with a device each: they map each other's rings by IPC handles, and get
// what ranks in one process get.
#include <sys/mman.h>

#include <atomic>
#include <new>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "algorithms/algorithm.h"
#include "simt/device_ranks.h"
#include "simt/engine.h"
#include "support/catch.h"
#include "support/processes.h"

namespace tutti {
namespace {

using test::Case;
using test::DeviceRanks;
using test::said;

constexpr int kMostRanks = 8;

/// What the processes of a test share.
struct Meeting {
  exec::CudaMeshHandle handles[kMostRanks];
  std::atomic<int> arrived{0};

  /// The `round`-th time, from 1, that all meet.
  void wait(int ranks, int round) {
    // Both ways: what was written before is seen by whoever goes on.
    arrived.fetch_add(1, std::memory_order_acq_rel);
    while (arrived.load(std::memory_order_acquire) < ranks * round) std::this_thread::yield();
  }
};

/// One rank's life; empty if all is well.
std::string live(int rank, int ranks, cuda::SlotFormat format, Meeting& meeting,
                 std::uint64_t seed) {
  exec::CudaMeshOptions options;
  for (int r = 0; r < ranks; ++r)
    options.devices.push_back(test::device_of(r % 3));  // Some share a device.
  options.lanes = 2;
  options.slot_count = 2;
  options.slot_bytes = 2048;
  options.format = format;
  options.threads = 64;
  const auto me = static_cast<std::size_t>(rank);
  cudaSetDevice(options.devices[me]);
  auto mesh = exec::CudaMesh::create(options, rank);
  auto handle = mesh ? (*mesh)->handle() : Result<exec::CudaMeshHandle>(mesh.error());
  if (!handle) {
    meeting.arrived += 1000;  // Lets the others go on, and fail.
    return handle.error().to_string();
  }
  meeting.handles[me] = *handle;
  meeting.wait(ranks, 1);
  std::string complaint =
      said((*mesh)->join(std::span(meeting.handles, static_cast<std::size_t>(ranks))));
  std::mt19937_64 random(seed);  // The same in all.
  for (const Algorithm* algorithm : algorithms()) {
    const plan::Shape shape{algorithm->collective, ranks};
    if (!algorithm->applies(shape) || !complaint.empty()) continue;
    const plan::Plan plan = build(*algorithm, shape);
    auto loaded = (*mesh)->load(plan);
    if (!loaded) continue;  // More than kernels take; all ranks are told so.
    Case test;
    test.collective = algorithm->collective;
    test.type = random() % 2 == 0 ? DataType::kFloat32 : DataType::kBfloat16;
    test.count = random() % 1000;
    test.ranks = ranks;
    test.exact = plan.contract == Contract::kRelaxed;
    const auto inputs = DeviceRanks::make_inputs(test, random());
    const DeviceRanks::DeviceBuffers buffers(options.devices[me], test, me, inputs[me]);
    exec::CudaCall call;
    call.type = test.type;
    call.count = test.count;
    call.input = buffers.input;
    call.output = buffers.output;
    // One after the other: the operands of a + may be evaluated in any order.
    complaint = said((*mesh)->launch(rank, *loaded, call, nullptr));
    complaint += said(cudaStreamSynchronize(nullptr));
    complaint += said((*mesh)->check(rank));
    if (complaint.empty()) complaint = DeviceRanks::compare(test, me, inputs, buffers);
    if (!complaint.empty()) complaint = std::string(algorithm->name) + ": " + complaint;
  }
  meeting.wait(ranks, 2);  // Nobody's memory goes while a peer may use it.
  return complaint;
}

TEST_CASE("ranks in processes of their own, over IPC handles") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  test::shuffle_threads(seed);
  for (const int ranks : {2, 3, 8}) {
    for (const cuda::SlotFormat format : cuda::kSlotFormats) {
      void* memory =
          mmap(nullptr, sizeof(Meeting), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
      REQUIRE(memory != MAP_FAILED);
      auto* meeting = new (memory) Meeting;
      test::Processes processes(
          ranks, [&](int rank) { return live(rank, ranks, format, *meeting, seed + 1); });
      INFO(ranks << " ranks, " << cuda::to_string(format));
      for (int rank = 0; rank < ranks; ++rank) REQUIRE(processes.wait(rank) == 0);
      munmap(memory, sizeof(Meeting));
    }
  }
}

}  // namespace
}  // namespace tutti
