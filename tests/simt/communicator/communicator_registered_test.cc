// Calls of communicators of devices on registered memory: every collective against the reference on
// the host, with inputs registered, outputs, both or none; that no slot is used where none has to
// be; and between hosts.
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "support/kinds.h"
#include "support/sample.h"

namespace tutti {
namespace {

using test::Case;
using test::DeviceCase;
using test::DeviceCluster;
using test::each;
using test::said;

/// What is registered before a call.
struct Registers {
  bool input = false, output = false;
};
constexpr Registers kRegisters[] = {{false, false}, {true, false}, {false, true}, {true, true}};

/// Twice, so that one call's end is another's beginning.
std::string run(DeviceCluster& cluster, const Case& test, Registers registers, std::uint64_t seed) {
  return each(cluster, [&](std::size_t rank) -> std::string {
    DeviceCommunicator& comm = cluster.comms[rank];
    const DeviceCase mine(test, rank, comm.device(), seed);
    const auto& buffers = mine.buffers();
    const exec::CudaMemory &input = buffers.input_memory, &output = buffers.output_memory;
    std::string wrong;
    if (registers.input) wrong += said(comm.register_memory(input.data(), input.size()));
    if (registers.output) wrong += said(comm.register_memory(output.data(), output.size()));
    if (!wrong.empty()) return wrong;
    wrong += mine.start(comm, cluster.streams[rank]);
    // In place the first call has changed the input.
    if (!test.in_place) wrong += mine.start(comm, cluster.streams[rank]);
    if (wrong.empty()) wrong += mine.finish(comm, cluster.streams[rank]);
    if (registers.output) wrong += said(comm.deregister_memory(output.data()));
    if (registers.input) wrong += said(comm.deregister_memory(input.data()));
    return wrong;
  });
}

Case any_case(std::mt19937_64& random, int collective, int ranks, std::size_t count) {
  Case test;
  test.collective = static_cast<Collective>(collective);
  test.ranks = ranks;
  test.count = count;
  test.type = test::any_type(random);
  test.op = static_cast<ReduceOp>(random() % 6);
  test.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  test.in_place = random() % 2 == 0;
  test.misalign = random() % 4 == 0 ? size_of(test.type) : 0;
  return test;
}

TEST_CASE("every collective on registered memory, over types, operations and sizes") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  // More than a step takes sources, too.
  const std::vector<int> counts =
      test::kSanitized ? std::vector{2, 9} : std::vector{1, 2, 3, 8, 10};
  for (const int ranks : counts) {
    std::vector<int> devices;
    for (int rank = 0; rank < ranks; ++rank) devices.push_back(rank % 4);
    DeviceCluster cluster(devices);
    REQUIRE(cluster.complaint == "");
    for (int i = 0; i < kCollectiveCount; ++i) {
      for (const Registers registers : kRegisters) {
        const Case test = any_case(random, i, ranks, 1 + random() % 9000);
        INFO("registered: " << registers.input << registers.output);
        test::shuffle_threads(random() % 2 == 0 ? 0 : random());
        test::check_access(!test::kSanitized && random() % 4 == 0);
        REQUIRE(run(cluster, test, registers, random()) == "");
      }
    }
  }
  test::check_access(false);
  test::shuffle_threads(0);
}

/// The plan that describe() names for a collective on 3 ranks that is too large for packets.
std::string plan_of(Collective collective, Registers registers, ReduceOp op, bool in_place) {
  DeviceCluster cluster({0, 1, 2});
  if (!cluster.complaint.empty()) return cluster.complaint;
  Case test;
  test.collective = collective;
  test.ranks = 3;
  test.count = 20000;
  test.op = op;
  test.in_place = in_place;
  const std::string wrong = run(cluster, test, registers, 1);
  return wrong.empty() ? cluster.comms[1].describe() : wrong;
}

TEST_CASE("slots are left out for what is registered, and only for that") {
  const auto direct = [](Collective collective, Registers registers, ReduceOp op = ReduceOp::kSum,
                         bool in_place = false) {
    const std::string text = plan_of(collective, registers, op, in_place);
    INFO(text);
    CHECK(text.find("plans chosen:") != std::string::npos);
    return text.find("+direct") != std::string::npos;
  };
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    INFO(to_string(collective));
    CHECK_FALSE(direct(collective, {}));
    if (is_scan(collective)) continue;  // On devices these go by slots so far.
    // Whose blocks a root may have in its other buffer.
    const bool uneven_ends =
        collective == Collective::kGather || collective == Collective::kScatter;
    const CollectiveTraits traits = traits_of(collective);
    CHECK(direct(collective, {true, true}) == !uneven_ends);
    // Plans hold in place, too: no input is read where a result may be already.
    const bool sums = collective == Collective::kAllReduce;
    CHECK(direct(collective, {true, false}) == (!uneven_ends && !traits.root_input && !sums));
    if (!reduces(collective))
      CHECK(direct(collective, {false, true}) == (!uneven_ends && !traits.root_output));
    // In place all is in the output; blocks that are exchanged take slots.
    CHECK(direct(collective, {false, true}, ReduceOp::kSum, true) ==
          (!uneven_ends && collective != Collective::kAllToAll));
  }
  // A factor of a peer's is not known.
  CHECK_FALSE(direct(Collective::kReduceScatter, {true, false}, ReduceOp::kPreMulSum));
}

