// The hash by which ranks find out whether they would run the same plan.
#include <map>
#include <random>
#include <string>

#include "plan/hash.h"
#include "plan/passes/passes.h"
#include "plan/text/text.h"
#include "support/catch.h"
#include "support/plans.h"

using namespace tutti;
using plan::hash_of;

TEST_CASE("plans have the same hash if and only if their texts are the same") {
  std::map<std::uint64_t, std::string> seen;
  const auto visit = [&](const plan::Plan& plan) {
    const std::string text = plan::to_text(plan);
    const auto [at, fresh] = seen.emplace(hash_of(plan), text);
    if (!fresh && at->second != text) FAIL("one hash, two plans:\n" << at->second << text);
    const auto again = plan::parse(text);
    REQUIRE(again);
    REQUIRE(hash_of(*again) == hash_of(plan));
  };
  test::for_each_plan({1, 2, 3, 4, 7, 8}, [&](const plan::Plan& plan) {
    visit(plan);
    visit(plan::replicate(plan, 2));
    if (const auto lowered = plan::direct(plan)) visit(*lowered);
    if (const auto lowered = plan::multicast(plan)) visit(*lowered);
  });
  CHECK(seen.size() > 300);
}

TEST_CASE("no field of a plan can change without its hash") {
  const auto plan = build(*find_algorithm(Collective::kReduce, "binomial"),
                          {Collective::kReduce, 4, 1, {2}, {1, 2, 3, 4}});
  std::map<std::string, plan::Plan> others;
  others.emplace("as it was", plan);
  const auto change = [&](const std::string& what, auto edit) {
    plan::Plan other = plan;
    edit(other);
    REQUIRE(other != plan);
    others.emplace(what, std::move(other));
  };
  const auto step = [&](const std::string& what, auto edit) {
    change("step " + what, [&](plan::Plan& p) { edit(p.ranks[1].lanes[0].steps.back()); });
  };
  const auto location = [&](const std::string& what, auto edit) {
    change("location " + what, [&](plan::Plan& p) { edit(p.ranks[1].lanes[0].locations.back()); });
  };
  change("name", [](plan::Plan& p) { p.name += "x"; });
  change("collective", [](plan::Plan& p) { p.shape.collective = Collective::kBroadcast; });
  change("rank count", [](plan::Plan& p) { ++p.shape.rank_count; });
  change("root", [](plan::Plan& p) { ++p.shape.root; });
  change("groups", [](plan::Plan& p) { p.shape.groups.sizes = {2, 4}; });
  change("no groups", [](plan::Plan& p) { p.shape.groups.sizes.clear(); });
  change("weights", [](plan::Plan& p) { ++p.shape.weights[2]; });
  change("trees", [](plan::Plan& p) { p.shape.trees = {{1, {0, 0}}}; });
  change("a tree's weight", [](plan::Plan& p) { p.shape.trees = {{2, {0, 0}}}; });
  change("a tree's parents", [](plan::Plan& p) { p.shape.trees = {{1, {1, 1}}}; });
  change("contract", [](plan::Plan& p) { p.contract = Contract::kRelaxed; });
  change("together", [](plan::Plan& p) { p.entry_barrier = true; });
  change("apart", [](plan::Plan& p) { p.apart = true; });
  change("pieces", [](plan::Plan& p) { ++p.pieces; });
  change("scratch", [](plan::Plan& p) { ++p.ranks[3].scratch_chunks; });
  change("a lane more", [](plan::Plan& p) { p.ranks[3].lanes.emplace_back(); });
  change("a step less", [](plan::Plan& p) { p.ranks[3].lanes[0].steps.pop_back(); });
  step("kind", [](plan::Step& s) { s.kind = plan::StepKind::kWait; });
  step("peer", [](plan::Step& s) { ++s.peer; });
  step("sources", [](plan::Step& s) { ++s.source_count; });
  step("targets", [](plan::Step& s) { ++s.target_count; });
  step("first", [](plan::Step& s) { ++s.first; });
  step("chunk", [](plan::Step& s) { ++s.chunk; });
  location("place", [](plan::Location& l) { l.place = plan::Place::kScratch; });
  location("form", [](plan::Location& l) { l.form = Form::kPartial; });
  location("peer", [](plan::Location& l) { ++l.peer; });
  location("chunk", [](plan::Location& l) { ++l.chunk; });
  std::map<std::uint64_t, std::string> seen;
  for (const auto& [what, other] : others) {
    const auto [at, fresh] = seen.emplace(hash_of(other), what);
    INFO(what << " has the hash of: " << at->second);
    CHECK(fresh);
  }
}
