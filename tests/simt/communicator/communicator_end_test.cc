// How communicators of devices fail: what is asked for wrongly, peers that don't come, aborts, and
// leaving in any order.

#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "cuda/mesh/residency.h"
#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "support/said_aside.h"
#if !defined(TUTTI_GPU)
#include "simt/runtime.h"
#endif

namespace tutti {
namespace {

using test::all_reduce_of;
using test::Case;
using test::DeviceCase;
using test::DeviceCluster;
using test::said;
using test::said_aside;
using test::small_settings;

std::string text_of(const Status& status) { return status ? "ok" : status.error().what; }
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Creates one of each rank, in threads; what each got.
std::vector<std::string> create_all(const std::vector<Settings>& settings,
                                    const std::vector<int>& devices, int host_rank = -1) {
  const auto rendezvous = memory_rendezvous();
  std::vector<std::string> texts(devices.size());
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const Rank me{static_cast<int>(rank)};
      const int ranks = static_cast<int>(devices.size());
      if (me.value == host_rank) {
        const auto comm = Communicator::create(*rendezvous, me, ranks, settings[rank]);
        texts[rank] = comm ? "ok" : comm.error().to_string();
        return;
      }
      const auto comm =
          DeviceCommunicator::create(*rendezvous, me, ranks, devices[rank], settings[rank]);
      texts[rank] = comm ? "ok" : comm.error().to_string();
    });
  }
  threads.clear();
  return texts;
}

TEST_CASE("ranks that don't fit each other are told so, all of them") {
  Settings other = small_settings();
  other.lanes = 1;
  for (const std::string& text : create_all({small_settings(), other}, {0, 1}))
    CHECK(has(text, "has other settings; TUTTI_ALGORITHM"));
  Settings direct = small_settings();
  direct.gpudirect = "on";
  for (const std::string& text : create_all({small_settings(), direct}, {0, 1}))
    CHECK(has(text, "TUTTI_GPUDIRECT and TUTTI_WIRE must be alike"));
  for (const std::string& text : create_all({small_settings(), small_settings()}, {0, 99}))
    CHECK(has(text, "there is no device 99; this process sees 8"));
  // The rank that sees it first tells the others.
  for (const std::string& text : create_all({small_settings(), small_settings()}, {0, 1}, 1)) {
    CHECK((has(text, "rank 1 makes a communicator of host memory, rank 0 one of devices") ||
           has(text, "rank 0 makes a communicator of devices, rank 1 one of host memory")));
  }
  Settings wrong = small_settings();
  wrong.algorithm = "quantum";
  for (const std::string& text : create_all({wrong, wrong}, {0, 1})) CHECK(has(text, "quantum"));
  Settings wide = small_settings();
  wide.lanes = 64;
  for (const std::string& text : create_all({wide, wide, wide}, {0, 0, 0}))
    CHECK(has(text, "need 192 blocks at a time, it has room for 132"));
}

#if !defined(TUTTI_GPU)
// Devices 5 and 7 are for these cases alone: a process asks a device for its kernels, and for a
// context, once, and cases run in any order.
TEST_CASE("a device that another process has for itself is said, and no other is taken for it") {
  simt::settings().taken = 1 << 7;
  const std::vector<std::string> texts = create_all({2, small_settings()}, {7, 6});
  simt::settings().taken = 0;
  for (const std::string& text : texts) {
    CAPTURE(text);
    CHECK(has(text, "using device 7: cudaErrorDevicesUnavailable"));
  }
  CHECK((simt::contexts() >> 7 & 1) == 0);
}

TEST_CASE("an error that a program has not asked for yet is not taken from it") {
  const test::NoPeerAccess none;
  const std::vector<int> devices{0, 1, 1};
  const auto rendezvous = memory_rendezvous();
  std::vector<std::string> wrong(devices.size());
  std::vector<std::jthread> threads;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    threads.emplace_back([&, rank] {
      const cudaError_t error = cudaSetDevice(1000);
      {
        auto comm = DeviceCommunicator::create(*rendezvous, Rank{static_cast<int>(rank)}, 3,
                                               devices[rank], small_settings());
        if (!comm) {
          wrong[rank] = comm.error().to_string();
          return;
        }
        const Request request{.count = 100, .type = DataType::kFloat32};
        wrong[rank] = said(comm->prepare(request));
      }
      if (cudaGetLastError() != error) wrong[rank] += "its error is gone";
      if (cudaGetLastError() != cudaSuccess) wrong[rank] += "another error is there";
    });
  }
  threads.clear();
  for (const std::string& one : wrong) CHECK(one == "");
}

