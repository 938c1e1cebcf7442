// One-sided operations: puts into windows of peers and signals, what arrives, and how waits end
// that nobody answers.
#include <chrono>
#include <string>
#include <thread>

#include "simt/communicator/one_sided_ring.h"
#include "support/catch.h"
#if !defined(TUTTI_GPU)
#include "simt/runtime.h"
#endif

namespace tutti {
namespace {

using test::DeviceCluster;
using test::each;
using test::pass_around;
using test::said;
using test::small_settings;
using test::Window;

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
Code code_of(const Status& status) { return status ? Code::kOk : status.error().code; }

TEST_CASE("what was put is there once its signal has come, round after round") {
  for (const std::vector<int>& devices : {std::vector{0, 1}, {0, 1, 2}, {0, 1, 1}, {0}}) {
    DeviceCluster cluster(devices), second(devices);
    REQUIRE(cluster.complaint + second.complaint == "");
    test::idle_streams(true);
    const std::string wrong = each(cluster, [&](std::size_t rank) {
      // Beside each other, on streams of their own.
      std::string other;
      std::jthread thread(
          [&] { other = pass_around(second.comms[rank], second.streams[rank], 7); });
      const std::string one = pass_around(cluster.comms[rank], cluster.streams[rank], 10);
      thread.join();
      return one + other;
    });
    test::idle_streams(false);
    CAPTURE(devices.size());
    REQUIRE(wrong == "");
  }
}

TEST_CASE("signals are counted by peer and number, and several are waited for at a time") {
  DeviceCluster cluster({0, 1, 2});
  REQUIRE(cluster.complaint == "");
  const std::string wrong = each(cluster, [&](std::size_t rank) -> std::string {
    DeviceCommunicator& comm = cluster.comms[rank];
    const cudaStream_t stream = cluster.streams[rank];
    std::string error;
    if (rank != 0) {  // More of one number do not stand for another.
      for (int i = 0; i < 5; ++i) error += said(comm.signal(Rank{0}, 0, stream));
      for (int i = 0; i < static_cast<int>(rank); ++i)
        error += said(comm.signal(Rank{0}, DeviceCommunicator::kSignals - 1, stream));
      error += said(comm.wait_signal(Rank{0}, 7, 2, stream));
    } else {
      error += said(comm.wait_signal(Rank{2}, DeviceCommunicator::kSignals - 1, 2, stream));
      error += said(comm.wait_signal(Rank{1}, DeviceCommunicator::kSignals - 1, 1, stream));
      error += said(comm.wait_signal(Rank{1}, 0, 2, stream));
      error += said(comm.wait_signal(Rank{2}, 0, 5, stream));
      error += said(comm.wait_signal(Rank{1}, 0, 3, stream));
      error += said(comm.wait_signal(Rank{1}, 0, 0, stream));
      for (const int peer : {1, 2, 1, 2}) error += said(comm.signal(Rank{peer}, 7, stream));
    }
    error += said(cudaStreamSynchronize(stream));
    return error + said(comm.check());
  });
  CHECK(wrong == "");
}

TEST_CASE("in a group of one thread, waits come behind what they wait for") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint == "");
  Group group;
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const Rank peer{1 - static_cast<int>(rank)};
    CHECK(said(cluster.comms[rank].wait_signal(peer, 0, 1, cluster.streams[rank])) == "");
    CHECK(said(cluster.comms[rank].signal(peer, 0, cluster.streams[rank])) == "");
  }
  CHECK(cudaStreamQuery(cluster.streams[0]) == cudaSuccess);  // Nothing has begun.
  CHECK(said(group.end()) == "");
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(said(cudaStreamSynchronize(cluster.streams[rank])) == "");
    CHECK(said(cluster.comms[rank].check()) == "");
  }
}

TEST_CASE("a wait that nobody answers ends at the deadline, and names the rank") {
  Settings settings = small_settings();
  settings.timeout = std::chrono::milliseconds(300);
  DeviceCluster cluster({0, 1}, settings);
  REQUIRE(cluster.complaint == "");
  DeviceCommunicator& comm = cluster.comms[0];
  for (int i = 0; i < 20; ++i)  // Those behind it end as well.
    REQUIRE(said(comm.wait_signal(Rank{1}, i % 3, 1, cluster.streams[0])) == "");
  CHECK(said(cudaStreamSynchronize(cluster.streams[0])) == "");
  const Status found = comm.check();
  REQUIRE(code_of(found) == Code::kTimeout);
  CHECK(found.error().peer.value == 1);
  CHECK(has(found.error().what, "rank 0 waited too long for a signal of rank 1 (number 0)"));
  CHECK(code_of(comm.signal(Rank{1}, 0, cluster.streams[0])) == Code::kTimeout);
  CHECK(code_of(cluster.comms[1].check()) == Code::kTimeout);
}

/// Copies a little of the device to pageable memory behind what the stream does, which the call
/// waits for. Meanwhile nobody else can launch anything there.
std::string copy_to_pageable(int device, cudaStream_t stream) {
  const exec::OnDevice on(device);
  auto data = exec::CudaMemory::allocate(device, 64);
  if (!data) return data.error().to_string();
  std::vector<std::byte> list(64);
  return said(cudaMemcpyAsync(list.data(), data->data(), list.size(), cudaMemcpyDefault, stream));
}

