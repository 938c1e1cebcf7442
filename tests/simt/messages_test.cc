// The kernel of messages: everything that ranks send each other at a time, in all slot formats.
#include "algorithms/algorithm.h"
#include "simt/message_cases.h"
#include "support/catch.h"

namespace tutti {
namespace {

using exec::CudaMeshOptions;
using test::DeviceRanks;
using test::MessageCase;

constexpr unsigned kThreads = 64;

CudaMeshOptions options_of(int ranks, unsigned lanes, cuda::SlotFormat format) {
  CudaMeshOptions options;
  for (int rank = 0; rank < ranks; ++rank) options.devices.push_back(test::device_of(rank));
  options.lanes = lanes;
  options.slot_count = 2;
  options.slot_bytes = 1024;
  options.format = format;
  options.threads = kThreads;
  return options;
}

/// Rings hold a few KiB: most messages are longer. Lists are longer than a launch takes.
TEST_CASE("messages of any sizes among 2 to 8 ranks, in all slot formats") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (int ranks = 2; ranks <= 8; ++ranks) {
    for (const auto format : cuda::kSlotFormats) {
      // One lane: a round at a time. Seven and more: all rounds.
      const unsigned lanes = std::vector<unsigned>{1, 2, 3, 4, 16}[random() % 5];
      INFO(ranks << " ranks, " << lanes << " lanes, " << to_string(format));
      std::string complaint;
      const auto mesh = DeviceRanks::open(options_of(ranks, lanes, format), complaint);
      REQUIRE(complaint == "");
      const MessageCase test{ranks, ranks > 4 ? 2U : 6U, ranks > 4 ? 3000U : 9000U};
      test::shuffle_threads(random() % 2 == 0 ? 0 : random());
      CHECK(test::run_messages(*mesh, test, random(), 2) == "");
    }
  }
  test::shuffle_threads(0);
}

TEST_CASE("messages and plans take turns in the same rings") {
  std::string complaint;
  const auto mesh = DeviceRanks::open(options_of(3, 2, cuda::SlotFormat::kSimple), complaint);
  REQUIRE(complaint == "");
  plan::Shape shape{Collective::kAllReduce, 3};
  const auto plan = mesh->mesh().load(build(*find_algorithm(shape.collective, "ring"), shape));
  REQUIRE(plan);
  test::Case reduced;
  reduced.count = 3000;
  reduced.ranks = 3;
  reduced.exact = true;
  for (const std::uint64_t seed : {1, 2, 3}) {
    CHECK(test::run_messages(*mesh, {3}, seed, 1) == "");
    CHECK(mesh->run(*plan, reduced, seed) == "");
  }
}

TEST_CASE("a message that nobody sends ends at the deadline, and names the peer") {
  auto options = options_of(2, 2, cuda::SlotFormat::kSimple);
  options.timeout = std::chrono::milliseconds(300);
  std::string complaint;
  const auto mesh = DeviceRanks::open(options, complaint);
  REQUIRE(complaint == "");
  auto target = exec::CudaMemory::allocate(mesh->device(1), 64);
  REQUIRE(target);
  REQUIRE(mesh->mesh().launch_messages(1, {{false, 0, target->data(), 64}}, mesh->stream(1)));
  REQUIRE(test::said(cudaStreamSynchronize(mesh->stream(1))) == "");
  const Status status = mesh->mesh().rings().check(1);
  REQUIRE(!status);
  CHECK(status.error().code == Code::kTimeout);
  CHECK(status.error().peer == Rank{0});
  CHECK(!mesh->mesh().launch_messages(1, {{false, 1, target->data(), 64}}, mesh->stream(1)));
  CHECK(!mesh->mesh().launch_messages(1, {{false, 2, target->data(), 64}}, mesh->stream(1)));
}

}  // namespace
}  // namespace tutti
