// The two-shot all-reduce over mapped peers: what the plan `two_shot+direct` computes, for every
// type and operation, in place and not, while each rank's own stream fills its input anew.
#include <random>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "plan/passes/passes.h"
#include "plan/verify/verify.h"
#include "simt/communicator/device_ranks.h"
#include "support/catch.h"
#include "support/kinds.h"
#include "support/sample.h"

namespace tutti {
namespace {

using test::Case;
using test::DeviceRanks;

exec::CudaMeshOptions options_for(int ranks) {
  exec::CudaMeshOptions options;
  for (int rank = 0; rank < ranks; ++rank) options.devices.push_back(test::device_of(rank));
  options.lanes = 3;
  options.slot_bytes = 1024;
  options.threads = 64;
  return options;
}

std::string run(DeviceRanks& ranks, const Case& test, std::uint64_t seed) {
  return ranks.run_mapped(test, seed,
                          [&](int rank, const exec::CudaCall& call, cudaStream_t stream) {
                            return ranks.mesh().launch_two_shot(rank, call, stream);
                          });
}

TEST_CASE("the two-shot all-reduce has the bits of every other one") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (int n = 1; n <= 8; ++n) {
    std::string complaint;
    const auto ranks = DeviceRanks::open(options_for(n), complaint);
    REQUIRE(complaint == "");
    for (const DataType type : test::all_types()) {
      for (const ReduceOp op : test::all_ops()) {
        if (!is_supported(type, op) || op == ReduceOp::kPreMulSum) continue;
        if (random() % (test::kSanitized ? 32 : 4) != 0) continue;
        Case test;
        test.type = type;
        test.op = op;
        test.ranks = n;
        // Fewer elements than ranks, one block's, several blocks' with a ragged end.
        test.count = random() % (random() % 3 == 0 ? 10 : 4000);
        test.in_place = random() % 2 == 0;
        test.misalign = random() % 4 == 0 ? size_of(type) : 0;
        test::shuffle_threads(random() % 2 == 0 ? 0 : random());
        test::check_access(!test::kSanitized && random() % 4 == 0);
        REQUIRE(run(*ranks, test, random()) == "");
      }
    }
  }
  test::check_access(false);
  test::shuffle_threads(0);
}

TEST_CASE("the plan that it stands for does in one move what the kernel does") {
  for (int n = 2; n <= 8; ++n) {
    const auto two_shot =
        build(*find_algorithm(Collective::kAllReduce, "two_shot"), {Collective::kAllReduce, n});
    const auto plan = plan::direct(two_shot);
    REQUIRE(plan);
    REQUIRE(plan::verify(*plan));
    REQUIRE(plan->entry_barrier);
    for (std::size_t rank = 0; rank < plan->ranks.size(); ++rank) {
      REQUIRE(plan->ranks[rank].lanes.size() == 1);
      const plan::Lane& lane = plan->ranks[rank].lanes[0];
      std::size_t moves = 0;
      for (const plan::Step& step : lane.steps) {
        if (step.kind != plan::StepKind::kMove) continue;
        ++moves;
        REQUIRE(step.chunk == rank);
        REQUIRE(step.source_count == n);
        REQUIRE(step.target_count == n);
        for (std::size_t source = 0; source < static_cast<std::size_t>(n); ++source) {
          const plan::Location& at = lane.locations[step.first + source];
          if (source == rank) {
            REQUIRE(at.place == plan::Place::kInput);
          } else {
            REQUIRE(at.place == plan::Place::kPeerInput);
            REQUIRE(at.peer == source);
          }
        }
      }
      REQUIRE(moves == 1);
    }
  }
}

TEST_CASE("what the two-shot kernel does not take is refused") {
  std::string complaint;
  const auto ranks = DeviceRanks::open(options_for(2), complaint);
  REQUIRE(complaint == "");
  exec::CudaCall call;
  call.count = 10;
  Status status = ranks->mesh().launch_two_shot(0, call, ranks->stream(0));
  REQUIRE(!status);
  REQUIRE(status.error().what ==
          "peers' buffers are touched, and the call does not say where they are");
  call.op = ReduceOp::kPreMulSum;
  status = ranks->mesh().launch_two_shot(0, call, ranks->stream(0));
  REQUIRE(!status);
  REQUIRE(status.error().what ==
          "a two-shot all-reduce of 10 float32 by premulsum among 2 ranks; it takes all operations "
          "but premulsum and up to 8 ranks");
}

}  // namespace
}  // namespace tutti
