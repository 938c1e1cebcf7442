// The one-shot all-reduce without a plan: what the plan `one_shot` computes, for every type and
// operation, again and again on the same areas, and in captured calls.
#include <random>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "simt/communicator/device_ranks.h"
#include "support/catch.h"
#include "support/kinds.h"
#include "support/sample.h"

namespace tutti {
namespace {

using test::Case;
using test::DeviceRanks;
using test::said;

exec::CudaMeshOptions options_for(int ranks) {
  exec::CudaMeshOptions options;
  for (int rank = 0; rank < ranks; ++rank) options.devices.push_back(test::device_of(rank));
  options.lanes = 3;
  options.slot_bytes = 1024;
  options.area_bytes = 1024;
  options.threads = 64;
  return options;
}

/// Several calls, each with data of its own that the rank's stream copies, and of its own length.
std::string run(DeviceRanks& ranks, Case test, std::mt19937_64& random) {
  const std::size_t most = ranks.mesh().one_shot_elements(test.type, test.op);
  struct Round {
    Case test;
    std::vector<test::Buffer> inputs;
    DeviceRanks::Buffers buffers;
  };
  std::vector<Round> rounds;
  for (int i = 0; i < 5; ++i) {
    test.count = i == 0 ? most : 1 + random() % most;
    auto inputs = DeviceRanks::make_inputs(test, random());
    auto buffers = ranks.make_buffers(test, inputs);
    rounds.push_back({test, std::move(inputs), std::move(buffers)});
  }
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(test.ranks); ++rank) {
    for (const Round& round : rounds) {
      const auto status = ranks.mesh().launch_one_shot(
          static_cast<int>(rank), ranks.call_of(round.test, rank, round.buffers),
          ranks.stream(rank));
      if (!status) return status.error().to_string();
    }
  }
  for (std::size_t rank = 0; rank < static_cast<std::size_t>(test.ranks); ++rank) {
    const std::string error = said(cudaStreamSynchronize(ranks.stream(rank))) +
                              said(ranks.mesh().rings().check(static_cast<int>(rank)));
    if (!error.empty()) return test.to_string() + ": " + error;
  }
  for (const Round& round : rounds) {
    const std::string complaint = DeviceRanks::compare(round.test, round.inputs, round.buffers);
    if (!complaint.empty()) return complaint;
  }
  return "";
}

TEST_CASE("the one-shot all-reduce has the bits of every other one") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (int n = 1; n <= 8; ++n) {
    std::string complaint;
    const auto ranks = DeviceRanks::open(options_for(n), complaint);
    REQUIRE(complaint == "");
    for (const DataType type : test::all_types()) {
      for (const ReduceOp op : test::all_ops()) {
        if (!is_supported(type, op) || random() % (test::kSanitized ? 32 : 4) != 0) continue;
        Case test;
        test.type = type;
        test.op = op;
        test.ranks = n;
        test.in_place = random() % 2 == 0;
        test.misalign = random() % 4 == 0 ? size_of(type) : 0;
        test::shuffle_threads(random() % 2 == 0 ? 0 : random());
        REQUIRE(run(*ranks, test, random) == "");
      }
    }
  }
  test::shuffle_threads(0);
}

TEST_CASE("a captured one-shot all-reduce takes its turns when it is replayed") {
  constexpr int kRanks = 3;
  std::string complaint;
  const auto ranks = DeviceRanks::open(options_for(kRanks), complaint);
  REQUIRE(complaint == "");
  Case test;
  test.count = 40;
  test.ranks = kRanks;
  auto inputs = DeviceRanks::make_inputs(test, 1);
  const auto buffers = ranks->make_buffers(test, inputs);
  std::vector<cudaGraphExec_t> graphs;
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    const cudaStream_t stream = ranks->stream(rank);
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    REQUIRE(said(ranks->mesh().launch_one_shot(static_cast<int>(rank),
                                               ranks->call_of(test, rank, buffers), stream)) == "");
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&graphs.emplace_back(), graph, 0) == cudaSuccess);
    cudaGraphDestroy(graph);
  }
  for (std::uint64_t round = 2; round < 9; ++round) {
    inputs = DeviceRanks::make_inputs(test, round);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      cudaMemcpyAsync(buffers[rank]->input, inputs[rank].data(), inputs[rank].size(),
                      cudaMemcpyDefault, ranks->stream(rank));
      REQUIRE(cudaGraphLaunch(graphs[rank], ranks->stream(rank)) == cudaSuccess);
    }
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      REQUIRE(said(cudaStreamSynchronize(ranks->stream(rank))) == "");
    }
    REQUIRE(DeviceRanks::compare(test, inputs, buffers) == "");
  }
  for (const cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
}

TEST_CASE("a kernel that begins while another one of its rank runs is an error on all ranks") {
  std::string complaint;
  const auto ranks = DeviceRanks::open(options_for(2), complaint);
  REQUIRE(complaint == "");
  Case test;
  test.ranks = 2;
  test.count = 100;
  const auto inputs = DeviceRanks::make_inputs(test, 1);
  const auto buffers = ranks->make_buffers(test, inputs);
  cudaStream_t second = nullptr;
  REQUIRE(cudaSetDevice(ranks->device(0)) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking) == cudaSuccess);
  for (const cudaStream_t stream : {ranks->stream(0), second}) {  // No event orders the two.
    REQUIRE(said(ranks->mesh().launch_one_shot(0, ranks->call_of(test, 0, buffers), stream)) == "");
  }
  for (const cudaStream_t stream : {ranks->stream(0), second})
    REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  REQUIRE(said(ranks->mesh().launch_one_shot(1, ranks->call_of(test, 1, buffers),
                                             ranks->stream(1))) == "");
  REQUIRE(cudaStreamSynchronize(ranks->stream(1)) == cudaSuccess);
  for (const int rank : {0, 1}) {
    const Status found = ranks->mesh().rings().check(rank);
    REQUIRE(!found);
    CHECK(found.error().code == Code::kMismatch);
    CHECK(found.error().what ==
          "rank 0's call 1, all_reduce of 100 float32 (sum), began while another kernel of this "
          "communicator and rank was running");
  }
  cudaStreamDestroy(second);
}

TEST_CASE("what does not fit one shot is refused") {
  std::string complaint;
  const auto ranks = DeviceRanks::open(options_for(2), complaint);
  REQUIRE(complaint == "");
  exec::CudaCall call;
  call.count = ranks->mesh().one_shot_elements(call.type, call.op) + 1;
  REQUIRE(call.count == 385);  // 3 lanes, 512 bytes of data each.
  const Status status = ranks->mesh().launch_one_shot(0, call, ranks->stream(0));
  REQUIRE(!status);
  REQUIRE(status.error().what == "a one-shot all-reduce of 385 float32 by sum; it takes up to 384");
}

}  // namespace
}  // namespace tutti
