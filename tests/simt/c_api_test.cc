// The C API for memory of GPUs (cuda.h): every function with a stream against the reference on the
// host, and what else it says of a communicator.
#include <array>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "tutti/cuda.h"

namespace tutti {
namespace {

using test::Case;
using test::DeviceCase;
using test::said;

constexpr int kRanks = 3;

/// A communicator for each of three ranks, the last two on one device, and a stream each.
struct Ranks {
  Ranks() {
    setenv("TUTTI_LANES", "2", 1);
    setenv("TUTTI_SLOT_BYTES", "2048", 1);
    const std::array devices{0, 1, 1};
    REQUIRE(tutti_device_comm_init_all(comms.data(), devices.data(), kRanks) == TUTTI_OK);
    unsetenv("TUTTI_LANES");
    unsetenv("TUTTI_SLOT_BYTES");
    for (std::size_t rank = 0; rank < kRanks; ++rank)
      streams[rank] = test::new_stream(devices[rank]);
  }
  ~Ranks() {
    for (tutti_device_comm_t comm : comms) tutti_device_comm_destroy(comm);
    for (cudaStream_t stream : streams) cudaStreamDestroy(stream);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  std::array<tutti_device_comm_t, kRanks> comms{};
  std::array<cudaStream_t, kRanks> streams{};
};

/// A rank's call of one function, as the request says.
using OnStream = tutti_result_t (*)(tutti_device_comm_t, const Request&, void* stream);

struct Function {
  const char* name;
  Collective collective;
  ReduceOp op;
  OnStream call;
};

constexpr int kType = TUTTI_FLOAT32;
constexpr std::size_t kCount = 1500;  // Several slots.
constexpr int kRoot = 2;

// Messages are a broadcast: the root sends to all, itself included.
tutti_result_t by_messages(tutti_device_comm_t comm, const Request& of, void* stream) {
  int rank = 0;
  tutti_result_t result = tutti_device_comm_rank(comm, &rank);
  for (int to = 0; rank == kRoot && to < kRanks && result == TUTTI_OK; ++to)
    result = tutti_send_on_stream(comm, of.input, of.count, kType, to, stream);
  if (result == TUTTI_OK)
    result = tutti_recv_on_stream(comm, of.output, of.count, kType, kRoot, stream);
  return result;
}

// clang-format off
const Function kFunctions[] = {
    {"all_reduce", Collective::kAllReduce, ReduceOp::kMax,
     [](tutti_device_comm_t comm, const Request& of, void* stream) {
       return tutti_all_reduce_on_stream(comm, of.input, of.output, of.count, kType, TUTTI_MAX,
                                         stream);
     }},
    {"all_reduce_pre_mul_sum", Collective::kAllReduce, ReduceOp::kPreMulSum,
     [](tutti_device_comm_t comm, const Request& of, void* stream) {
       return tutti_all_reduce_pre_mul_sum_on_stream(comm, of.input, of.output, of.count, kType,
                                                     of.reduction.scale, stream);
     }},
    {"reduce_scatter", Collective::kReduceScatter, ReduceOp::kMin,
     [](tutti_device_comm_t comm, const Request& of, void* stream) {
       return tutti_reduce_scatter_on_stream(comm, of.input, of.output, of.count, kType, TUTTI_MIN,
                                             stream);
     }},
    {"reduce_scatter_pre_mul_sum", Collective::kReduceScatter, ReduceOp::kPreMulSum,
     [](tutti_device_comm_t comm, const Request& of, void* stream) {
       return tutti_reduce_scatter_pre_mul_sum_on_stream(comm, of.input, of.output, of.count, kType,
                                                         of.reduction.scale, stream);
     }},
    {"all_gather", Collective::kAllGather, ReduceOp::kSum,
     [](tutti_device_comm_t comm, const Request& of, void* stream) {
       return tutti_all_gather_on_stream(comm, of.input, of.output, of.count, kType, stream);
     }},
    {"broadcast", Collective::kBroadcast, ReduceOp::kSum,
     [](tutti_device_comm_t comm, const Request& of, void* stream) {
       return tutti_broadcast_on_stream(comm, of.input, of.output, of.count, kType, kRoot, stream);
     }},
    {"reduce", Collective::kReduce, ReduceOp::kProd,
     [](tutti_device_comm_t comm, const Request& of, void* stream) {
       return tutti_reduce_on_stream(comm, of.input, of.output, of.count, kType, TUTTI_PROD, kRoot,
                                     stream);
     }},
    {"reduce_pre_mul_sum", Collective::kReduce, ReduceOp::kPreMulSum,
     [](tutti_device_comm_t comm, const Request& of, void* stream) {
       return tutti_reduce_pre_mul_sum_on_stream(comm, of.input, of.output, of.count, kType,
                                                 of.reduction.scale, kRoot, stream);
     }},
    {"gather", Collective::kGather, ReduceOp::kSum,
     [](tutti_device_comm_t comm, const Request& of, void* stream) {
       return tutti_gather_on_stream(comm, of.input, of.output, of.count, kType, kRoot, stream);
     }},
    {"scatter", Collective::kScatter, ReduceOp::kSum,
     [](tutti_device_comm_t comm, const Request& of, void* stream) {
       return tutti_scatter_on_stream(comm, of.input, of.output, of.count, kType, kRoot, stream);
     }},
    {"all_to_all", Collective::kAllToAll, ReduceOp::kSum,
     [](tutti_device_comm_t comm, const Request& of, void* stream) {
       return tutti_all_to_all_on_stream(comm, of.input, of.output, of.count, kType, stream);
     }},
    {"scan", Collective::kScan, ReduceOp::kSum,
     [](tutti_device_comm_t comm, const Request& of, void* stream) {
       return tutti_scan_on_stream(comm, of.input, of.output, of.count, kType, TUTTI_SUM, stream);
     }},
    {"exclusive_scan", Collective::kExclusiveScan, ReduceOp::kMax,
     [](tutti_device_comm_t comm, const Request& of, void* stream) {
       return tutti_exclusive_scan_on_stream(comm, of.input, of.output, of.count, kType, TUTTI_MAX,
                                             stream);
     }},
    {"send, recv", Collective::kBroadcast, ReduceOp::kSum, by_messages},
};
// clang-format on

TEST_CASE("every function with a stream, in a group of all ranks, and in the second call too") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  const Ranks ranks;
  for (const Function& function : kFunctions) {
    INFO(function.name);
    Case test;
    test.collective = function.collective;
    test.op = function.op;
    test.count = kCount;
    test.ranks = kRanks;
    test.root = kRoot;
    for (const std::uint64_t round : {0U, 1U}) {
      std::vector<std::unique_ptr<DeviceCase>> cases;
      REQUIRE(tutti_group_start() == TUTTI_OK);
      for (std::size_t rank = 0; rank < kRanks; ++rank) {
        cases.push_back(std::make_unique<DeviceCase>(test, rank, rank == 0 ? 0 : 1, seed + round));
        INFO(tutti_last_error());
        CHECK(function.call(ranks.comms[rank], cases.back()->request(), ranks.streams[rank]) ==
              TUTTI_OK);
      }
      INFO(tutti_last_error());
      REQUIRE(tutti_group_end() == TUTTI_OK);
      for (std::size_t rank = 0; rank < kRanks; ++rank) {
        REQUIRE(said(cudaStreamSynchronize(ranks.streams[rank])) == "");
        CHECK(tutti_device_comm_check(ranks.comms[rank]) == TUTTI_OK);
        CHECK(cases[rank]->compare() == "");
      }
    }
    // A handle that is none is an error of each.
    CHECK(function.call(nullptr, Request{}, nullptr) == TUTTI_INVALID_ARGUMENT);
  }
}

TEST_CASE("calls in C go over the wire that the communicator was told of") {
  const Ranks ranks;
  for (tutti_device_comm_t comm : ranks.comms)
    REQUIRE(tutti_device_comm_use_wire(comm, "int8") == TUTTI_OK);
  CHECK(tutti_device_comm_use_wire(ranks.comms[0], "int4") == TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_device_comm_use_wire(nullptr, "int8") == TUTTI_INVALID_ARGUMENT);
  std::size_t needed = 0;
  REQUIRE(tutti_device_comm_explain(ranks.comms[0], "all_reduce", kCount, kType, 0, nullptr, 0,
                                    &needed) == TUTTI_OK);
  std::string text(needed, ' ');
  REQUIRE(tutti_device_comm_explain(ranks.comms[0], "all_reduce", kCount, kType, 0, text.data(),
                                    text.size(), nullptr) == TUTTI_OK);
  CHECK(text.find("float32 as int8") != std::string::npos);
  for (const char* name : {"int8", "plain"}) {
    Case test = test::all_reduce_of(kCount, kRanks);
    if (std::string_view(name) == "int8") test.wire = WireFormat::kInt8;
    test.wire_call = 1;
    std::vector<std::unique_ptr<DeviceCase>> cases;
    for (std::size_t rank = 0; rank < kRanks; ++rank)
      cases.push_back(std::make_unique<DeviceCase>(test, rank, rank == 0 ? 0 : 1, 3));
    REQUIRE(tutti_group_start() == TUTTI_OK);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const Request of = cases[rank]->request();
      REQUIRE(tutti_device_comm_use_wire(ranks.comms[rank], name) == TUTTI_OK);
      REQUIRE(tutti_all_reduce_on_stream(ranks.comms[rank], of.input, of.output, of.count, kType,
                                         TUTTI_SUM, ranks.streams[rank]) == TUTTI_OK);
    }
    REQUIRE(tutti_group_end() == TUTTI_OK);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      REQUIRE(said(cudaStreamSynchronize(ranks.streams[rank])) == "");
      CHECK(tutti_device_comm_check(ranks.comms[rank]) == TUTTI_OK);
      CHECK(cases[rank]->compare() == "");
    }
  }
}