TEST_CASE("a wait that a copy to pageable memory is behind ends as others do") {
  for (const bool aborts : {false, true}) {
    Settings settings = small_settings();
    if (!aborts) settings.timeout = std::chrono::milliseconds(300);
    DeviceCluster cluster({0, 1}, settings);
    REQUIRE(cluster.complaint == "");
    DeviceCommunicator& comm = cluster.comms[0];
    for (int i = 5; i < 8; ++i)
      REQUIRE(said(comm.wait_signal(Rank{1}, i, 1, cluster.streams[0])) == "");
    std::jthread other;
    if (aborts)
      other = std::jthread([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        comm.abort("enough");
      });
    CHECK(copy_to_pageable(comm.device(), cluster.streams[0]) == "");
    CHECK(said(cudaStreamSynchronize(cluster.streams[0])) == "");
    const Status found = comm.check();
    REQUIRE(code_of(found) == (aborts ? Code::kAborted : Code::kTimeout));
    if (aborts) continue;
    CHECK(found.error().peer.value == 1);
    CHECK(has(found.error().what, "rank 0 waited too long for a signal of rank 1 (number 5)"));
  }
}

TEST_CASE("waits end that fill all hardware queues of the highest priority") {
  Settings settings = small_settings();
  settings.timeout = std::chrono::milliseconds(300);
  DeviceCluster cluster({0, 1}, settings), beside({0, 1}, settings);
  REQUIRE(cluster.complaint + beside.complaint == "");
  int least = 0, greatest = 0;
  REQUIRE(said(cudaDeviceGetStreamPriorityRange(&least, &greatest)) == "");
  const exec::OnDevice on(0);
  // The library's own stream is one of that priority, too.
  std::vector<cudaStream_t> streams(8);
  for (cudaStream_t& stream : streams) {
    REQUIRE(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest) == cudaSuccess);
    CHECK(said(cluster.comms[0].wait_signal(Rank{1}, 3, 1, stream)) == "");
  }
  CHECK(said(beside.comms[0].wait_signal(Rank{1}, 4, 1, beside.streams[0])) == "");
  streams.push_back(beside.streams[0]);
  for (const cudaStream_t stream : streams) CHECK(said(cudaStreamSynchronize(stream)) == "");
  for (const DeviceCommunicator* comm : {&cluster.comms[0], &beside.comms[0]})
    CHECK(code_of(comm->check()) == Code::kTimeout);
  streams.pop_back();
  for (const cudaStream_t stream : streams) cudaStreamDestroy(stream);
}

TEST_CASE("signals of a communicator that is gone are not taken for another one's") {
  for (const bool signals : {true, false}) {
    Settings settings = small_settings();
    if (!signals) settings.timeout = std::chrono::milliseconds(300);
    DeviceCluster cluster({0, 1}, settings);
    REQUIRE(cluster.complaint == "");
    for (int i = 0; signals && i < 5; ++i)
      CHECK(said(cluster.comms[1].signal(Rank{0}, 2, cluster.streams[1])) == "");
    CHECK(said(cudaStreamSynchronize(cluster.streams[1])) == "");
    CHECK(said(cluster.comms[0].wait_signal(Rank{1}, 2, 1, cluster.streams[0])) == "");
    CHECK(said(cudaStreamSynchronize(cluster.streams[0])) == "");
    CHECK(code_of(cluster.comms[0].check()) == (signals ? Code::kOk : Code::kTimeout));
  }
}

TEST_CASE("waits that are answered in time may last longer than the deadline together") {
  Settings settings = small_settings();
  settings.timeout = std::chrono::milliseconds(1000);
  DeviceCluster cluster({0, 1}, settings);
  REQUIRE(cluster.complaint == "");
  const std::string wrong = each(cluster, [&](std::size_t rank) -> std::string {
    std::string error;
    for (int i = 0; i < 6; ++i) {
      if (rank == 0) {
        error += said(cluster.comms[0].wait_signal(Rank{1}, 0, 1, cluster.streams[0]));
        continue;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(250));
      error += said(cluster.comms[1].signal(Rank{0}, 0, cluster.streams[1]));
    }
    error += said(cudaStreamSynchronize(cluster.streams[rank]));
    return error + said(cluster.comms[rank].check());
  });
  CHECK(wrong == "");
}

TEST_CASE("an abort ends waits on all ranks, a revocation on its own") {
  for (const bool aborts : {true, false}) {
    DeviceCluster cluster({0, 1});  // With a long deadline.
    REQUIRE(cluster.complaint == "");
    DeviceCommunicator& comm = cluster.comms[0];
    for (int i = 0; i < 3; ++i)
      REQUIRE(said(comm.wait_signal(Rank{1}, 0, 5, cluster.streams[0])) == "");
    CHECK(cudaStreamQuery(cluster.streams[0]) == cudaErrorNotReady);
    aborts ? cluster.comms[1].abort("enough") : comm.stop();
    // What a peer writes then does not hold the stream again.
    for (int i = 0; !aborts && i < 10; ++i)
      CHECK(said(cluster.comms[1].signal(Rank{0}, 0, cluster.streams[1])) == "");
    CHECK(said(cudaStreamSynchronize(cluster.streams[0])) == "");
    CHECK(code_of(comm.check()) == Code::kAborted);
    CHECK(code_of(cluster.comms[1].check()) == (aborts ? Code::kAborted : Code::kOk));
  }
}