TEST_CASE("between hosts, registered memory is mapped within each") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  Settings settings = test::small_settings();
  settings.transport = "tcp";
  settings.groups = {2};
  settings.timeout = std::chrono::seconds(20);
  DeviceCluster cluster({0, 1, 2, 3}, settings);
  REQUIRE(cluster.complaint == "");
  for (int i = 0; i < kCollectiveCount; ++i) {
    for (const Registers registers : {Registers{true, true}, Registers{false, true}}) {
      const Case test = any_case(random, i, 4, 1 + random() % 9000);
      REQUIRE(run(cluster, test, registers, random()) == "");
    }
  }
  Case test;
  test.ranks = 4;
  test.count = 300'000;  // Shorter ones may be faster over slots.
  REQUIRE(run(cluster, test, {true, true}, 1) == "");
  const std::string text = cluster.comms[0].describe();
  INFO(text);
  CHECK(text.find("to rank 2: network") != std::string::npos);
  const std::size_t chosen = text.find("all_reduce up to 2097152 bytes: ");
  REQUIRE(chosen != std::string::npos);
  CHECK(text.substr(chosen, text.find('\n', chosen) - chosen).find("+direct") != std::string::npos);
}

TEST_CASE("windows are opened together, and closed by each rank for itself") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint == "");
  const std::string complaint = each(cluster, [&](std::size_t rank) -> std::string {
    DeviceCommunicator& comm = cluster.comms[rank];
    const auto refused = [](const Status& status, Code code, const std::string& text) {
      const bool as_told = !status && status.error().code == code &&
                           status.error().what.find(text) != std::string::npos;
      return as_told ? "" : "\"" + text + "\" is not said: " + said(status);
    };
    auto data = device_mem_alloc(comm.device(), 1 << 20);
    auto of_runtime = exec::CudaMemory::allocate(comm.device(), 1 << 20);
    if (!data || !of_runtime) return "no memory";
    std::string wrong = said(comm.open_window(*data, 1 << 20));
    wrong += refused(comm.open_window(of_runtime->data(), 1 << 20), Code::kUnsupported,
                     "memory that the driver did not map");
    Request request;
    request.input = request.output = *data;
    request.count = 1 << 20;  // Short ones go over packed slots.
    wrong += said(comm.call(request, cluster.streams[rank]));
    wrong += said(cudaStreamSynchronize(cluster.streams[rank]));
    wrong += said(comm.check());
    if (comm.describe().find("+direct") == std::string::npos) wrong += comm.describe();
    wrong += refused(comm.deregister_memory(*data), Code::kInvalidArgument, "is not registered");
    wrong += said(comm.close_window(*data));
    wrong += refused(comm.close_window(*data), Code::kInvalidArgument, "there is none");
    wrong += said(device_mem_free(*data));
    wrong += refused(device_mem_free(*data), Code::kInvalidArgument, "not memory of");
    wrong += said(device_mem_free(nullptr));
    return wrong;
  });
  CHECK(complaint == "");
}

TEST_CASE("ranks whose buffers are in different places of their memory are told") {
  // The first bytes of the memory on one rank, later ones on the other.
  for (const auto& one :
       {std::pair<std::size_t, std::size_t>{0, 20000}, {4096, 20000}, {0, 19000}}) {
    const std::size_t offset = one.first, count = one.second;
    DeviceCluster cluster({0, 1});
    REQUIRE(cluster.complaint == "");
    std::vector<std::string> texts(2);
    const std::string complaint = each(cluster, [&](std::size_t rank) -> std::string {
      DeviceCommunicator& comm = cluster.comms[rank];
      auto memory = exec::CudaMemory::allocate(comm.device(), 1 << 20);
      if (!memory) return "no memory";
      std::string wrong = said(comm.register_memory(memory->data(), memory->size()));
      Request request;
      request.input = request.output = memory->data() + (rank == 0 ? 0 : offset);
      request.count = rank == 0 ? 20000 : count;
      request.type = DataType::kFloat32;
      wrong += said(comm.call(request, cluster.streams[rank]));
      wrong += said(cudaStreamSynchronize(cluster.streams[rank]));
      texts[rank] = said(comm.check());
      return wrong;
    });
    INFO(texts[0] << "\n" << texts[1]);
    CHECK(complaint == "");
    const bool alike = offset == 0 && count == 20000;
    CHECK((texts[0].empty() && texts[1].empty()) == alike);
    const std::string both = texts[0] + texts[1];
    CHECK((both.find(" met rank ") == std::string::npos) == alike);
  }
}

TEST_CASE("calls on registered memory can be captured, and prepared") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint == "");
  Case test;
  test.ranks = 2;
  test.count = 20000;
  const std::string complaint = each(cluster, [&](std::size_t rank) -> std::string {
    DeviceCommunicator& comm = cluster.comms[rank];
    const cudaStream_t stream = cluster.streams[rank];
    const DeviceCase mine(test, rank, comm.device(), 5);
    const auto& buffers = mine.buffers();
    std::string wrong;
    for (const exec::CudaMemory* memory : {&buffers.input_memory, &buffers.output_memory})
      wrong += said(comm.register_memory(memory->data(), memory->size()));
    wrong += said(comm.prepare(mine.request()));
    const std::string prepared = comm.describe();
    if (prepared.find("+direct") == std::string::npos) wrong += prepared;
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t replay = nullptr;
    wrong += said(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    wrong += mine.start(comm, stream);
    wrong += said(cudaStreamEndCapture(stream, &graph));
    wrong += said(cudaGraphInstantiate(&replay, graph, 0));
    for (int i = 0; i < 3; ++i) wrong += said(cudaGraphLaunch(replay, stream));
    wrong += mine.finish(comm, stream);
    if (comm.describe() != prepared) wrong += "something was made that was not prepared";
    cudaGraphExecDestroy(replay);
    cudaGraphDestroy(graph);
    for (const exec::CudaMemory* memory : {&buffers.input_memory, &buffers.output_memory})
      wrong += said(comm.deregister_memory(memory->data()));
    return wrong;
  });
  CHECK(complaint == "");
}

}  // namespace
}  // namespace tutti
