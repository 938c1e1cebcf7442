// Communicators that run plans from files, and what users can set beside: groups and weights.
#include <fstream>
#include <random>
#include <string>

#include "plan/text/text.h"
#include "support/catch.h"
#include "support/cluster.h"
#include "support/plans.h"
#include "support/processes.h"
#include "support/sample.h"

using namespace tutti;
using test::Case;

namespace {

/// The algorithm's plan under another name, so that it can be seen which one ran.
std::string write_plan(const test::ScratchDirectory& folder, const plan::Plan& plan,
                       const std::string& name) {
  plan::Plan renamed = plan;
  renamed.name = name;
  const std::string path = folder.path() + "/" + name;
  std::ofstream(path) << plan::to_text(renamed);
  return path;
}

/// What all ranks of a new communicator complain of, running `cases`.
std::string run_all(int ranks, const Settings& settings, const std::vector<Case>& cases,
                    const std::vector<std::string>& describes) {
  auto comms = Communicator::in_process(ranks, settings);
  if (!comms) return comms.error().to_string();
  return test::on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
    std::uint64_t seed = 1;
    for (const Case& each : cases) {
      const std::string wrong = test::run_case(comm, each, ++seed);
      if (!wrong.empty()) return wrong;
    }
    for (const std::string& words : describes) {
      if (comm.describe().find(words) == std::string::npos)
        return "describe() lacks '" + words + "':\n" + comm.describe();
    }
    return "";
  });
}

std::vector<Case> cases_of(Collective collective, int ranks, int root) {
  std::vector<Case> cases;
  for (const std::size_t count : {1, 7, 1000, 40'000}) {
    for (const bool mapped : {false, true}) {
      for (const bool in_place : {false, true})
        cases.push_back({.collective = collective,
                         .count = count,
                         .ranks = ranks,
                         .root = root,
                         .in_place = in_place,
                         .mapped = mapped,
                         .exact = true});
    }
  }
  return cases;
}

/// Runs `body(rank)` on threads, one for each rank, and returns what each said.
std::vector<Error> errors_of(int ranks, const std::function<Settings(int)>& settings) {
  std::vector<Error> errors(static_cast<std::size_t>(ranks));
  const auto meeting = memory_rendezvous();
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto comm = Communicator::create(*meeting, Rank{rank}, ranks, settings(rank));
      if (!comm) errors[static_cast<std::size_t>(rank)] = comm.error();
    });
  }
  threads.clear();
  return errors;
}

}  // namespace

TEST_CASE("plans from files run, whichever algorithm they came from, and give the right result") {
  const test::ScratchDirectory folder;
  std::mt19937_64 random(Catch::rngSeed());
  int number = 0;
  test::Sample sample;
  const auto run = [&](const plan::Plan& plan) {
    const plan::Shape& shape = plan.shape;
    const std::string name = "mine_" + std::to_string(++number);
    INFO(to_string(shape.collective) << " " << plan.name << ", " << shape.rank_count << " ranks");
    Settings settings;
    settings.contract = Contract::kRelaxed;
    settings.plan = write_plan(folder, plan, name);
    CHECK(run_all(shape.rank_count, settings,
                  cases_of(shape.collective, shape.rank_count, shape.root),
                  {"plan file " + settings.plan, name + ", " + std::to_string(shape.rank_count)}) ==
          "");
  };
  test::for_each_plan({2, 3, 4}, [&](const plan::Plan& plan) {
    sample.add(std::string(to_string(plan.shape.collective)) + " " + plan.name,
               [&run, plan] { run(plan); });
  });
  sample.run(random);
}

TEST_CASE("a plan that TUTTI_LANES repeats beyond what a communicator can have is refused") {
  const test::ScratchDirectory folder;
  const auto* algorithm = find_algorithm(Collective::kAllReduce, "double_tree");
  const plan::Plan plan = build(*algorithm, {Collective::kAllReduce, 3});
  REQUIRE(plan.ranks[0].lanes.size() == 2);
  Settings settings;
  settings.contract = Contract::kRelaxed;
  settings.plan = write_plan(folder, plan, "trees");
  settings.lanes = 32;
  CHECK(run_all(3, settings, {}, {}) == "");
  settings.lanes = 33;
  for (const Error& error : errors_of(3, [&](int) { return settings; })) {
    CHECK(error.code == Code::kInvalidArgument);
    CHECK_THAT(error.what, Catch::Contains("TUTTI_LANES=33") && Catch::Contains("at most 64"));
  }
}