/// Puts the rank's number to the next rank's window, behind where it has its own.
bool puts_around(tutti_device_comm_t comm, float* window, cudaStream_t stream) {
  int rank = 0;
  bool good = tutti_device_comm_rank(comm, &rank) == TUTTI_OK;
  const int next = (rank + 1) % kRanks, before = (rank + kRanks - 1) % kRanks;
  const auto own = static_cast<float>(rank);
  float got = -1;
  good = cudaMemcpy(window, &own, sizeof own, cudaMemcpyHostToDevice) == cudaSuccess && good;
  // All are done with what the call before had there.
  good = tutti_signal_on_stream(comm, before, 1, stream) == TUTTI_OK && good;
  good = tutti_wait_signal_on_stream(comm, next, 1, 1, stream) == TUTTI_OK && good;
  good =
      tutti_put_on_stream(comm, window, window + 1, sizeof own, next, stream) == TUTTI_OK && good;
  good = tutti_signal_on_stream(comm, next, 0, stream) == TUTTI_OK && good;
  good = tutti_wait_signal_on_stream(comm, before, 0, 1, stream) == TUTTI_OK && good;
  good = tutti_signal_on_stream(comm, next, 64, stream) == TUTTI_INVALID_ARGUMENT && good;
  good = cudaStreamSynchronize(stream) == cudaSuccess && good;
  good = cudaMemcpy(&got, window + 1, sizeof got, cudaMemcpyDeviceToHost) == cudaSuccess && good;
  return good && got == static_cast<float>(before);
}

