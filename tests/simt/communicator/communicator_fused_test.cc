// What communicators of devices do with a sum: all-reduce with residual and RMSNorm, fused where
// memory is registered and composed where it is not; reduce-scatter with a step of SGD; and
// registering itself. Against their parts on the host, bit for bit.
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "simt/communicator/device_communicators.h"
#include "simt/fused_cases.h"
#include "support/catch.h"
#include "support/sample.h"

namespace tutti {
namespace {

using test::Buffer;
using test::Case;
using test::DeviceCluster;
using test::DeviceRanks;
using test::each;
using test::said;

constexpr DataType kTypes[] = {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16};
const unsigned kMeshThreads = exec::CudaMeshOptions{}.threads;

/// Input, residual, output and weight of a rank, one behind the other in one allocation.
struct Norm {
  Norm(int device, const test::NormCase& norm, const Buffer& in, const Buffer& old,
       const Buffer& scale, bool mapped)
      : bytes((in.size() + 255) / 256 * 256) {
    auto made = (mapped ? exec::CudaMemory::allocate_for_peers : exec::CudaMemory::allocate)(
        device, 3 * bytes + 256 + scale.size());
    if (!made) return;
    memory = std::move(*made);
    static_cast<void>(memory.write(0, in.data(), in.size()));
    static_cast<void>(memory.write(bytes, old.data(), old.size()));
    static_cast<void>(memory.write(3 * bytes, scale.data(), scale.size()));
    call.input = memory.data();
    call.residual = memory.data() + bytes;
    call.output = memory.data() + (norm.in_place ? 0 : 2 * bytes);
    call.weight = memory.data() + 3 * bytes;
    call.rows = norm.rows;
    call.columns = norm.columns;
    call.type = norm.type;
    call.epsilon = norm.epsilon;
  }
  std::string differs(const Buffer& residual, const Buffer& output) const {
    Buffer sums(residual.size()), rows(output.size());
    std::string wrong = said(memory.read(bytes, sums.data(), sums.size()));
    const auto* at = static_cast<const std::byte*>(call.output);
    wrong +=
        said(memory.read(static_cast<std::size_t>(at - memory.data()), rows.data(), rows.size()));
    if (!wrong.empty()) return wrong;
    return sums != residual ? "another residual" : rows != output ? "another output" : "";
  }

