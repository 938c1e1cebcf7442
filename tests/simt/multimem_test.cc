// Multicast memory: how an object comes about, what it is refused for, and all collectives over it,
// of buffers in it and of others. Sums by the switch are of small numbers, which are exact in any
// order; the other ones have the bits of the reference.
#include <random>
#include <string>
#include <vector>

#include "cuda/driver/multicast.h"
#include "simt/multimem_cases.h"
#include "support/catch.h"
#include "support/sample.h"

namespace tutti {
namespace {

using test::Case;
using test::DeviceRanks;
using test::Lies;
using test::MulticastRanks;
using test::said;

constexpr std::size_t kHalf = std::size_t{512} << 10;
constexpr std::size_t kGranule = std::size_t{2} << 20;

exec::CudaMeshOptions options_for(int ranks) {
  exec::CudaMeshOptions options;
  for (int rank = 0; rank < ranks; ++rank) options.devices.push_back(rank);
  options.lanes = 3;
  options.slot_bytes = 1024;
  options.threads = 64;
  return options;
}

TEST_CASE("collectives over multicast memory, from plain buffers and from such memory") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  const std::vector<int> counts = test::kSanitized ? std::vector{3, 8} : std::vector{1, 2, 3, 5, 8};
  for (const int n : counts) {
    const exec::CudaMeshOptions options = options_for(n);
    std::string complaint;
    const auto ranks = DeviceRanks::open(options, complaint);
    REQUIRE(complaint == "");
    MulticastRanks memory(*ranks, n, kHalf, options.lanes, complaint);
    REQUIRE(complaint == "");
    for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter,
                                        Collective::kAllGather, Collective::kBroadcast}) {
      for (const bool any_order : {false, true}) {
        for (const DataType type :
             {DataType::kFloat32, DataType::kFloat16, DataType::kBfloat16, DataType::kUint8}) {
          Case test;
          test.collective = collective;
          test.type = type;
          test.ranks = n;
          test.root = static_cast<int>(random() % static_cast<unsigned>(n));
          test.op = !any_order && random() % 2 == 0 ? ReduceOp::kAvg : ReduceOp::kSum;
          test.exact = any_order;
          Lies lies{random() % 2 == 0, random() % 2 == 0};
          lies.input = lies.input && reduces(collective);
          lies.output = lies.output && collective != Collective::kReduceScatter;
          test.count = 1 + random() % 6000;
          // What lies there is of whole vectors.
          if (lies.input || lies.output) test.count = (test.count + 15) / 16 * 16;
          test.in_place = !lies.input && !lies.output && random() % 2 == 0;
          test.misalign = random() % 3 == 0 ? size_of(type) : 0;
          const exec::CudaMultimem how{collective, test.root, any_order};
          if (!ranks->mesh().takes_multimem(type, test.op, how)) continue;
          INFO("input there: " << lies.input << ", output there: " << lies.output << ", any order "
                               << any_order);
          test::shuffle_threads(random() % 2 == 0 ? 0 : random());
          REQUIRE(memory.run(test, any_order, lies, random()) == "");
        }
      }
    }
  }
  test::shuffle_threads(0);
}

TEST_CASE("what is not taken over multicast memory") {
  std::string complaint;
  const auto ranks = DeviceRanks::open(options_for(2), complaint);
  REQUIRE(complaint == "");
  const auto takes = [&](Collective collective, DataType type, ReduceOp op, bool any_order) {
    return ranks->mesh().takes_multimem(type, op, {collective, 0, any_order});
  };
  CHECK(takes(Collective::kAllReduce, DataType::kFloat32, ReduceOp::kSum, true));
  CHECK(takes(Collective::kAllReduce, DataType::kFloat16, ReduceOp::kAvg, false));
  CHECK(takes(Collective::kBroadcast, DataType::kFloat64, ReduceOp::kSum, false));
  CHECK_FALSE(takes(Collective::kAllReduce, DataType::kFloat64, ReduceOp::kSum, true));
  CHECK_FALSE(takes(Collective::kAllReduce, DataType::kFloat32, ReduceOp::kAvg, true));
  CHECK_FALSE(takes(Collective::kAllReduce, DataType::kFloat32, ReduceOp::kMax, false));
  CHECK_FALSE(takes(Collective::kReduceScatter, DataType::kFloat32, ReduceOp::kSum, false));
  CHECK_FALSE(takes(Collective::kAllToAll, DataType::kFloat32, ReduceOp::kSum, true));
  const Status refused =
      ranks->mesh().launch_multimem(0, {}, {Collective::kAllToAll}, {}, ranks->stream(0));
  REQUIRE(!refused);
  CHECK(refused.error().what == "a collective over multicast memory: all_to_all of float32 by sum");
}

TEST_CASE("a multicast object is bound once all devices were added, and as a whole") {
  exec::CudaMulticastName name;
  auto odd = exec::CudaMulticast::make(2, 12345, name);
  REQUIRE(!odd);
  CHECK(odd.error().what == "multicast memory: 12345 bytes; multiples of 2097152 are possible");
  auto first = exec::CudaMulticast::make(2, kGranule, name);
  REQUIRE(first);
  auto second = exec::CudaMulticast::open(name, kGranule, Deadline::after(std::chrono::minutes(5)));
  REQUIRE(second);
  auto memory = exec::CudaMemory::allocate_for_peers(0, kGranule);
  REQUIRE(memory);
  REQUIRE(first->add(0));
  CHECK_FALSE(second->add(0));               // A device twice.
  CHECK_FALSE(first->bind(memory->data()));  // The other one is not there yet.
  REQUIRE(second->add(1));
  REQUIRE(first->bind(memory->data()));
  CHECK_FALSE(first->bind(memory->data()));
  CHECK(first->map());
}

TEST_CASE("what was bound to a multicast object is free when all have left it") {
  std::size_t before = 0, after = 0, total = 0;
  cudaMemGetInfo(&before, &total);
  {
    std::string complaint;
    const auto ranks = DeviceRanks::open(options_for(2), complaint);
    const MulticastRanks memory(*ranks, 2, kHalf, 3, complaint);
    REQUIRE(complaint == "");
    cudaMemGetInfo(&after, &total);
    CHECK(after < before);
  }
  cudaMemGetInfo(&after, &total);
  CHECK(after == before);
}

}  // namespace
}  // namespace tutti