/// An all-reduce on a window of memory of the library's.
bool reduces_in_a_window(tutti_device_comm_t comm, int device, cudaStream_t stream) {
  constexpr std::size_t kElements = 50000, kBytes = kElements * sizeof(float);
  void* data = nullptr;
  if (tutti_device_mem_alloc(device, &data, kBytes) != TUTTI_OK) return false;
  bool good = tutti_device_open_window(comm, data, kBytes) == TUTTI_OK;
  const std::vector<float> ones(kElements, 1);
  good = cudaMemcpy(data, ones.data(), kBytes, cudaMemcpyHostToDevice) == cudaSuccess && good;
  good = tutti_all_reduce_on_stream(comm, data, data, kElements, TUTTI_FLOAT32, TUTTI_SUM,
                                    stream) == TUTTI_OK &&
         good;
  good = cudaStreamSynchronize(stream) == cudaSuccess && good;
  std::vector<float> got(kElements);
  good = cudaMemcpy(got.data(), data, kBytes, cudaMemcpyDeviceToHost) == cudaSuccess && good;
  good = puts_around(comm, static_cast<float*>(data), stream) && good;
  good = tutti_device_close_window(comm, data) == TUTTI_OK && good;
  good = tutti_device_close_window(comm, data) == TUTTI_INVALID_ARGUMENT && good;
  good = tutti_device_mem_free(data) == TUTTI_OK && good;
  return good && got == std::vector<float>(kElements, kRanks);
}

