// Ranks that make the same call and would do different things in it: every one of them gets an
// error that says so, none hangs. Below the communicator, as that sees to it that its settings are
// alike.
#include <functional>
#include <string>
#include <thread>

#include "exec/host_executor.h"
#include "planner/planner.h"
#include "support/catch.h"
#include "support/cluster.h"
#include "transport/transport.h"

using namespace tutti;

namespace {

using Adjust = std::function<void(int rank, exec::HostExecutor::Options&)>;
using Prepare = std::function<void(int rank, Endpoint& endpoint)>;
using Choose = std::function<planner::Recipe(int rank, Collective collective)>;

constexpr std::size_t kCount = 3000;

planner::Recipe named(Collective collective, std::string_view algorithm, int ranks,
                      std::uint32_t lanes = 1) {
  return {.algorithm = find_algorithm(collective, algorithm),
          .shape = {collective, ranks},
          .lanes = lanes};
}

class Chosen : public exec::PlanSource {
 public:
  Chosen(Choose choose, int me) : choose_(std::move(choose)), me_(me) {}
  Result<exec::PlanChoice> choose(const exec::Call& call, exec::Access,
                                  std::size_t) const override {
    TUTTI_TRY(const auto* made, planner::prepare(choose_(me_, call.collective)));
    return exec::PlanChoice{&made->plan, 1, 0};
  }

 private:
  Choose choose_;
  int me_;
};

/// What the ranks, as threads, get from making `call` `times` times; by rank.
std::vector<Status> outcomes(
    Collective collective, int ranks, int times, const Choose& choose,
    const Adjust& adjust = [](int, exec::HostExecutor::Options&) {},
    const Prepare& prepare = [](int, Endpoint&) {}) {
  const auto meeting = memory_rendezvous();
  std::vector<Status> statuses(static_cast<std::size_t>(ranks));
  const auto body = [&](int me) -> Status {
    const Deadline deadline = Deadline::after(std::chrono::minutes(5));
    const std::vector<Peer> peers(static_cast<std::size_t>(ranks), this_process());
    RegionConfig config = Region::default_config(ranks);
    config.lanes = 2;
    TUTTI_TRY(const Transport* transport, choose_transport(peers, "in_process"));
    TUTTI_TRY(auto endpoint,
              transport->open({.me = me,
                               .peers = peers,
                               .config = config,
                               .exchange =
                                   [&](std::string_view phase, std::span<const std::byte> mine) {
                                     return exchange(*meeting, Rank{me}, ranks, phase, mine,
                                                     deadline);
                                   },
                               .deadline = deadline}));
    exec::HostExecutor::Options options;
    options.wait = wait_policy(ranks, 1, -1);
    options.timeout = std::chrono::minutes(5);  // So that an error is not that of a hang.
    options.plans = std::make_shared<Chosen>(choose, me);
    adjust(me, options);
    prepare(me, *endpoint);
    TUTTI_RETURN_IF_ERROR(exchange(*meeting, Rank{me}, ranks, "prepared", {}, deadline));
    exec::HostExecutor executor(std::move(endpoint), me, std::move(options));
    const std::size_t bytes = (kCount + 1) * sizeof(float) * static_cast<std::size_t>(ranks);
    std::vector<std::byte> input(bytes), output(bytes);
    for (int i = 0; i < times; ++i) {
      exec::Call call;
      call.collective = collective;
      call.type = DataType::kFloat32;
      call.input = input.data();
      call.output = output.data();
      call.count = kCount + static_cast<std::size_t>(i % 2);
      TUTTI_RETURN_IF_ERROR(executor.run(call));
    }
    return ok();
  };
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] { statuses[static_cast<std::size_t>(rank)] = body(rank); });
  threads.clear();
  return statuses;
}

void check_mismatch(const std::vector<Status>& statuses, const std::vector<std::string>& words) {
  for (const Status& status : statuses) {
    REQUIRE_FALSE(status);
    CHECK(status.error().code == Code::kMismatch);
    for (const std::string& word : words) CHECK_THAT(status.error().what, Catch::Contains(word));
  }
}

}  // namespace