TEST_CASE("a device that there are no kernels for is said on all ranks, with the remedy") {
  simt::settings().no_code = 1 << 5;
  const std::vector<std::string> texts = create_all({2, small_settings()}, {6, 5});
  simt::settings().no_code = 0;
  for (const std::string& text : texts) {
    CAPTURE(text);
    CHECK(has(text, "unsupported"));
    CHECK(has(text, "device 5 is an sm_90, which this libtutti has no kernels for"));
    CHECK(has(text, "-DTUTTI_CUDA_ARCHITECTURES=90"));
  }
}
#endif

TEST_CASE("who has no room on a device beside other communicators is warned") {
  Settings wide = small_settings();
  wide.lanes = 40;
  const auto with = [&](const auto& body) {
    DeviceCluster cluster({4, 4}, wide);
    body(cluster);
  };
  with([&](DeviceCluster& first) {
    REQUIRE(first.complaint == "");
    CHECK(has(first.comms[0].describe(), "blocks at a time: 40; of all"));
    CHECK(has(first.comms[0].describe(), "on the device 80 of 132"));
    const std::string warning = said_aside([&] {
      with([&](DeviceCluster& second) {
        REQUIRE(second.complaint == "");
        CHECK(has(second.comms[1].describe(), "on the device 160 of 132"));
      });
    });
    CHECK(has(warning, "may have 160 blocks on device 4 at a time, which runs 132"));
  });
}

TEST_CASE("aborted communicators whose kernels have ended leave a device its room") {
  Settings wide = small_settings();
  wide.lanes = 40;
  const std::string warning = said_aside([&] {
    for (int round = 0; round < 3; ++round) {
      DeviceCluster cluster({3, 3}, wide);
      REQUIRE(cluster.complaint == "");
      CHECK(has(cluster.comms[0].describe(), "on the device 80 of 132"));
      const DeviceCase lonely(all_reduce_of(2000, 2), 0, cluster.comms[0].device(), 1);
      REQUIRE(lonely.start(cluster.comms[0], cluster.streams[0]) == "");
      for (DeviceCommunicator& comm : cluster.comms) comm.abort("made again");
    }
  });
  CHECK(!has(warning, "blocks on device"));
}

/// A graph of a call of rank 0; what is wrong.
std::string capture_call(DeviceCluster& cluster, const DeviceCase& call, cudaGraphExec_t* made) {
  const cudaStream_t stream = cluster.streams[0];
  cudaGraph_t graph = nullptr;
  std::string wrong = said(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  wrong += call.start(cluster.comms[0], stream);
  wrong += said(cudaStreamEndCapture(stream, &graph));
  wrong += said(cudaGraphInstantiate(made, graph, 0));
  cudaGraphDestroy(graph);
  return wrong;
}

TEST_CASE("an aborted communicator takes room on a device as long as its kernels may run") {
  const int device = test::device_of(6);
  const exec::OnDevice on(device);
  const auto taken = [device] { return exec::CudaResidency::taken(device); };
  DeviceCluster cluster({6, 6});
  REQUIRE(cluster.complaint == "");
  const std::size_t blocks = taken();
  REQUIRE(blocks > 0);
  const DeviceCase call(all_reduce_of(2000, 2), 0, device, 1);
  cudaGraphExec_t graph = nullptr;
  REQUIRE(capture_call(cluster, call, &graph) == "");
  // While the device is busy nobody can tell whether a graph of rank 0 is.
  std::promise<void> go;
  const cudaStream_t stream = test::new_stream(device);
  const auto wait = [](void* on_go) {
    static_cast<std::promise<void>*>(on_go)->get_future().wait();
  };
  REQUIRE(said(cudaLaunchHostFunc(stream, wait, &go)) == "");
  for (DeviceCommunicator& comm : cluster.comms) comm.abort("not wanted");
  cluster.comms.clear();
  CHECK(taken() == blocks / 2);  // Rank 1 has no graphs.
  go.set_value();
  CHECK(said(cudaStreamSynchronize(stream)) == "");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (taken() != 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(taken() == 0);
  cudaGraphExecDestroy(graph);
  cudaStreamDestroy(stream);
}

TEST_CASE("arguments are checked before anything begins") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint.empty());
  DeviceCommunicator& comm = cluster.comms[0];
  std::byte data[8] = {};
  Request request{.input = data, .output = data, .count = 1, .type = DataType::kFloat32};
  Request bad = request;
  bad.input = nullptr;
  CHECK(has(text_of(comm.call(bad, nullptr)), "the input buffer is null"));
  bad = request;
  bad.reduction = ReduceOp::kXor;
  CHECK(has(text_of(comm.call(bad, nullptr)), "takes integers"));
  bad = request;
  bad.collective = Collective::kBroadcast;
  bad.root = Rank{2};
  CHECK(has(text_of(comm.call(bad, nullptr)), "root 2 is not one of the 2 ranks"));
  bad = request;
  bad.algorithm = "ring";
  CHECK(has(text_of(comm.call(bad, nullptr)), "set TUTTI_ALGORITHM"));
  CHECK(has(text_of(comm.send(data, 1, DataType::kInt8, Rank{7}, nullptr)),
            "rank 7 is not one of the 2 ranks"));
  CHECK(has(text_of(comm.send(data, 1, DataType::kInt8, Rank{0}, nullptr)), "other half"));
  Group group;
  REQUIRE(comm.send(data, 1, DataType::kInt8, Rank{0}, cluster.streams[0]));
  CHECK(has(text_of(group.end()), "needs its other half in the same group"));
  CHECK(text_of(comm.check()) == "ok");
}