  std::size_t bytes;
  exec::CudaMemory memory;
  RmsNorm call;
};

std::string run_norm(DeviceCluster& cluster, const test::NormCase& norm, bool registered,
                     std::uint64_t seed) {
  const int n = static_cast<int>(cluster.comms.size());
  const Case test = test::case_for(norm.type, n, norm.rows * norm.columns);
  const auto inputs = DeviceRanks::make_inputs(test, seed);
  Buffer residual = DeviceRanks::make_inputs(test::case_for(norm.type, 1, test.count), seed + 9)[0];
  const Buffer old = residual, weight = DeviceRanks::make_inputs(
                                   test::case_for(norm.type, 1, norm.columns), seed + 8)[0];
  Buffer output;
  test::norm_reference(norm, test::expected(test, 0, inputs), weight, residual, output,
                       kMeshThreads);
  return each(cluster, [&](std::size_t rank) {
    DeviceCommunicator& comm = cluster.comms[rank];
    // Its memory is the runtime's, or mapped by the driver.
    Norm mine(comm.device(), norm, inputs[rank], old, weight, seed % 2 == 0);
    if (mine.memory.data() == nullptr) return std::string("no memory");
    std::string wrong;
    if (registered) wrong += said(comm.register_memory(mine.memory.data(), 3 * mine.bytes + 16));
    wrong += said(comm.all_reduce_rms_norm(mine.call, cluster.streams[rank]));
    wrong += said(cudaStreamSynchronize(cluster.streams[rank]));
    wrong += said(comm.check());
    if (registered) wrong += said(comm.deregister_memory(mine.memory.data()));
    return wrong.empty() ? mine.differs(residual, output) : wrong;
  });
}

TEST_CASE("all-reduce with residual and RMSNorm, of any size, registered or not") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (const int n : {1, 2, 3, 8}) {
    std::vector<int> devices;
    for (int rank = 0; rank < n; ++rank) devices.push_back(rank % 4);
    DeviceCluster cluster(devices);
    REQUIRE(cluster.complaint == "");
    for (const DataType type : kTypes) {
      // What one shot takes, and what takes many slots.
      for (const std::size_t rows : {std::size_t{1}, 2 + random() % 20}) {
        const test::NormCase norm{type, rows, cuda::unit_elements(type) * (1 + random() % 100),
                                  random() % 2 == 0 ? 0.25F : 1e-5F, random() % 2 == 0};
        test::shuffle_threads(random() % 2 == 0 ? 0 : random());
        test::check_access(!test::kSanitized && random() % 4 == 0);
        const std::uint64_t data = random();
        for (const bool registered : {true, false}) {
          INFO(to_string(type) << ", " << n << " ranks, " << norm.rows << " x " << norm.columns
                               << ", registered " << registered);
          REQUIRE(run_norm(cluster, norm, registered, data) == "");
        }
      }
    }
  }
  test::check_access(false);
  test::shuffle_threads(0);
}

TEST_CASE("the kernel of its own is taken where memory is registered, and only there") {
  DeviceCluster cluster({0, 1, 2});
  REQUIRE(cluster.complaint == "");
  const test::NormCase norm{DataType::kFloat32, 40, 400, 0.25F, false};  // No one-shot takes it.
  const auto chosen = [&] {
    return cluster.comms[1].describe().find("plans: none chosen yet") == std::string::npos;
  };
  REQUIRE(run_norm(cluster, norm, true, 1) == "");
  CHECK(!chosen());
  REQUIRE(run_norm(cluster, norm, false, 1) == "");
  CHECK(chosen());
}

/// Gradients, then parameters; and a rank's state.
std::string run_sgd(DeviceCluster& cluster, const test::SgdCase& sgd, std::uint64_t seed) {
  const int n = static_cast<int>(cluster.comms.size());
  const Case test = test::case_for(sgd.type, n, sgd.count);
  const auto gradients = DeviceRanks::make_inputs(test, seed);
  std::vector<float> all;
  std::vector<std::vector<float>> masters;
  for (int rank = 0; rank < n; ++rank) {
    const auto piece = plan::piece_of(sgd.count, static_cast<std::uint32_t>(n),
                                      static_cast<std::uint32_t>(rank), cuda::grain_of(sgd.type));
    masters.push_back(test::widened(
        DataType::kFloat32,
        DeviceRanks::make_inputs(test::case_for(DataType::kFloat32, 1, piece.count), seed + 7)[0]));
    std::vector<float> master = masters.back(), momentum(piece.count, 0.0F);
    test::sgd_reference(sgd, gradients, piece, master, momentum);
    all.insert(all.end(), master.begin(), master.end());
  }
  const Buffer want = test::rounded(sgd.type, all);
  return each(cluster, [&](std::size_t rank) -> std::string {
    DeviceCommunicator& comm = cluster.comms[rank];
    const auto piece = comm.sgd_piece(sgd.count, sgd.type);
    if (piece.count != masters[rank].size()) return "another piece";
    const std::size_t bytes = (want.size() + 255) / 256 * 256;
    const std::size_t state_bytes = (piece.count * sizeof(float) + 255) / 256 * 256 + 256;
    auto memory = exec::CudaMemory::allocate(comm.device(), 2 * bytes + 256);
    auto state = exec::CudaMemory::allocate(comm.device(), 2 * state_bytes);
    if (!memory || !state) return "no memory";
    std::string wrong = said(memory->write(0, gradients[rank].data(), gradients[rank].size()));
    wrong += said(state->write(0, masters[rank].data(), piece.count * sizeof(float)));
    SgdStep step;
    step.gradients = memory->data();
    step.parameters = memory->data() + bytes;
    step.count = sgd.count;
    step.type = sgd.type;
    step.master = reinterpret_cast<float*>(state->data());
    step.momentum = reinterpret_cast<float*>(state->data() + state_bytes);
    step.learning_rate = sgd.learning_rate;
    step.momentum_factor = sgd.momentum;
    step.weight_decay = sgd.decay;
    if (const Status early = comm.sgd_step(step, cluster.streams[rank]);
        early || early.error().code != Code::kUnsupported)
      return "memory that is not registered was taken";
    wrong += said(comm.register_memory(memory->data(), memory->size()));
    wrong += said(comm.sgd_step(step, cluster.streams[rank]));
    wrong += said(cudaStreamSynchronize(cluster.streams[rank]));
    wrong += said(comm.check());
    Buffer got(want.size());
    wrong += said(memory->read(bytes, got.data(), got.size()));
    wrong += said(comm.deregister_memory(memory->data()));
    return wrong.empty() && got != want ? "other parameters" : wrong;
  });
}

TEST_CASE("a step of SGD on registered memory, of any size") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (const int n : {1, 2, 5}) {
    std::vector<int> devices;
    for (int rank = 0; rank < n; ++rank) devices.push_back(rank % 4);
    DeviceCluster cluster(devices);
    REQUIRE(cluster.complaint == "");
    for (const DataType type : kTypes) {
      const test::SgdCase sgd{type, 1 + random() % (random() % 2 == 0 ? 50 : 9000), 0.125F,
                              random() % 2 == 0 ? 0.9F : 0.0F, random() % 2 == 0 ? 0.01F : 0.0F};
      INFO(to_string(type) << ", " << n << " ranks, " << sgd.count);
      REQUIRE(run_sgd(cluster, sgd, random()) == "");
    }
  }
}

