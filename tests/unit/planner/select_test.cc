// Choosing: over all collectives, shapes and sizes, and tables of any content.
#include "planner/select.h"

#include <algorithm>
#include <limits>
#include <set>

#include "plan/structure.h"
#include "support/catch.h"
#include "support/tuning_tables.h"

namespace tutti::planner {
namespace {

constexpr std::size_t kSizes[] = {8, 1000, 4096, 16384, 40000, 1 << 20};

/// Calls `check(request)` for every collective, some rank counts and sizes, both kinds of buffers
/// and contracts.
template <class Check>
void for_all_requests(Check check) {
  for (int i = 0; i < kCollectiveCount; ++i) {
    for (const int ranks : {1, 2, 3, 4, 8, 9, 12}) {
      for (const std::size_t bytes : kSizes) {
        for (const int bits : {0, 1, 2, 3}) {
          Request request;
          request.shape = {static_cast<Collective>(i), ranks, ranks / 2};
          request.bytes = bytes;
          request.mapped = (bits & 1) != 0;
          request.contract = (bits & 2) != 0 ? Contract::kRelaxed : Contract::kDeterministic;
          INFO(to_string(request.shape.collective)
               << ", " << ranks << " ranks, " << bytes << " bytes, mapped " << bool(request.mapped)
               << ", relaxed " << (bits >> 1));
          check(request);
        }
      }
    }
  }
}

std::vector<Candidate> listed(const Request& request, const PlannerInputs& inputs) {
  auto list = candidates(request, inputs);
  INFO((list ? "" : list.error().what));
  REQUIRE(list);
  return *std::move(list);
}

void check_sound(const std::vector<Candidate>& list, const Request& request) {
  std::set<std::string_view> names;
  bool refused = false;
  for (const Candidate& candidate : list) {
    INFO(candidate.name());
    names.insert(candidate.name());
    CHECK((candidate.algorithm == nullptr) == candidate.eager);
    CHECK(candidate.refused.find('\n') == std::string::npos);
    refused = refused || !candidate.refused.empty();
    CHECK(refused == !candidate.refused.empty());  // Those come last.
    if (refused || candidate.eager) continue;
    CHECK(candidate.algorithm->applies(request.shape));
    if (request.contract == Contract::kDeterministic)
      CHECK(candidate.algorithm->contract(request.shape) == Contract::kDeterministic);
  }
  std::size_t known = 1;
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->collective != request.shape.collective) continue;
    ++known;
    CHECK(names.count(algorithm->name) == 1);
  }
  CHECK(names.size() == known);
}

/// choose() takes the first that is a plan.
void check_chosen(const std::vector<Candidate>& list, const Request& request,
                  const PlannerInputs& inputs) {
  const auto chosen = choose(request, inputs);
  const auto first = std::find_if(list.begin(), list.end(), [](const Candidate& candidate) {
    return !candidate.eager && candidate.refused.empty();
  });
  REQUIRE(bool(chosen) == (first != list.end()));
  if (!chosen) return;
  CHECK(chosen->algorithm->name == first->algorithm->name);
  CHECK(chosen->lanes == first->lanes);
  CHECK(bool(chosen->direct == request.mapped));
}

TEST_CASE("every way is listed once, best first, and the first plan is chosen") {
  const PlannerInputs inputs;
  for_all_requests([&](const Request& request) {
    const auto list = listed(request, inputs);
    check_sound(list, request);
    check_chosen(list, request, inputs);
    for (std::size_t i = 1; i < list.size(); ++i) {
      const Candidate &a = list[i - 1], &b = list[i];
      if (!b.refused.empty() || a.evidence != b.evidence || a.evidence != Evidence::kEstimated)
        continue;
      CHECK(a.microseconds <= b.microseconds);
    }
    for (const Candidate& candidate : list) {
      if (request.shape.rank_count > 1 && candidate.refused.empty())
        CHECK(candidate.microseconds > 0);
    }
  });
}

TEST_CASE("a way that was measured goes before rules and estimates, and the fastest goes first") {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const TuningTable table = test::random_table(random);
    PlannerInputs inputs;
    inputs.table = &table;
    for_all_requests([&](Request request) {
      const auto& ranges = table.of(request.shape.collective, bool(request.mapped));
      if (ranges.empty()) return;
      const Range& range = ranges[random() % ranges.size()];
      request.bytes = range.up_to;
      const auto list = listed(request, inputs);
      check_sound(list, request);
      check_chosen(list, request, inputs);
      // At the end of a range, times are those that were measured.
      std::size_t at = 0;
      for (const Way& way : range.ways) {
        const auto found = std::find_if(list.begin(), list.end(), [&](const Candidate& candidate) {
          return candidate.name() == way.name;
        });
        REQUIRE(found != list.end());
        if (!found->refused.empty()) continue;
        CHECK(found->evidence == Evidence::kTuned);
        CHECK(found->microseconds == Approx(way.microseconds));
        CHECK(static_cast<std::size_t>(found - list.begin()) == at++);
      }
    });
  }
}