TEST_CASE("a plan for one collective, rank count and root leaves all other calls alone") {
  const test::ScratchDirectory folder;
  Settings settings;
  settings.plan = write_plan(folder,
                             build(*find_algorithm(Collective::kBroadcast, "binomial"),
                                   {Collective::kBroadcast, 3, 1}),
                             "for_three") +
                  "," +
                  write_plan(folder,
                             build(*find_algorithm(Collective::kAllGather, "ring"),
                                   {Collective::kAllGather, 2}),
                             "for_two");
  std::vector<Case> cases;
  for (int i = 0; i < kCollectiveCount; ++i) {
    for (int root = 0; root < 3; ++root) {
      const auto some = cases_of(static_cast<Collective>(i), 3, root);
      cases.insert(cases.end(), some.begin(), some.end());
    }
  }
  CHECK(run_all(3, settings, cases,
                {"broadcast for_three, 3 ranks, root 1, deterministic\n",
                 "not used by this communicator"}) == "");
  // A part of the ranks is another rank count.
  auto comms = Communicator::in_process(3, settings);
  REQUIRE(comms);
  CHECK(test::on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
          auto part = comm.split(comm.rank().value == 0 ? 0 : 1, 0);
          if (!part) return part.error().to_string();
          const int ranks = part->rank_count();
          for (const Case& each : cases_of(Collective::kAllGather, ranks, 0)) {
            const std::string wrong = test::run_case(*part, each, 5);
            if (!wrong.empty()) return wrong;
          }
          return ranks == 2 && part->describe().find("for_two, 2 ranks") == std::string::npos
                     ? part->describe()
                     : "";
        }) == "");
}

TEST_CASE(
    "ranks with other plans, or with one that can't be read, do not keep each other waiting") {
  const test::ScratchDirectory folder;
  const auto plan_of = [&](const char* algorithm) {
    return write_plan(
        folder,
        build(*find_algorithm(Collective::kAllGather, algorithm), {Collective::kAllGather, 2}),
        algorithm);
  };
  const std::string direct = plan_of("direct"), ring = plan_of("ring");
  for (const std::string& other : {ring, std::string(), folder.path() + "/none"}) {
    INFO("the other rank has '" << other << "'");
    const auto errors = errors_of(2, [&](int rank) {
      Settings settings;
      settings.plan = rank == 0 ? direct : other;
      return settings;
    });
    CHECK(errors[0].code == Code::kMismatch);
    CHECK_THAT(errors[0].what, Catch::Contains("TUTTI_PLAN"));
    const bool unreadable = other.find("none") != std::string::npos;
    CHECK(errors[1].code == (unreadable ? Code::kInvalidArgument : Code::kMismatch));
    if (unreadable) CHECK_THAT(errors[1].what, Catch::Contains(other));
  }
}

TEST_CASE("ranks with other groups or weights are told so") {
  for (const bool groups : {false, true}) {
    const auto errors = errors_of(3, [&](int rank) {
      Settings settings;
      if (groups)
        settings.groups = {rank == 1 ? 2 : 4};
      else
        settings.weights = {1, 2, rank == 1 ? 1 : 2};
      return settings;
    });
    for (const Error& error : errors) {
      CHECK(error.code == Code::kMismatch);
      CHECK_THAT(error.what, Catch::Contains("TUTTI_GROUPS") && Catch::Contains("TUTTI_WEIGHTS"));
    }
  }
}

TEST_CASE("groups and weights reach the algorithms that are for them") {
  struct Way {
    const char* algorithm;
    std::vector<int> groups, weights;
  };
  for (const Way& way :
       {Way{"hierarchical", {2}, {}}, Way{"hierarchical", {4}, {}}, Way{"hierarchical", {2, 4}, {}},
        Way{"weighted", {}, {1, 0, 2, 1, 1, 1, 3, 1}},
        Way{"weighted", {2, 4}, {1, 1, 1, 1, 1, 1, 1, 0}}}) {
    INFO(way.algorithm << " " << way.groups.size() << " kinds of groups");
    Settings settings;
    settings.algorithm = std::string("all_reduce=") + way.algorithm;
    settings.groups = way.groups;
    settings.weights = way.weights;
    std::vector<Case> cases = cases_of(Collective::kAllReduce, 8, 0);
    for (Case& each : cases) each.exact = false;  // Deterministic, all of them.
    CHECK(run_all(8, settings, cases, {std::string("all_reduce ") + way.algorithm}) == "");
  }
}

TEST_CASE("weights go with their ranks into a split, and are one for each rank") {
  Settings settings;
  settings.algorithm = "all_reduce=weighted";
  settings.weights = {1, 2, 0, 3};
  auto comms = Communicator::in_process(4, settings);
  REQUIRE(comms);
  CHECK(test::on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
          auto half = comm.split(comm.rank().value % 2, 0);
          if (!half) return half.error().to_string();
          Case each{.count = 5000, .ranks = 2};
          return test::run_case(*half, each, 3);
        }) == "");
  settings.weights.pop_back();
  const auto wrong = Communicator::in_process(4, settings);
  REQUIRE_FALSE(wrong);
  CHECK(wrong.error().code == Code::kInvalidArgument);
  CHECK_THAT(wrong.error().what, Catch::Contains("TUTTI_WEIGHTS has 3 weights for 4 ranks"));
}