TEST_CASE("ranks that would run different plans are told so, whoever deviates") {
  struct Pair {
    Collective collective;
    const char *most, *one;
  };
  for (const Pair& pair : {Pair{Collective::kAllReduce, "two_shot", "ring"},
                           Pair{Collective::kAllReduce, "doubling", "halving_doubling"},
                           Pair{Collective::kReduceScatter, "direct", "pat"},
                           Pair{Collective::kAllGather, "doubling", "direct"},
                           Pair{Collective::kBroadcast, "direct", "double_tree"},
                           Pair{Collective::kReduce, "binomial", "two_shot"},
                           Pair{Collective::kGather, "direct", "binomial"},
                           Pair{Collective::kScatter, "binomial", "direct"},
                           Pair{Collective::kAllToAll, "pairwise", "bruck"}}) {
    for (const int ranks : {2, 4}) {
      const int deviating = ranks == 2 ? 0 : 2;
      const std::string collective(to_string(pair.collective));
      INFO(collective << " " << ranks << " ranks: " << pair.most << ", one " << pair.one);
      check_mismatch(outcomes(pair.collective, ranks, 1,
                              [&](int rank, Collective c) {
                                return named(c, rank == deviating ? pair.one : pair.most, ranks);
                              }),
                     {std::string(" ") + pair.most, std::string(" ") + pair.one, collective,
                      "rank " + std::to_string(deviating)});
    }
  }
}

TEST_CASE("plans that differ in their lanes only differ") {
  check_mismatch(outcomes(Collective::kAllReduce, 3, 1,
                          [](int rank, Collective collective) {
                            return named(collective, "two_shot", 3, rank == 1 ? 2 : 1);
                          }),
                 {"two_shot", "rank 1"});
}

TEST_CASE("of ranks that agreed before, one that changes its mind for another size is found") {
  // Two sizes in turn: the second is a route of its own, though every plan in it was agreed on
  // once.
  for (const int ranks : {2, 3}) {
    std::vector<int> asked(static_cast<std::size_t>(ranks));
    check_mismatch(outcomes(Collective::kAllGather, ranks, 4,
                            [&](int rank, Collective collective) {
                              const int before = asked[static_cast<std::size_t>(rank)]++;
                              return named(collective, before == 1 && rank == 1 ? "ring" : "direct",
                                           ranks);
                            }),
                   {"ring", "direct"});
  }
}

TEST_CASE("ranks that agree are asked once for each size, and go on") {
  for (const int ranks : {1, 2, 4}) {
    std::vector<int> asked(static_cast<std::size_t>(ranks));
    for (const Status& status :
         outcomes(Collective::kAllReduce, ranks, 100, [&](int rank, Collective collective) {
           ++asked[static_cast<std::size_t>(rank)];
           return named(collective, "two_shot", ranks);
         }))
      CHECK(status);
    for (const int times : asked) CHECK(times == 2);
  }
}

TEST_CASE("one rank on the eager path and one by a plan is an error on both") {
  for (const int ranks : {2, 4}) {
    check_mismatch(
        outcomes(
            Collective::kAllReduce, ranks, 1,
            [&](int, Collective collective) { return named(collective, "two_shot", ranks); },
            [](int rank, exec::HostExecutor::Options& options) {
              options.eager_limit_bytes.fill(rank == 0 ? 1 << 20 : 0);
              options.mapped_eager_limit_bytes.fill(1 << 20);
            }),
        {"(eager, plan)", "rank 0"});
  }
}

TEST_CASE("lines of a call so old that its number ends alike are not mistaken for a mismatch") {
  constexpr std::uint64_t kCallsMade = 40;
  for (const std::size_t packets : {std::size_t{0}, std::size_t{1} << 20}) {
    for (const Status& status : outcomes(
             Collective::kAllReduce, 3, kCallsMade,
             [&](int, Collective collective) { return named(collective, "two_shot", 3); },
             [&](int, exec::HostExecutor::Options&options) {
               options.eager_limit_bytes.fill(packets);
               options.mapped_eager_limit_bytes.fill(packets);
             },
             [](int rank, Endpoint&endpoint) {
               for (std::uint64_t place = 0; place < kCalls; ++place) {
                 // The number of the first call that looks there: calls take two places in turn.
                 const std::uint64_t number = place == 0 ? 2 : place;
                 for (std::size_t line = 0; line < kCallLines; ++line)
                   endpoint.region().lines(rank, place)[line].tag.store(
                       exec::tag_of(number, 0x123456789abcdef0), std::memory_order_release);
               }
             }))
      CHECK(status);
  }
}