TEST_CASE("what is wrong with memory or a call is said on all ranks") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint == "");
  const auto said_of = [](const Status& status) { return status ? "" : status.error().what; };
  const std::string complaint = each(cluster, [&](std::size_t rank) -> std::string {
    DeviceCommunicator& comm = cluster.comms[rank];
    auto memory = exec::CudaMemory::allocate(comm.device(), 4096);
    if (!memory) return "no memory";
    const auto expect = [&](const std::string& what, const std::string& want) {
      return what.find(want) != std::string::npos ? "" : "\"" + want + "\" is not said: " + what;
    };
    std::string wrong = expect(said_of(comm.register_memory(memory->data(), 1024 * (1 + rank))),
                               "register_memory: ");
    wrong += expect(said_of(comm.register_memory(rank == 0 ? nullptr : memory->data(), 1024)),
                    "no memory given");
    // Refused: memory of the host, of another device, if there is one, and more than there is.
    std::vector<std::byte> of_host(4096);
    const int another = test::device_of(comm.device() + 1);
    auto of_another = exec::CudaMemory::allocate(another, 4096);
    if (!of_another) return "no memory";
    const std::string not_all = "not all are memory of device " + std::to_string(comm.device());
    wrong += expect(said_of(comm.register_memory(of_host.data(), 4096)), not_all);
    if (another != comm.device())
      wrong += expect(said_of(comm.register_memory(of_another->data(), 4096)), not_all);
    wrong += expect(said_of(comm.register_memory(memory->data(), std::size_t{1} << 40)), not_all);
    wrong += said(comm.register_memory(memory->data(), 4096));
    wrong += expect(said_of(comm.register_memory(memory->data() + 64, 64)), "registered already");
    wrong += expect(said_of(comm.deregister_memory(memory->data() + 64)), "is not registered");
    RmsNorm call{memory->data(), memory->data(), memory->data(), memory->data(), 1, 3};
    wrong += expect(said_of(comm.all_reduce_rms_norm(call, nullptr)), "rows of 3 float32");
    call.type = DataType::kInt32;
    wrong += expect(said_of(comm.all_reduce_rms_norm(call, nullptr)), "of int32; it takes");
    SgdStep step{};
    step.gradients = step.parameters = memory->data();
    step.count = (std::size_t{1} << 62) + 16;  // Times four it is the 64 bytes that are there.
    wrong += expect(said_of(comm.sgd_step(step, nullptr)), "up to 2^46 can be");
    for (const std::size_t count : {step.count, ~std::size_t{0}}) {
      if (const auto piece = comm.sgd_piece(count, step.type); piece.first + piece.count != 0)
        wrong += "a piece of what no memory holds";
    }
    call.type = DataType::kFloat32;
    call.weight = nullptr;
    wrong += expect(said_of(comm.all_reduce_rms_norm(call, nullptr)), "a buffer is null");
    Group group;
    wrong += expect(said_of(comm.all_reduce_rms_norm(call, nullptr)), "not for groups");
    wrong += said(group.end());
    // The communicator closes what nobody deregistered.
    return wrong;
  });
  CHECK(complaint == "");
}

TEST_CASE("ranks that would deregister different memory are told so, and none is deregistered") {
  DeviceCluster cluster({0, 1, 2});
  REQUIRE(cluster.complaint == "");
  const std::string complaint = each(cluster, [&](std::size_t rank) -> std::string {
    DeviceCommunicator& comm = cluster.comms[rank];
    auto one = exec::CudaMemory::allocate(comm.device(), 1024);
    auto other = exec::CudaMemory::allocate(comm.device(), 1024);
    if (!one || !other) return "no memory";
    std::string wrong = said(comm.register_memory(one->data(), 1024));
    wrong += said(comm.register_memory(other->data(), 1024));
    const Status mixed = comm.deregister_memory(rank == 1 ? other->data() : one->data());
    if (mixed || mixed.error().code != Code::kMismatch) wrong += "different memory was taken";
    // In another order than they were registered, alike on all.
    wrong += said(comm.deregister_memory(one->data()));
    wrong += said(comm.deregister_memory(other->data()));
    return wrong;
  });
  CHECK(complaint == "");
}

#if !defined(TUTTI_GPU)
TEST_CASE("memory of devices that don't reach each other is not registered, and calls go on") {
  const test::NoPeerAccess none;
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint == "");
  const auto memory = exec::CudaMemory::allocate(0, 64);
  REQUIRE(memory);
  const Status status = cluster.comms[0].register_memory(memory->data(), 64);
  REQUIRE(!status);
  CHECK(status.error().code == Code::kUnsupported);
  CHECK(run_norm(cluster, {DataType::kFloat32, 5, 40, 0.25F, false}, false, 1) == "");
}
#endif

}  // namespace
}  // namespace tutti