/// What a rank's calls of the functions that go on with a sum do; true if it is the right thing.
bool go_on_with_a_sum(tutti_device_comm_t comm, int rank, int device, cudaStream_t stream) {
  constexpr std::size_t kColumns = 64, kRows = 30, kElements = kRows * kColumns;
  std::vector<float> data(kElements, static_cast<float>(rank + 1)), ones(kElements, 1),
      got(kElements);
  auto memory = exec::CudaMemory::allocate(device, 3 * kElements * sizeof(float));
  auto state = exec::CudaMemory::allocate(device, 2 * kElements * sizeof(float));
  if (!memory || !state || !memory->write(0, data.data(), sizeof(float) * kElements)) return false;
  auto* input = reinterpret_cast<float*>(memory->data());
  auto* residual = input + kElements;
  auto* output = residual + kElements;
  auto* weight = reinterpret_cast<float*>(state->data());
  if (!state->write(0, ones.data(), kColumns * sizeof(float))) return false;
  bool good = tutti_device_register_memory(comm, input, memory->size()) == TUTTI_OK;
  good = tutti_all_reduce_rms_norm_on_stream(comm, input, residual, output, weight, kRows, kColumns,
                                             TUTTI_FLOAT32, 0, stream) == TUTTI_OK &&
         good;
  good = cudaStreamSynchronize(stream) == cudaSuccess && good;
  good = memory->read(kElements * sizeof(float), got.data(), kElements * sizeof(float)) && good;
  good = good && got == std::vector<float>(kElements, 1 + 2 + 3);
  // The parameters take the place of the output.
  std::size_t first = 0, count = 0;
  good = tutti_device_sgd_piece(comm, kElements, TUTTI_FLOAT32, &first, &count) == TUTTI_OK && good;
  good = good && (rank == 0) == (first == 0) && count > 0 && count < kElements;
  std::vector<float> zeros(2 * kElements);
  good = state->write(0, zeros.data(), zeros.size() * sizeof(float)) && good;
  good = tutti_sgd_step_on_stream(comm, input, output, kElements, TUTTI_FLOAT32, weight,
                                  weight + kElements, 0.5F, 0, 0, stream) == TUTTI_OK &&
         good;
  good = cudaStreamSynchronize(stream) == cudaSuccess && good;
  good = memory->read(2 * kElements * sizeof(float), got.data(), kElements * sizeof(float)) && good;
  good = good && got == std::vector<float>(kElements, -1);
  return tutti_device_comm_check(comm) == TUTTI_OK &&
         tutti_device_deregister_memory(comm, input) == TUTTI_OK &&
         reduces_in_a_window(comm, device, stream) && good;
}

TEST_CASE("what follows a sum, on registered memory") {
  const Ranks ranks;
  std::array<bool, kRanks> good{};
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        const int device = rank == 0 ? 0 : 1;
        good[rank] = go_on_with_a_sum(ranks.comms[rank], static_cast<int>(rank), device,
                                      ranks.streams[rank]);
      });
    }
  }
  CHECK(good == std::array{true, true, true});
  std::size_t first = 0;
  std::size_t count = 0;
  CHECK(tutti_device_sgd_piece(ranks.comms[0], SIZE_MAX, TUTTI_FLOAT32, &first, &count) ==
        TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_device_sgd_piece(ranks.comms[0], 1, TUTTI_FLOAT32, &first, nullptr) ==
        TUTTI_INVALID_ARGUMENT);
}

TEST_CASE("what a communicator says of itself, preparing, and its end") {
  const Ranks ranks;
  const auto& comms = ranks.comms;
  int rank = -1, count = 0, device = -1;
  std::size_t bytes = 0;
  REQUIRE(tutti_device_comm_rank(comms[1], &rank) == TUTTI_OK);
  REQUIRE(tutti_device_comm_count(comms[1], &count) == TUTTI_OK);
  REQUIRE(tutti_device_comm_device(comms[1], &device) == TUTTI_OK);
  REQUIRE(tutti_device_comm_bytes(comms[1], &bytes) == TUTTI_OK);
  CHECK((rank == 1 && count == kRanks && device == 1 && bytes > 0));
  CHECK(tutti_device_comm_rank(comms[1], nullptr) == TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_device_comm_prepare(comms[0], "all_reduce", 1000, kType, TUTTI_SUM, 0) == TUTTI_OK);
  CHECK(tutti_device_comm_prepare(comms[0], "nothing", 1, kType, TUTTI_SUM, 0) ==
        TUTTI_INVALID_ARGUMENT);
  std::size_t needed = 0;
  REQUIRE(tutti_device_comm_explain(comms[0], "broadcast", 1000, kType, 0, nullptr, 0, &needed) ==
          TUTTI_OK);
  std::string text(needed, ' ');
  REQUIRE(tutti_device_comm_explain(comms[0], "broadcast", 1000, kType, 0, text.data(), text.size(),
                                    nullptr) == TUTTI_OK);
  CHECK(text.find("Taken: ") != std::string::npos);
  CHECK(tutti_device_comm_explain(comms[0], "nothing", 1, kType, 0, nullptr, 0, &needed) ==
        TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_device_comm_explain(comms[0], "broadcast", 1, kType, 99, nullptr, 0, &needed) ==
        TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_device_comm_abort(comms[0], "enough") == TUTTI_OK);
  CHECK(tutti_device_comm_check(comms[1]) == TUTTI_ABORTED);
  CHECK(std::string(tutti_last_error()).find("enough") != std::string::npos);
}