TEST_CASE("a rank that leaves ends nobody's wait, and its signals stay") {
  Settings settings = small_settings();
  settings.timeout = std::chrono::milliseconds(700);
  DeviceCluster cluster({0, 1}, settings);
  REQUIRE(cluster.complaint == "");
  REQUIRE(said(cluster.comms[1].signal(Rank{0}, 0, cluster.streams[1])) == "");
  { const DeviceCommunicator gone(std::move(cluster.comms[1])); }
  cluster.comms.pop_back();
  CHECK(said(cluster.comms[0].wait_signal(Rank{1}, 0, 1, cluster.streams[0])) == "");
  CHECK(said(cudaStreamSynchronize(cluster.streams[0])) == "");
  CHECK(said(cluster.comms[0].check()) == "");
  CHECK(said(cluster.comms[0].wait_signal(Rank{1}, 0, 1, cluster.streams[0])) == "");
  CHECK(said(cudaStreamSynchronize(cluster.streams[0])) == "");
  CHECK(code_of(cluster.comms[0].check()) == Code::kTimeout);
}

TEST_CASE("one-sided operations check their arguments") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint == "");
  const std::string wrong = each(cluster, [&](std::size_t rank) -> std::string {
    DeviceCommunicator& comm = cluster.comms[rank];
    const cudaStream_t stream = cluster.streams[rank];
    constexpr std::size_t kBytes = 1000;
    const Window window(comm, kBytes);
    std::byte* const data = window.data();
    std::string error = window.complaint;
    const auto refuses = [&](const Status& status, const std::string& part) {
      if (code_of(status) != Code::kInvalidArgument || !has(status.error().what, part))
        error += "not \"" + part + "\" but: " + said(status) + "; ";
    };
    refuses(comm.put(data, data, kBytes, Rank{2}, stream), "put: rank 2 of 2 ranks");
    refuses(comm.put(data, data, kBytes, Rank{-1}, stream), "put: rank -1 of 2 ranks");
    refuses(comm.put(nullptr, data, 1, Rank{1}, stream), "put: no data");
    refuses(comm.put(data, data + 1, kBytes, Rank{1}, stream), "put: the target is not in");
    refuses(comm.put(data, nullptr, 1, Rank{1}, stream), "put: the target is not in");
    refuses(comm.signal(Rank{1}, 64, stream), "signal number 64; there are 64");
    refuses(comm.signal(Rank{1}, -1, stream), "signal number -1");
    refuses(comm.wait_signal(Rank{7}, 0, 1, stream), "wait_signal: rank 7 of 2");
    refuses(comm.wait_signal(Rank{1}, 0, ~std::uint64_t{0}, stream), "at most 2^32 - 1");
    if (code_of(comm.put(data, data + kBytes, 0, Rank{1}, stream)) != Code::kOk)
      error += "nothing was not put; ";
    return error + said(cudaStreamSynchronize(stream));
  });
  CHECK(wrong == "");
}

TEST_CASE("a capture refuses one-sided operations and goes on") {
  DeviceCluster cluster({0});
  REQUIRE(cluster.complaint == "");
  const cudaStream_t stream = cluster.streams[0];
  const exec::OnDevice on(cluster.comms[0].device());
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
  const Status signalled = cluster.comms[0].signal(Rank{0}, 0, stream);
  const Status waited = cluster.comms[0].wait_signal(Rank{0}, 0, 1, stream);
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  cudaGraphDestroy(graph);
  CHECK(code_of(signalled) == Code::kUnsupported);
  CHECK(has(said(waited), "wait_signal: one-sided operations can't be captured"));
}

#if !defined(TUTTI_GPU)
/// What a rank of these devices is told when it signals the other.
std::string refusal(const Settings& settings) {
  DeviceCluster cluster({0, 1}, settings);
  if (!cluster.complaint.empty()) return cluster.complaint;
  const Status status = cluster.comms[0].signal(Rank{1}, 0, cluster.streams[0]);
  return code_of(status) == Code::kUnsupported ? status.error().what : "taken";
}

TEST_CASE("ranks out of reach, and devices that can't do it, are said in a line") {
  {
    const test::NoPeerAccess none;
    CHECK(has(refusal(small_settings()),
              "signal: the devices of ranks 0 and 1 don't reach each other's memory"));
  }
  Settings hosts = small_settings();
  hosts.transport = "tcp";
  CHECK(has(refusal(hosts), "signal: rank 1 is on another host"));
  simt::refuse_stream_values(true);
  CHECK(has(refusal(small_settings()), "signal: streams of device 0 can't wait for values"));
  simt::refuse_stream_values(false);
}
#endif

}  // namespace
}  // namespace tutti