TEST_CASE("who waits for a rank that never calls gets a timeout that names it") {
  Settings settings = small_settings();
  settings.timeout = std::chrono::milliseconds(300);
  DeviceCluster cluster({0, 1, 1}, settings);
  REQUIRE(cluster.complaint.empty());
  std::vector<std::unique_ptr<DeviceCase>> cases;
  for (const std::size_t rank : {0, 1}) {
    cases.push_back(std::make_unique<DeviceCase>(all_reduce_of(2000, 3), rank,
                                                 cluster.comms[rank].device(), 1));
    REQUIRE(cases.back()->start(cluster.comms[rank], cluster.streams[rank]) == "");
  }
  for (const std::size_t rank : {0, 1})
    REQUIRE(said(cudaStreamSynchronize(cluster.streams[rank])) == "");
  const Status found = cluster.comms[0].check();
  REQUIRE(!found);
  CHECK(found.error().code == Code::kTimeout);
  CHECK(has(found.error().what, "waited too long for rank"));
  CHECK(has(found.error().what, "has begun 1 calls"));
  // The others hear of it, and nobody calls any more.
  CHECK(!cluster.comms[2].check());
  CHECK(cases[0]->start(cluster.comms[0], cluster.streams[0]) != "");
}

TEST_CASE("an abort ends what waits, on every rank that looks") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint.empty());
  DeviceCase lonely(all_reduce_of(2000, 2), 0, 0, 1);
  REQUIRE(lonely.start(cluster.comms[0], cluster.streams[0]) == "");
  CHECK(cudaStreamQuery(cluster.streams[0]) == cudaErrorNotReady);
  cluster.comms[1].abort("the weather");
  CHECK(has(text_of(cluster.comms[1].check()), "the weather"));
  const Status found = cluster.comms[0].check();  // It looks, which ends its kernels.
  REQUIRE(!found);
  CHECK(found.error().code == Code::kAborted);
  CHECK(has(found.error().what, "the weather"));
  CHECK(said(cudaStreamSynchronize(cluster.streams[0])) == "");
  cluster.comms[1].abort("again");
}

TEST_CASE("communicators are left in any order, and their memory goes when all have left") {
  const exec::OnDevice on(0);
  std::size_t before = 0, after = 0, total = 0;
  cudaMemGetInfo(&before, &total);
  {
    DeviceCluster one({0, 1}), other({1, 0});
    REQUIRE(one.complaint + other.complaint == "");
    for (DeviceCluster* cluster : {&one, &other})
      CHECK(run_in_group(cluster->comms, cluster->streams, all_reduce_of(3000, 2), 1) == "");
    CHECK(one.comms[0].device_bytes() > 0);
    std::vector<DeviceCommunicator> left;
    left.push_back(std::move(one.comms[0]));
    left.push_back(std::move(other.comms[1]));
    left.push_back(std::move(other.comms[0]));
    left.push_back(std::move(one.comms[1]));
    for (std::size_t i = 0; i < left.size(); ++i) {
      const std::optional<DeviceCommunicator> gone(std::move(left[i]));
    }
    one.comms.clear();
    other.comms.clear();
  }
  cudaMemGetInfo(&after, &total);
  CHECK(before <= after);  // What was kept of communicators that were aborted may go meanwhile.
}