TEST_CASE("with a wire neither packets nor plans that send partial sums are taken") {
  for_all_requests([](Request request) {
    request.wire = WireFormat::kInt8;
    request.mapped = false;
    bool found = false;
    for (const Candidate& candidate : listed(request, {})) {
      if (!candidate.refused.empty()) continue;
      INFO(candidate.name());
      REQUIRE_FALSE(candidate.eager);
      CHECK_FALSE(plan::sends_partials(build(*candidate.algorithm, request.shape)));
      found = true;
    }
    CHECK(found);
  });
}

TEST_CASE("between two sizes a time is between theirs, and beyond the last it grows") {
  TuningTable table;
  table.of(Collective::kAllReduce, false) = {{1024, {{"two_shot", 1, 10}, {"one_shot", 1, 20}}},
                                             {65536, {{"one_shot", 1, 40}, {"two_shot", 1, 100}}}};
  PlannerInputs inputs;
  inputs.table = &table;
  Request request;
  request.shape = {Collective::kAllReduce, 4, 0};
  const auto us = [&](std::size_t bytes, std::string_view name) {
    request.bytes = bytes;
    for (const Candidate& candidate : listed(request, inputs)) {
      if (candidate.name() == name) return candidate.microseconds;
    }
    return 0.0;
  };
  CHECK(us(64, "two_shot") == 10);
  CHECK(us(8192, "two_shot") == Approx(std::sqrt(10.0 * 100)));
  CHECK(us(2 * 65536, "one_shot") == Approx(80));
  double before = 0;
  for (std::size_t bytes = 1; bytes < 1 << 20; bytes += 1 + bytes / 3) {
    const double now = us(bytes, "two_shot");
    CHECK(now >= before);
    before = now;
  }
  // Where the two lines cross the choice changes, not only at the ends of ranges.
  const auto name = [&](std::size_t bytes) {
    request.bytes = bytes;
    return choose(request, inputs)->algorithm->name;
  };
  CHECK(name(1025) == "two_shot");
  CHECK(name(60000) == "one_shot");
}

TEST_CASE("what the user forces goes before a table; what is forbidden is never taken") {
  std::mt19937_64 random(3);
  const TuningTable table = test::random_table(random);
  PlannerInputs inputs;
  inputs.table = &table;
  for_all_requests([&](Request request) {
    if (request.bytes != 40000) return;
    std::string all;
    for (const Algorithm* algorithm : algorithms()) {
      if (algorithm->collective != request.shape.collective) continue;
      all += (all.empty() ? "^" : ",^") + std::string(algorithm->name);
      const bool may = algorithm->applies(request.shape) &&
                       (request.contract == Contract::kRelaxed ||
                        algorithm->contract(request.shape) == Contract::kDeterministic);
      for (const bool by_call : {false, true}) {
        PlannerInputs wished = inputs;
        (by_call ? request.algorithm_override : wished.overrides) = algorithm->name;
        if (by_call) wished.overrides = "direct,one_shot";  // The call's own word counts.
        const auto forced = choose(request, wished);
        REQUIRE(bool(forced) == may);
        if (may) CHECK(forced->algorithm == algorithm);
        const std::string forbidden = "^" + std::string(algorithm->name);
        (by_call ? request.algorithm_override : wished.overrides) = forbidden;
        if (by_call) wished.overrides = {};
        const auto other = choose(request, wished);
        if (other) CHECK(other->algorithm != algorithm);
        request.algorithm_override = {};
      }
    }
    inputs.overrides = all;
    const auto none = choose(request, inputs);
    REQUIRE_FALSE(none);
    CHECK(none.error().code == Code::kInvalidArgument);
    CHECK(none.error().what.find('\n') == std::string::npos);
    CHECK_THAT(none.error().what, Catch::Contains("nothing left to choose"));
    inputs.overrides = {};
  });
}

