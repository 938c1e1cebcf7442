// Links between devices that exist in this process alone: the cases of support/net/verbs_cases.h
// and verbs_renewal_cases.h, and what software devices can't be made to do.
#include "support/net/fake_rdma.h"
#include "support/net/verbs_cases.h"
#include "support/net/verbs_renewal_cases.h"

namespace tutti::test {

const unsigned kBreakingRounds = 10;
VerbsFabric fabric() {
  // Once: ranks that are threads may look at them.
  static const bool used = (verbs::use_ports(FakeRdma::ports()), true);
  (void)used;
  verbs::use_library(FakeRdma::library());
  FakeRdma::the().seed(Catch::rngSeed());
  return {"fake", FakeRdma::ports(), [] { CHECK(FakeRdma::the().complaint() == ""); }};
}

namespace {

/// Both ranks' errors, once this was done to the devices of joined ranks.
std::array<std::string, 2> errors_after(const std::function<void(const VerbsRank&)>& change) {
  const auto ranks = join_verbs(fabric());
  require_joined(ranks);
  change(*ranks[0]);
  return {error_of(ranks, 0), error_of(ranks, 1)};
}

}  // namespace

TEST_CASE("a device that fails, and one that gives up a queue pair, are errors that say so") {
  auto errors =
      errors_after([](const VerbsRank&) { FakeRdma::the().say(0, IBV_EVENT_DEVICE_FATAL); });
  CHECK_THAT(errors[0], Catch::Contains("over fake0:1") &&
                            Catch::Contains("the device has failed (a fake's event)"));
  errors = errors_after([](const VerbsRank& rank) {
    FakeRdma::the().say(0, IBV_EVENT_QP_ACCESS_ERR, rank.network->link(1)->pair(0));
  });
  CHECK_THAT(errors[0], Catch::Contains("the device gave up a queue pair"));
}

TEST_CASE("what a device said before is told with what failed") {
  const auto errors = errors_after([](const VerbsRank&) {
    FakeRdma::the().say(0, IBV_EVENT_PORT_ERR);
    FakeRdma::the().cut(true);
  });
  FakeRdma::the().cut(false);
  CHECK_THAT(errors[0], Catch::Contains("no acknowledgement") &&
                            Catch::Contains("; fake0:1: the link went down "));
  CHECK_THAT(errors[1],
             Catch::Contains("no acknowledgement") && !Catch::Contains("the link went down"));
}

TEST_CASE(
    "a network that loses all is an error of joining, and so is memory that can't be locked") {
  (void)fabric();
  FakeRdma::the().cut(true);
  auto ranks = join_verbs(fabric());
  FakeRdma::the().cut(false);
  for (const auto& rank : ranks) {
    CHECK(rank->network == nullptr);
    CHECK_THAT(rank->error, Catch::Contains("no acknowledgement"));
  }
  FakeRdma::the().refuse_memory(true);
  ranks = join_verbs(fabric());
  FakeRdma::the().refuse_memory(false);
  for (const auto& rank : ranks)
    CHECK_THAT(rank->error, Catch::Contains("registering 1024 KiB of memory: ") &&
                                Catch::Contains("locked memory"));
}

TEST_CASE("ranks are joined by the GID that a user names, and are told of one that is not there") {
  VerbsFabric by_index = fabric();
  for (verbs::Port& port : by_index.ports) {
    verbs::GidEntry second = port.gids[0];
    second.index = 3;
    second.gid[13] = 100;
    port.gids.push_back(second);
  }
  auto ranks = join_verbs(by_index, {.gid_index = 3});
  require_joined(ranks);
  ranks = join_verbs(by_index, {.gid_index = 4});
  for (std::size_t rank = 0; rank < 2; ++rank) {
    CHECK(ranks[rank]->network == nullptr);
    CHECK_THAT(ranks[rank]->error,
               Catch::Contains("TUTTI_RDMA_GID_INDEX=4: fake" + std::to_string(rank) +
                               ":1 has no GID of RoCE v2 at that index; it has 0 (10.99.0."));
  }
}

TEST_CASE("packets have the traffic class and the service level that a user names") {
  const auto all_have = [](int traffic_class, int service_level) {
    const std::vector<ibv_ah_attr> all = FakeRdma::the().destinations();
    CHECK(!all.empty());
    return std::ranges::all_of(all, [&](const ibv_ah_attr& one) {
      return one.is_global == 1 && one.grh.traffic_class == traffic_class &&
             one.sl == service_level;
    });
  };
  (void)FakeRdma::the().destinations();
  require_joined(join_verbs(fabric()));
  CHECK(all_have(0, 0));
  require_joined(join_verbs(fabric(), {.marks = {.traffic_class = 255}}));
  CHECK(all_have(255, 0));
  auto options = with_rails(2);
  options.options.renewal = {.first_pause = 20ms, .longest_pause = 20ms};
  options.marks = {.traffic_class = 106, .service_level = 3};
  const auto ranks = join_verbs(fabric(), options);
  require_joined(ranks);
  CHECK(all_have(106, 3));
  // Those that are made anew, too.
  break_link(*ranks[0], 1, 0, 0);
  REQUIRE(drive_until(ranks, 2));
  REQUIRE(drive_until(ranks, 3));
  CHECK(all_have(106, 3));
}

TEST_CASE("frames that are several writes each arrive whole, however many are sent at once") {
  constexpr std::size_t kBytes = (std::size_t{5} << 20) + 1;  // A fake writes 1 MiB at most.
  constexpr int kFrames = 100;
  const auto ranks = join_verbs(fabric(), {.bytes = std::size_t{8} << 20});
  require_joined(ranks);
  auto mine = sinks_of(*ranks[0], 2), theirs = sinks_of(*ranks[1], 2);
  const auto payload = ranks[0]->near.span().subspan(4096, kBytes);
  for (std::size_t i = 0; i < kBytes; ++i) payload[i] = content(0, 0, i);
  for (int i = 0; i < kFrames; ++i) {
    ranks[0]->network->carrier(1)->send(
        {.bytes = static_cast<std::uint32_t>(kBytes), .kind = 1, .position = 4096}, payload);
  }
  const auto end = Clock::now() + kLongest;
  while (theirs[0]->count != kFrames && Clock::now() < end) {
    REQUIRE(progress(*ranks[0], mine));
    REQUIRE(progress(*ranks[1], theirs));
  }
  CHECK(theirs[0]->count == kFrames);
  CHECK(std::ranges::equal(theirs[0]->bytes, payload));
}

TEST_CASE("what arrives late by a lost rail changes nothing") {
  const int before = FakeRdma::the().strays_landed();
  const std::uint64_t seed = Catch::rngSeed();
  for (unsigned round = 0; round < 20; ++round) {
    INFO("round " << round << ", --rng-seed " << seed);
    const auto ranks = join_verbs(fabric(), with_rails(2));
    require_joined(ranks);
    FakeRdma::the().stray(true);
    Traffic traffic;
    std::array<std::string, 2> wrong;
    // Each rank breaks two rails, once there is much on its way by them.
    const auto work = [&](std::size_t me) {
      const int peer = static_cast<int>(1 - me);
      std::size_t broken = 0;
      wrong[me] = exchange_frames(*ranks[me], static_cast<int>(me), 2, 300, seed + round, traffic,
                                  [&, me, peer] {
                                    const std::size_t rail = (round + broken) % 3;
                                    const auto& link = *ranks[me]->network->link(peer, rail);
                                    if (broken == 2 || link.unsent_bytes() < kPlaceBytes) return;
                                    for (std::size_t pair = 0; pair < verbs::kPairs; ++pair)
                                      break_link(*ranks[me], peer, rail, pair);
                                    ++broken;
                                  });
    };
    {
      std::jthread other([&] { work(1); });
      work(0);
    }
    FakeRdma::the().stray(false);
    for (const std::string& one : wrong) CHECK(one == "");
  }
  CHECK(FakeRdma::the().strays_landed() > before);
}

TEST_CASE("a rail that can't be joined is done without") {
  (void)fabric();
  FakeRdma::the().cut(true, 1U << 1);
  const auto ranks = join_verbs(fabric(), with_rails(2));
  FakeRdma::the().cut(false);
  require_joined(ranks);
  CHECK(ranks[0]->network->rail_count() == 2);
  CHECK_THAT(ranks[0]->network->link(1, 1)->where(), Catch::Contains("over fake2:1"));
}

/// Two rails: one joins fake0 of rank 0 with fake1 of rank 1, the other one fake2 with itself.
std::vector<std::unique_ptr<VerbsRank>> join_by_two_rails() {
  auto options = with_rails(
      2, [](int rank) { return std::string(rank == 0 ? "fake0,fake2" : "fake1,fake2"); });
  options.options.renewal = {.first_pause = 50ms, .longest_pause = 100ms, .patience = 300ms};
  auto ranks = join_verbs(fabric(), options);
  require_joined(ranks);
  REQUIRE(ranks[0]->network->rail_count() == 2);
  return ranks;
}

TEST_CASE("a rail whose port is down comes back once it is up, and is used") {
  const std::uint32_t device =
      GENERATE(0U, 1U);  // That of the rank that asks, or of the other one.
  const std::uint64_t seed = Catch::rngSeed();
  const auto ranks = join_by_two_rails();
  const int made = FakeRdma::the().open_count();
  for (int round = 0; round < 2; ++round) {
    FakeRdma::the().pull(1U << device);
    REQUIRE(drive_until(ranks, 1));
    CHECK_FALSE(drive_until(ranks, 2, 700ms));
    CHECK(exchange_both(ranks, 100, seed) == "");
    FakeRdma::the().pull(0);
    REQUIRE(drive_until(ranks, 2));
    CHECK(FakeRdma::the().open_count() == made);
    CHECK(ranks[0]->network->link(1, 0)->bytes_given() == 0);
    CHECK(exchange_both(ranks, 1000, seed) == "");
    CHECK(ranks[0]->network->link(1, 0)->bytes_given() > 2 * kPlaceBytes);
    CHECK_THAT(ranks[0]->network->link(1, 0)->where(),
               Catch::StartsWith("verbs: rank 1 (") &&
                   Catch::EndsWith(" over fake0:1, 10.99.0.1 to fake1:1 10.99.0.2"));
  }
}

TEST_CASE("attempts that are in vain leave nothing behind") {
  const auto ranks = join_by_two_rails();
  const int made = FakeRdma::the().open_count();
  FakeRdma::the().cut(true, 1U << 1);  // The ports are active.
  REQUIRE(drive_until(ranks, 1));
  CHECK_FALSE(drive_until(ranks, 2, 1s));
  FakeRdma::the().cut(false);
  REQUIRE(drive_until(ranks, 2));
  CHECK(FakeRdma::the().open_count() == made);
}

TEST_CASE("a device that has failed is not used again, and the others go on") {
  const std::size_t device = GENERATE(0U, 1U);
  const auto ranks = join_by_two_rails();
  FakeRdma::the().say(device, IBV_EVENT_DEVICE_FATAL);
  REQUIRE(drive_until(ranks, 1));
  CHECK_FALSE(drive_until(ranks, 2, 1s));
  CHECK(exchange_both(ranks, 200, Catch::rngSeed()) == "");
}

TEST_CASE("all that is made is removed") {
  {
    const auto ranks = join_verbs(fabric(), {.ranks = 3});
    require_joined(ranks);
    CHECK(FakeRdma::the().open_count() == 3 * (1 + 1 + 1 + 1 + 3 + 2 * 2));
  }
  CHECK(FakeRdma::the().open_count() == 0);
}

}  // namespace tutti::test