TEST_CASE("leaving waits for nothing else that the device does, and spoils no capture") {
  const exec::OnDevice on(0);
  const cudaStream_t busy = test::new_stream(0), captured = test::new_stream(0);
  std::size_t before = 0, after = 0, total = 0;
  std::promise<void> left;
  {
    DeviceCluster cluster({0, 0});
    REQUIRE(cluster.complaint == "");
    CHECK(run_in_group(cluster.comms, cluster.streams, all_reduce_of(3000, 2), 1) == "");
    cluster.comms.clear();
    cudaMemGetInfo(&before, &total);  // Without those of a communicator.
    DeviceCluster again({0, 0});
    REQUIRE(again.complaint == "");
    CHECK(run_in_group(again.comms, again.streams, all_reduce_of(3000, 2), 1) == "");
    const auto wait = [](void* end) { static_cast<std::promise<void>*>(end)->get_future().wait(); };
    REQUIRE(said(cudaLaunchHostFunc(busy, wait, &left)) == "");
    REQUIRE(said(cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal)) == "");
    again.comms.clear();
    cudaGraph_t graph = nullptr;
    CHECK(said(cudaStreamEndCapture(captured, &graph)) == "");
    cudaGraphDestroy(graph);
    cudaMemGetInfo(&after, &total);
    left.set_value();
  }
  CHECK(before <= after);  // As above.
  for (const cudaStream_t stream : {busy, captured}) {
    CHECK(said(cudaStreamSynchronize(stream)) == "");
    cudaStreamDestroy(stream);
  }
}

/// A call of each rank, run by a graph; what is wrong.
std::string capture_and_replay(DeviceCluster& cluster) {
  const Case test = all_reduce_of(3000, 2);
  std::vector<std::unique_ptr<DeviceCase>> cases;
  std::vector<cudaGraphExec_t> graphs(cluster.comms.size());
  std::string wrong;
  for (std::size_t rank = 0; rank < cluster.comms.size(); ++rank) {
    const cudaStream_t stream = cluster.streams[rank];
    const DeviceCommunicator& comm = cluster.comms[rank];
    cases.push_back(std::make_unique<DeviceCase>(test, rank, comm.device(), 1));
    cudaGraph_t graph = nullptr;
    wrong += said(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    wrong += cases.back()->start(cluster.comms[rank], stream);
    wrong += said(cudaStreamEndCapture(stream, &graph));
    wrong += said(cudaGraphInstantiate(&graphs[rank], graph, 0));
    cudaGraphDestroy(graph);
  }
  for (std::size_t rank = 0; rank < graphs.size(); ++rank)
    wrong += said(cudaGraphLaunch(graphs[rank], cluster.streams[rank]));
  for (std::size_t rank = 0; rank < graphs.size(); ++rank) {
    wrong += cases[rank]->finish(cluster.comms[rank], cluster.streams[rank]);
    cudaGraphExecDestroy(graphs[rank]);
  }
  return wrong;
}

TEST_CASE("a communicator is left while a part of it waits for what the same thread calls next") {
  Settings settings = test::small_settings();
  settings.timeout = std::chrono::minutes(10);  // The simulator reports ranks that wait for it.
  for (const bool captured : {false, true}) {
    DeviceCluster cluster({0, 1}, settings);
    REQUIRE(cluster.complaint == "");
    std::vector<std::optional<Result<DeviceCommunicator>>> made(2);
    {
      std::vector<std::jthread> threads;
      for (std::size_t rank = 0; rank < 2; ++rank)
        threads.emplace_back([&, rank] { made[rank].emplace(cluster.comms[rank].split(0, 0)); });
    }
    REQUIRE((*made[0] && *made[1]));
    std::vector<DeviceCommunicator> parts;
    for (auto& one : made) parts.push_back(**std::move(one));
    if (captured) CHECK(capture_and_replay(cluster) == "");
    const Case test = all_reduce_of(3000, 2);
    const DeviceCase first(test, 0, 0, 1), second(test, 1, 1, 1);
    CHECK(first.start(parts[0], cluster.streams[0]) == "");
    cluster.comms.clear();
    CHECK(second.start(parts[1], cluster.streams[1]) == "");
    CHECK(first.finish(parts[0], cluster.streams[0]) == "");
    CHECK(second.finish(parts[1], cluster.streams[1]) == "");
  }
}

TEST_CASE("memory of a communicator is bounded, and said") {
  const std::vector<int> devices(8, 0);
  DeviceCluster cluster(devices, Settings{});
  REQUIRE(cluster.complaint.empty());
  CHECK(cluster.comms[0].device_bytes() < std::size_t{80} << 20);
  const std::string text = cluster.comms[3].describe();
  CHECK(has(text, "communicator of 8 ranks on devices, this is rank 3 on device 0"));
  CHECK(has(text, "device memory of this rank:"));
  CHECK(has(text, "to rank 5: same device"));
  Request request{.count = 1000000, .type = DataType::kFloat32};
  REQUIRE(said(cluster.comms[3].prepare(request)) == "");
  CHECK(has(cluster.comms[3].describe(), "all_reduce up to 4194304 bytes: "));
}

}  // namespace
}  // namespace tutti