TEST_CASE("packets are taken up to where they are the best, and never if a plan is forced") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const TuningTable table = test::random_table(random);
    for (int i = 0; i < kCollectiveCount; ++i) {
      Request request;
      request.shape = {static_cast<Collective>(i), 4, 0};
      for (const bool mapped : {false, true}) {
        request.mapped = mapped;
        PlannerInputs inputs;
        inputs.table = &table;
        const auto limit = eager_limit_bytes(request, inputs);
        REQUIRE(limit);
        CHECK(*limit <= inputs.packet_bytes);
        request.bytes = *limit;
        if (*limit > 0) CHECK(listed(request, inputs).front().eager);
        // At no end of a range beyond it.
        for (const Range& range : table.of(request.shape.collective, mapped)) {
          request.bytes = range.up_to;
          if (range.up_to > *limit && range.up_to <= inputs.packet_bytes) {
            const auto list = listed(request, inputs);
            CHECK_FALSE((list.front().eager && list.front().evidence == Evidence::kTuned));
          }
        }
        inputs.overrides = "direct,two_shot";
        CHECK(*eager_limit_bytes(request, inputs) == 0);
        inputs.overrides = "^packet";
        CHECK(*eager_limit_bytes(request, inputs) == 0);
        inputs.overrides = "packet";
        CHECK(*eager_limit_bytes(request, inputs) == inputs.packet_bytes);
      }
    }
  }
}

TEST_CASE("where nothing was measured, the built-in rules hold") {
  PlannerInputs inputs;  // With 2 CPUs.
  const auto chosen = [&](Collective collective, int ranks, bool mapped,
                          std::size_t bytes = 1 << 20) {
    Request request;
    request.shape = {collective, ranks, 0};
    request.bytes = bytes;
    request.mapped = mapped;
    return choose(request, inputs)->algorithm->name;
  };
  CHECK(chosen(Collective::kAllReduce, 2, false) == "one_shot");
  CHECK(chosen(Collective::kAllReduce, 2, true) == "two_shot");
  CHECK(chosen(Collective::kAllReduce, 8, false) == "two_shot");
  CHECK(chosen(Collective::kReduce, 2, false) == "direct");
  CHECK(chosen(Collective::kReduce, 4, false) == "two_shot");
  CHECK(chosen(Collective::kBroadcast, 4, false) == "direct");
  CHECK(chosen(Collective::kBroadcast, 4, true) == "two_shot");
  CHECK(chosen(Collective::kAllToAll, 8, true) == "direct");
  const auto limit = [&](Collective collective, int ranks, bool mapped) {
    Request request;
    request.shape = {collective, ranks, 0};
    request.mapped = mapped;
    return *eager_limit_bytes(request, inputs);
  };
  CHECK(limit(Collective::kAllReduce, 2, false) == 32768);  // The largest packet of these inputs.
  inputs.packet_bytes = 131072;
  CHECK(limit(Collective::kAllReduce, 2, false) == 65536);
  CHECK(limit(Collective::kBroadcast, 2, false) == 65536);
  CHECK(limit(Collective::kReduceScatter, 2, false) == 32768);
  CHECK(limit(Collective::kAllReduce, 4, false) == 65536);
  CHECK(limit(Collective::kAllReduce, 8, false) == 65536);
  CHECK(limit(Collective::kAllReduce, 9, false) == 4096);
  CHECK(limit(Collective::kAllReduce, 64, false) == 1024);
  CHECK(limit(Collective::kAllReduce, 2, true) == 2048);
  CHECK(limit(Collective::kBroadcast, 2, true) == 8192);
  CHECK(limit(Collective::kGather, 2, true) == 16384);
  // Where ranks share CPUs.
  CHECK(limit(Collective::kScatter, 4, true) == 65536);
  CHECK(limit(Collective::kBroadcast, 3, true) == 65536);
  CHECK(limit(Collective::kAllReduce, 4, true) == 32768);
  CHECK(limit(Collective::kAllReduce, 8, true) == 8192);
  CHECK(limit(Collective::kBroadcast, 16, true) == 4096);
  CHECK(chosen(Collective::kReduce, 4, true, 32768) == "direct");
  CHECK(chosen(Collective::kReduce, 4, true, 32772) == "two_shot");
  inputs.usable_cpus = 4;
  CHECK(limit(Collective::kScatter, 4, true) == 8192);
  CHECK(limit(Collective::kAllToAll, 4, true) == 1024);
  CHECK(chosen(Collective::kReduce, 4, true, 32768) == "two_shot");
}

TEST_CASE("a communicator has the lanes that anything it is sure to choose needs") {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    INFO("seed " << seed);
    std::mt19937_64 random(seed);
    const TuningTable table = test::random_table(random);
    for (const bool tuned : {false, true}) {
      PlannerInputs inputs;
      inputs.table = tuned ? &table : nullptr;
      const auto lanes = lanes_needed(4, {}, inputs);
      REQUIRE(lanes);
      inputs.most_lanes = *lanes;
      for_all_requests([&](Request request) {
        if (request.shape.rank_count != 4 || request.shape.root != 2) return;
        request.contract = Contract::kDeterministic;
        const auto chosen = choose(request, inputs);
        REQUIRE(chosen);
        const auto plan = build(*chosen->algorithm, request.shape, Rank{0});
        CHECK(plan.lanes.size() * chosen->lanes <= *lanes);
      });
    }
  }
}

