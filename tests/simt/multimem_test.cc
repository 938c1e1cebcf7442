// Multicast memory: all-reduce and broadcast on it, and what it is refused for. The switch's order
// is not ours, so numbers are small ones whose sums are exact in any order.
#include <random>
#include <string>
#include <vector>

#include "cuda/driver/multicast.h"
#include "simt/fused_cases.h"
#include "support/catch.h"
#include "support/sample.h"

namespace tutti {
namespace {

using test::Buffer;
using test::Case;
using test::DeviceRanks;
using test::said;

using test::kBytes;
constexpr std::size_t kRounds = 3;

exec::CudaMeshOptions options_for(int ranks) {
  exec::CudaMeshOptions options;
  for (int rank = 0; rank < ranks; ++rank) options.devices.push_back(rank);
  options.lanes = 3;
  options.slot_bytes = 1024;
  options.threads = 64;
  return options;
}

TEST_CASE("all-reduce on multicast memory") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (int n = 1; n <= 8; ++n) {
    const exec::CudaMeshOptions options = options_for(n);
    std::string complaint;
    const auto ranks = DeviceRanks::open(options, complaint);
    REQUIRE(complaint == "");
    const auto memory = exec::CudaMulticast::create(options.devices, kBytes, options.lanes);
    REQUIRE(memory);
    for (const DataType type : {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16}) {
      Case test;
      test.type = type;
      test.ranks = n;
      test.exact = true;
      test.in_place = random() % 2 == 0;
      const std::size_t unit = 16 / size_of(type);
      test.count = random() % 3000 / unit * unit;
      test::shuffle_threads(random() % 2 == 0 ? 0 : random());
      REQUIRE(test::run_multimem(*ranks, **memory, test, random()) == "");
    }
  }
  test::shuffle_threads(0);
}

TEST_CASE("broadcast on multicast memory, from any root") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (const int n : {1, 2, 3, 8}) {
    const exec::CudaMeshOptions options = options_for(n);
    std::string complaint;
    const auto ranks = DeviceRanks::open(options, complaint);
    REQUIRE(complaint == "");
    const auto memory = exec::CudaMulticast::create(options.devices, kBytes, options.lanes);
    REQUIRE(memory);
    const auto root = static_cast<std::size_t>(random()) % static_cast<std::size_t>(n);
    const std::size_t bytes = random() % 9000 / 16 * 16;
    Case test;
    test.type = DataType::kUint8;
    test.ranks = n;
    test.count = bytes;
    test::shuffle_threads(random());
    // The root's input is in its own part of the memory, or elsewhere.
    const bool inside = random() % 2 == 0;
    std::vector<std::vector<Buffer>> inputs;
    for (std::size_t round = 0; round < kRounds; ++round) {
      inputs.push_back(DeviceRanks::make_inputs(test, random()));
    }
    auto results = inputs;
    const auto buffers = ranks->make_buffers(test, inputs[0]);
    complaint = ranks->each([&](std::size_t rank) {
      std::byte* input = inside ? (*memory)->data(rank) : buffers[rank]->input;
      std::string wrong;
      for (std::size_t round = 0; round < kRounds; ++round) {
        ranks->copy_in(rank, input, inputs[round][rank].data(), bytes);
        wrong += said(ranks->mesh().launch_multimem_broadcast(
            static_cast<int>(rank), **memory, static_cast<int>(root), input, kBytes / 2, bytes,
            ranks->stream(rank)));
        ranks->copy_out(rank, results[round][rank].data(), (*memory)->data(rank) + kBytes / 2,
                        bytes);
      }
      return wrong;
    });
    REQUIRE(complaint == "");
    for (std::size_t round = 0; round < kRounds; ++round) {
      for (std::size_t rank = 0; rank < static_cast<std::size_t>(n); ++rank) {
        INFO(n << " ranks, root " << root << ", rank " << rank << ", call " << round);
        REQUIRE(results[round][rank] == inputs[round][root]);
      }
    }
  }
  test::shuffle_threads(0);
}

TEST_CASE("multicast memory takes whole granules of a device, and no more") {
  std::size_t before = 0, after = 0, total = 0;
  for (const std::size_t bytes : {std::size_t{1}, std::size_t{5} << 20}) {
    cudaMemGetInfo(&before, &total);
    const auto memory = exec::CudaMulticast::create({0, 1}, bytes, 4);
    REQUIRE(memory);
    cudaMemGetInfo(&after, &total);
    CHECK(before - after >= bytes);
    CHECK(before - after < bytes + (std::size_t{2} << 20) + 4096);
  }
}

TEST_CASE("what multicast memory can't do is refused") {
  const auto twice = exec::CudaMulticast::create({0, 0}, kBytes, 1);
  REQUIRE(!twice);
  REQUIRE(twice.error().what == "multicast memory: each rank needs a device of its own");
  const exec::CudaMeshOptions options = options_for(2);
  std::string complaint;
  const auto ranks = DeviceRanks::open(options, complaint);
  REQUIRE(complaint == "");
  const auto memory = exec::CudaMulticast::create(options.devices, kBytes, options.lanes);
  REQUIRE(memory);
  const auto refused = [&](DataType type, std::size_t input, std::size_t count) {
    const Status status = ranks->mesh().launch_multimem_all_reduce(0, **memory, type, input, 0,
                                                                   count, ranks->stream(0));
    return status ? "" : status.error().what;
  };
  REQUIRE(refused(DataType::kFloat64, 0, 4) ==
          "a multimem all-reduce of float64; it takes float32, float16 and bfloat16");
  REQUIRE(refused(DataType::kFloat32, 0, 3) ==
          "a multimem all-reduce: 12 bytes at 0; multiples of 16 within 524288 are possible");
  REQUIRE(refused(DataType::kFloat32, kBytes, 4) ==
          "a multimem all-reduce: 16 bytes at 524288; multiples of 16 within 524288 are possible");
}

}  // namespace
}  // namespace tutti
