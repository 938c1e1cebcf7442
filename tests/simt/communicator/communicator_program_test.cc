// Kernels of a program's own on the memory of a communicator of devices: what they compute, beside
// the library's calls and in graphs; how they fail; and what is refused before they begin.
#include <chrono>
#include <random>
#include <string>

#include "simt/communicator/windowed.h"
#include "support/catch.h"
#include "support/sample.h"

namespace tutti {
namespace {

using test::DeviceCluster;
using test::each;
using test::kProgramBlocks;
using test::kProgramWindow;
using test::PassOn;
using test::ProgramCall;
using test::ProgramReduce;
using test::said;
using test::Windowed;

std::string text_of(const Status& status) { return status ? "ok" : status.error().what; }
bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("kernels of a program put, signal and wait, between calls of the library") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (const int ranks : {1, 2, 3, 5}) {
    std::vector<int> devices;
    for (int rank = 0; rank < ranks; ++rank) devices.push_back(rank % 4);
    DeviceCluster some(devices);
    REQUIRE(some.complaint == "");
    test::shuffle_threads(random() % 2 == 0 ? 0 : random());
    test::check_access(!test::kSanitized);
    const std::size_t bytes = 16 * (1 + random() % 20), odd = 1 + random() % 300;
    CHECK(each(some, [&](std::size_t rank) {
            Windowed here(some.comms[rank], some.streams[rank]);
            if (here.wrong.empty()) here.wrong = here.pass_on(bytes, 5);
            const test::DeviceCase call(test::all_reduce_of(3000, ranks), rank, here.one.device, 1);
            if (here.wrong.empty()) here.wrong = call.start(here.comm, here.one.stream);
            if (here.wrong.empty()) here.wrong = here.pass_on(odd, 2);
            if (here.wrong.empty()) here.wrong = call.finish(here.comm, here.one.stream);
            return here.wrong.empty() ? here.leave() : here.wrong;
          }) == "");
  }
  test::check_access(false);
  test::shuffle_threads(0);
}

TEST_CASE("blocks of less than a warp meet all ranks") {
  DeviceCluster cluster({0, 1, 2, 3, 4});
  REQUIRE(cluster.complaint == "");
  CHECK(each(cluster, [&](std::size_t rank) {
          Windowed here(cluster.comms[rank], cluster.streams[rank]);
          const test::Meet what;
          if (here.wrong.empty())
            here.wrong = here.run(what, [&] { return what.compare(here.one); });
          return here.wrong.empty() ? here.leave() : here.wrong;
        }) == "");
}

TEST_CASE("kernels of a program are captured, and replayed among calls") {
  DeviceCluster cluster({0, 1, 2});
  REQUIRE(cluster.complaint == "");
  CHECK(each(cluster, [&](std::size_t rank) {
          Windowed here(cluster.comms[rank], cluster.streams[rank]);
          const cudaStream_t stream = here.one.stream;
          const PassOn what(500, 2);
          std::string wrong = here.wrong + what.prepare(here.one);
          cudaGraph_t graph = nullptr;
          cudaGraphExec_t ready = nullptr;
          wrong += said(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
          wrong += here.start(what);
          wrong += said(cudaStreamEndCapture(stream, &graph));
          wrong += said(cudaGraphInstantiate(&ready, graph, 0));
          if (!wrong.empty()) return wrong;
          wrong += said(cudaGraphLaunch(ready, stream));
          wrong += here.start(what);
          wrong += said(cudaGraphLaunch(ready, stream));
          wrong += said(cudaStreamSynchronize(stream));
          wrong += said(here.comm.check());
          wrong += what.compare(here.one, 3);
          cudaGraphExecDestroy(ready);
          cudaGraphDestroy(graph);
          return wrong + here.leave();
        }) == "");
}

TEST_CASE("a reduction in a kernel of a program has the bits of the library's") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  const std::vector<int> counts =
      test::kSanitized ? std::vector{3, 9} : std::vector{1, 2, 3, 8, 11};
  for (const int ranks : counts) {
    std::vector<int> devices;
    for (int rank = 0; rank < ranks; ++rank) devices.push_back(rank % 4);
    DeviceCluster cluster(devices);
    REQUIRE(cluster.complaint == "");
    std::vector<ProgramReduce> cases;
    for (const test::ProgramReduction& what : test::kProgramReductions)
      cases.emplace_back(what, random() % 3 == 0 ? random() % 40 : random() % 3000, ranks,
                         random());
    test::shuffle_threads(random() % 2 == 0 ? 0 : random());
    test::check_access(!test::kSanitized && random() % 2 == 0);
    CHECK(each(cluster, [&](std::size_t rank) {
            Windowed here(cluster.comms[rank], cluster.streams[rank]);
            for (const ProgramReduce& what : cases) {
              if (here.wrong.empty()) here.wrong = here.reduce(what);
            }
            return here.wrong.empty() ? here.leave() : here.wrong;
          }) == "");
  }
  test::check_access(false);
  test::shuffle_threads(0);
}

/// A kernel of rank 0 that begins and waits for what does not come; what ranks 0 and 1 say then.
struct Failed {
  Status first = ok(), second = ok();
  std::string wrong;
};
Failed fail(const void* kernel, ProgramCall call, std::chrono::milliseconds timeout,
            const char* abort_with = nullptr) {
  Failed failed;
  Settings settings = test::small_settings();
  settings.timeout = timeout;
  DeviceCluster cluster({0, 1}, settings);
  failed.wrong = cluster.complaint;
  if (!failed.wrong.empty()) return failed;
  std::vector<std::unique_ptr<Windowed>> windows(2);
  failed.wrong = each(cluster, [&](std::size_t rank) {
    windows[rank] = std::make_unique<Windowed>(cluster.comms[rank], cluster.streams[rank]);
    return windows[rank]->wrong;
  });
  if (!failed.wrong.empty()) return failed;
  Windowed& here = *windows[0];
  failed.wrong = here.one.allocate(1024);
  const Status launched = here.comm.launch(
      here.one.stream, [&] { return here.one.start(kernel, call, 1).empty() ? 0 : 1; });
  if (abort_with != nullptr) {
    if (cudaStreamQuery(here.one.stream) != cudaErrorNotReady) failed.wrong += "it did not wait";
    cluster.comms[1].abort(abort_with);
    failed.first = here.comm.check();  // It looks, which ends its kernels.
  }
  failed.wrong += said(launched);
  failed.wrong += said(cudaStreamSynchronize(here.one.stream));
  failed.first = here.comm.check();
  failed.second = cluster.comms[1].check();
  if (here.comm.launch(here.one.stream, [] { return 0; })) failed.wrong += "a later call began";
  return failed;
}

TEST_CASE("a kernel of a program that waits for a late rank ends with an error that names it") {
  ProgramCall call;
  call.peer = 1;
  const Failed failed = fail(test::await_kernel(), call, std::chrono::milliseconds(300));
  REQUIRE(failed.wrong == "");
  REQUIRE(!failed.first);
  CHECK(failed.first.error().code == Code::kTimeout);
  CHECK(failed.first.error().peer == Rank{1});
  CHECK(has(failed.first.error().what,
            "rank 0's kernel of the program, channel 0, waited too long for rank 1"));
  CHECK(has(failed.first.error().what, "this rank has begun 1 calls"));
  REQUIRE(!failed.second);  // The other one hears of it.
  CHECK(has(failed.second.error().what, "waited too long for rank 1"));
}

TEST_CASE("a kernel of a program ends when a rank aborts") {
  ProgramCall call;
  call.peer = 1;
  const Failed failed = fail(test::await_kernel(), call, std::chrono::seconds(60), "the weather");
  REQUIRE(failed.wrong == "");
  CHECK(has(text_of(failed.first), "the weather"));
}

TEST_CASE("a kernel of a program does not touch what is beside the windows") {
  const struct {
    const void* kernel;
    unsigned peer;
    std::uint64_t count;
  } outside[] = {{test::put_kernel(), 1, kProgramWindow - 63},
                 {test::put_kernel(), 2, 1},  // There is no rank 2.
                 {test::ask_kernel(), 1, kProgramWindow / 8},
                 {test::ask_kernel(), 1, std::uint64_t{1} << 61}};  // 0 bytes, in 64 bits.
  for (const auto& [kernel, peer, count] : outside) {
    ProgramCall call;
    call.peer = peer;
    call.count = count;
    const Failed failed = fail(kernel, call, std::chrono::seconds(60));
    REQUIRE(failed.wrong == "");
    REQUIRE(!failed.first);
    CHECK(failed.first.error().code == Code::kInvalidArgument);
    CHECK(has(failed.first.error().what,
              "rank 0's kernel of the program, channel 0, named what there is not: that channel, "
              "rank " +
                  std::to_string(peer) + ", or data at byte 64 of its window"));
  }
}

TEST_CASE("a handle is for registered memory of one host, and alike on all ranks") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint == "");
  std::vector<std::vector<std::string>> texts(2);
  CHECK(each(cluster, [&](std::size_t rank) {
          Windowed here(cluster.comms[rank], cluster.streams[rank]);
          if (!here.wrong.empty()) return here.wrong;
          std::byte* const at = here.window.data();
          const auto ask = [&](std::byte* data, std::size_t bytes, int channels) {
            const auto handle = here.comm.device_handle(data, bytes, channels);
            texts[rank].push_back(handle ? "ok" : handle.error().what);
          };
          ask(at + 64, kProgramWindow, 1);  // Beyond its end.
          ask(at, 64, 0);
          ask(at, 64, rank == 0 ? 1 : 2);
          ask(at + rank * 64, 64, 1);
          ask(at + 64, kProgramWindow - 64, 3);
          if (!has(here.comm.describe(), "registered memory: 1 times, 0.06 MiB; 2 handles of"))
            here.wrong = here.comm.describe();
          here.wrong += here.leave();  // The signals go, too.
          if (has(here.comm.describe(), "handles")) here.wrong += here.comm.describe();
          ask(at, 64, 1);
          return here.wrong;
        }) == "");
  for (const std::vector<std::string>& text : texts) {
    REQUIRE(text.size() == 6);
    CHECK(has(text[0], "these 65536 bytes are not all in one registered memory"));
    CHECK(has(text[1], "0 channels; 1 to 65536 are possible"));
    CHECK(has(text[2], "device_handle: "));
    CHECK(has(text[2], " bytes here, "));
    CHECK(
        has(text[3], "device_handle: in another place, of other memory, or for another call than"));
    CHECK(text[4] == "ok");
    CHECK(has(text[5], "not all in one registered memory"));
  }
  Settings apart = test::small_settings();
  apart.transport = "tcp";  // Each rank is a host of its own.
  DeviceCluster hosts({0, 1}, apart);
  REQUIRE(hosts.complaint == "");
  const auto handle = hosts.comms[0].device_handle(nullptr, 64, 1);
  CHECK(has(handle ? "" : handle.error().what, "ranks are on several hosts"));
}

TEST_CASE("what a launch of a program's kernels fails with is said") {
  DeviceCluster cluster({0});
  REQUIRE(cluster.complaint == "");
  const Status status =
      cluster.comms[0].launch(cluster.streams[0], [] { return cudaErrorInvalidConfiguration; });
  CHECK(has(text_of(status), "starting a kernel of the program's"));
  Group group;
  CHECK(has(text_of(cluster.comms[0].launch(cluster.streams[0], [] { return 0; })),
            "not for groups"));
  CHECK(text_of(group.end()) == "ok");
}

}  // namespace
}  // namespace tutti