TEST_CASE("more lanes than a communicator can have are refused before it is made") {
  Settings settings;
  settings.contract = Contract::kRelaxed;
  const auto said = [&](const char* algorithm_override, std::uint32_t repeated) -> std::string {
    PlannerInputs inputs;
    inputs.overrides = algorithm_override;
    inputs.lanes = repeated;
    const auto lanes = lanes_needed(3, settings, inputs);
    return lanes ? std::to_string(*lanes) : lanes.error().what;
  };
  CHECK(said("double_tree:32", 0) == "64");
  CHECK(said("double_tree", 32) == "64");
  for (const std::string& what : {said("double_tree:33", 0), said("double_tree", 33)}) {
    CHECK_THAT(what, Catch::StartsWith("TUTTI_ALGORITHM: double_tree takes 66 lanes") &&
                         Catch::Contains("at most 64"));
  }
}

TEST_CASE("many ranks: a choice is made of what can be estimated in bounded time") {
  for (int i = 0; i < kCollectiveCount; ++i) {
    Request request;
    request.shape = {static_cast<Collective>(i), 96, 0};
    request.bytes = 1 << 22;
    PlannerInputs inputs;
    inputs.usable_cpus = 96;
    const auto list = listed(request, inputs);
    INFO(to_string(request.shape.collective));
    CHECK(list.front().refused.empty());
    check_chosen(list, request, inputs);
  }
}

constexpr double kForever = std::numeric_limits<double>::infinity();

/// So many ranks on one host, or eight on each.
PlannerInputs inputs_of(Request& request, bool hosts) {
  PlannerInputs inputs;
  if (!hosts) return inputs;
  request.shape.groups = 8;
  for (int rank = 0; rank < request.shape.rank_count; ++rank) inputs.hosts.of.push_back(rank / 8);
  return inputs;
}

TEST_CASE("a job of many ranks gets a plan") {
  const bool hosts = GENERATE(false, true);
  for (int i = 0; i < kCollectiveCount; ++i) {
    Request request;
    request.shape = {static_cast<Collective>(i), 256, 0};
    request.bytes = GENERATE(std::size_t{256}, std::size_t{1} << 26);
    const PlannerInputs inputs = inputs_of(request, hosts);
    INFO(to_string(request.shape.collective) << ", hosts: " << hosts);
    const auto found = contenders(request, inputs);
    if (!found) FAIL(found.error().to_string());
    CHECK(found->front().refused.empty());
    CHECK(found->front().microseconds > 0);
  }
}

TEST_CASE("rough times choose plans that are nearly as fast as those that estimates choose") {
  const bool hosts = GENERATE(false, true);
  const std::size_t bytes = GENERATE(std::size_t{64}, std::size_t{1} << 16, std::size_t{1} << 22);
  for (int i = 0; i < kCollectiveCount; ++i) {
    Request request;
    request.shape = {static_cast<Collective>(i), 64, 0};
    if (has_root(request.shape.collective)) continue;  // Their plans have few steps.
    request.bytes = bytes;
    const PlannerInputs inputs = inputs_of(request, hosts);
    double least_rough = kForever, of_roughly_best = kForever, best = kForever;
    for (const Candidate& one : listed(request, inputs)) {
      if (one.eager || !one.refused.empty()) continue;
      const auto us = estimate_us(*one.algorithm, request, inputs);
      if (!us) continue;
      const double rough = rough_us(*one.algorithm, request, inputs);
      if (rough < least_rough) least_rough = rough, of_roughly_best = *us;
      best = std::min(best, *us);
    }
    INFO(to_string(request.shape.collective) << ", " << bytes << " bytes, hosts: " << hosts);
    CHECK(best < kForever);
    CHECK(of_roughly_best <= 2 * best);
  }
}

/// A machine with multicast memory, so large that nothing can be estimated.
class Unknown final : public PlanCosts {
 public:
  std::string_view overrides() const override { return ""; }
  std::optional<std::string> multicast_refusal(const Request&) const override { return ""; }
  std::uint32_t lanes(const Algorithm&, const Request&, std::uint32_t,
                      std::uint32_t) const override {
    return 1;
  }
  std::string refusal(const Algorithm&, std::uint32_t, const Request&) const override { return ""; }
  std::optional<double> estimate_us(const Candidate&, const Request&) const override { return {}; }
  double rough_us(const Candidate&, const Request&) const override { return 1; }
};

TEST_CASE("a call has a plan where neither plans nor multicast memory can be estimated") {
  Request request;
  request.shape = {Collective::kAllReduce, 8, 0};
  request.bytes = 1 << 20;
  const auto usable = usable_plans(request, Unknown());
  REQUIRE(usable);
  REQUIRE_FALSE(usable->empty());
  CHECK(usable->front().microseconds == 1);
}

}  // namespace
}  // namespace tutti::planner