/// Rank 0 is left out, and comes back behind the others; empty: all is well.
std::string change_ranks(tutti_device_comm_t comm, int rank, const tutti_unique_id_t& id) {
  const int excluded = 0, device = rank == 0 ? 0 : 1;
  tutti_device_comm_t less = nullptr, grown = nullptr;
  std::array<int, kRanks> members{-1, -1, -1};
  std::uint64_t flags = 8U | 1U << rank, completed = 99;
  tutti_result_t result = tutti_device_comm_agree(comm, &flags);
  if (result == TUTTI_OK && flags != 8) return "other flags";
  if (result == TUTTI_OK && rank == 0)
    result = tutti_device_comm_init_rank(&grown, &id, 2, 3, device);
  if (result == TUTTI_OK && rank != 0) {
    result = tutti_device_comm_shrink(comm, &excluded, 1, &less, members.data(), &completed);
    if (result == TUTTI_OK && members != std::array{1, 2, -1}) return "other members";
    if (result == TUTTI_OK && completed != 2) return "completed " + std::to_string(completed);
    if (result == TUTTI_OK) result = tutti_device_comm_health(less);
    if (result == TUTTI_OK) result = tutti_device_comm_grow(less, &id, 3, &grown);
  }
  int now = -1;
  if (result == TUTTI_OK) result = tutti_device_comm_rank(grown, &now);
  if (result == TUTTI_OK && now != (rank + 2) % 3) return "another rank";
  std::string wrong = result == TUTTI_OK ? "" : tutti_last_error();
  for (tutti_device_comm_t one : {less, grown}) tutti_device_comm_destroy(one);
  return wrong;
}

/// Each rank puts an all-reduce on its stream, and waits for it.
void sum_up(const Ranks& ranks) {
  std::vector<exec::CudaMemory> memory;
  REQUIRE(tutti_group_start() == TUTTI_OK);
  for (std::size_t rank = 0; rank < kRanks; ++rank) {
    auto one = exec::CudaMemory::allocate(rank == 0 ? 0 : 1, kCount * sizeof(float));
    REQUIRE(one);
    float* const data = reinterpret_cast<float*>(memory.emplace_back(std::move(*one)).data());
    CHECK(tutti_all_reduce_on_stream(ranks.comms[rank], data, data, kCount, kType, TUTTI_SUM,
                                     ranks.streams[rank]) == TUTTI_OK);
  }
  REQUIRE(tutti_group_end() == TUTTI_OK);
  for (cudaStream_t stream : ranks.streams) CHECK(cudaStreamSynchronize(stream) == cudaSuccess);
}

TEST_CASE("ranks of devices are left out, come back, and are revoked") {
  const Ranks ranks;
  for (int call = 0; call < 2; ++call) sum_up(ranks);
  tutti_unique_id_t id;
  REQUIRE(tutti_get_unique_id(&id) == TUTTI_OK);
  std::array<std::string, kRanks> wrong;
  setenv("TUTTI_LANES", "2", 1);  // As those that there are.
  setenv("TUTTI_SLOT_BYTES", "2048", 1);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back(
          [&, rank] { wrong[rank] = change_ranks(ranks.comms[rank], static_cast<int>(rank), id); });
    }
  }
  unsetenv("TUTTI_LANES");
  unsetenv("TUTTI_SLOT_BYTES");
  CHECK(wrong == std::array<std::string, kRanks>{});
  tutti_device_comm_t made = ranks.comms[0];
  CHECK(tutti_device_comm_shrink(ranks.comms[0], nullptr, 1, &made, nullptr, nullptr) ==
        TUTTI_INVALID_ARGUMENT);
  CHECK(made == nullptr);
  CHECK(tutti_device_comm_grow(ranks.comms[0], nullptr, 3, &made) == TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_device_comm_revoke(ranks.comms[0], "new ranks") == TUTTI_OK);
  CHECK(tutti_device_comm_health(ranks.comms[1]) == TUTTI_REVOKED);
  CHECK(tutti_device_comm_check(ranks.comms[2]) == TUTTI_REVOKED);
}

}  // namespace
}  // namespace tutti
