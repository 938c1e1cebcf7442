// What users force and forbid, in words.
#include "planner/override.h"

#include <algorithm>

#include "algorithms/algorithm.h"
#include "support/catch.h"

namespace tutti::planner {
namespace {

Override read(Collective collective, std::string_view list) {
  const auto algorithm_override = override_for(collective, list, "TUTTI_ALGORITHM");
  INFO((algorithm_override ? "" : algorithm_override.error().what));
  REQUIRE(algorithm_override);
  return *algorithm_override;
}

TEST_CASE("a name is for every collective that has it, a pair for one, the last one counts") {
  CHECK(read(Collective::kAllReduce, "ring").forced == "ring");
  CHECK(read(Collective::kGather, "ring").forced.empty());  // It has none.
  CHECK(read(Collective::kAllReduce, "ring,two_shot").forced == "two_shot");
  CHECK(read(Collective::kAllReduce, "all_reduce=two_shot,ring").forced == "two_shot");
  CHECK(read(Collective::kBroadcast, "all_reduce=two_shot,ring").forced == "ring");
  CHECK(read(Collective::kAllReduce, "packet").forced == "packet");
  CHECK(read(Collective::kAllReduce, "nvls").forced == "nvls");
  CHECK(*override_number(Collective::kAllReduce, "nvls") == 0);  // Hosts have no such thing.
}

TEST_CASE("a name may say how often its lanes are repeated") {
  const auto lanes = [](std::string_view list) { return read(Collective::kAllReduce, list).lanes; };
  CHECK(read(Collective::kAllReduce, "ring:2").forced == "ring");
  CHECK(lanes("ring:2") == 2);
  CHECK(lanes("ring") == 0);
  CHECK(lanes("ring:2,two_shot") == 0);
  CHECK(lanes("all_reduce=ring:63,two_shot:2") == 63);
  CHECK(read(Collective::kBroadcast, "all_reduce=two_shot:4,ring:2").lanes == 2);
  CHECK(lanes("^ring,two_shot:3") == 3);
  for (const char* list : {"ring:0", "ring:64", "ring:", "ring:x", "ring:2x", "ring:-1", "ring:2:2",
                           "packet:2", "nvls:2", "copy_engines:2", "^ring:2"}) {
    INFO(list);
    const auto algorithm_override = override_for(Collective::kAllReduce, list, "TUTTI_ALGORITHM");
    const auto number = override_number(Collective::kAllReduce, list);
    REQUIRE_FALSE(algorithm_override);
    REQUIRE_FALSE(number);
    for (const std::string& what : {algorithm_override.error().what, number.error().what}) {
      CHECK_THAT(what, Catch::Contains("NAME:1 to NAME:63"));
    }
  }
}

TEST_CASE("with ^ it is forbidden") {
  const Override algorithm_override =
      read(Collective::kAllReduce, "^ring,all_reduce=^packet,all_reduce=^nvls,broadcast=^direct");
  CHECK(algorithm_override.forced.empty());
  CHECK(algorithm_override.forbids("ring"));
  CHECK(algorithm_override.forbids("packet"));
  CHECK(algorithm_override.forbids("nvls"));
  CHECK_FALSE(algorithm_override.forbids("two_shot"));
  CHECK_FALSE(read(Collective::kBroadcast, "reduce=^direct").forbids("direct"));
}

TEST_CASE("copy engines are of the collectives that only move inputs of all ranks") {
  CHECK(read(Collective::kAllGather, "copy_engines").forced == "copy_engines");
  CHECK(read(Collective::kAllToAll, "copy_engines,all_to_all=direct").forced == "direct");
  CHECK(read(Collective::kAllToAll, "^copy_engines").forbids("copy_engines"));
  CHECK(read(Collective::kAllReduce, "copy_engines").forced.empty());
  CHECK(read(Collective::kBroadcast, "copy_engines,ring").forced == "ring");
}

TEST_CASE("an unknown name lists the algorithms of the collective that is called, in one line") {
  const auto what = [](Collective called, std::string_view list) {
    const auto found = override_for(called, list, "TUTTI_ALGORITHM");
    REQUIRE_FALSE(found);
    return found.error().what;
  };
  CHECK(what(Collective::kGather, "nosuch") ==
        "TUTTI_ALGORITHM: unknown algorithm 'nosuch'; the algorithms of gather are direct, "
        "binomial, hierarchical, "
        "packet, nvls");
  CHECK_THAT(what(Collective::kAllReduce, "rng"),
             Catch::StartsWith("TUTTI_ALGORITHM: unknown algorithm 'rng'; did you mean 'ring'? "
                               "The algorithms of all_reduce are one_shot, "));
  // It may be meant for another collective than this call's.
  CHECK_THAT(what(Collective::kAllReduce, "brck"), Catch::Contains("did you mean 'bruck'?"));
  CHECK_THAT(what(Collective::kAllReduce, "gather=rng"),
             Catch::StartsWith(
                 "TUTTI_ALGORITHM: unknown gather algorithm 'rng'; the algorithms of gather are "));
  CHECK_THAT(what(Collective::kAllReduce, "all_redcue=ring"),
             Catch::StartsWith("TUTTI_ALGORITHM: unknown collective 'all_redcue'; did you mean "
                               "'all_reduce'? There are "));
  for (int i = 0; i < kCollectiveCount; ++i) {
    const std::string text = what(static_cast<Collective>(i), "nosuch");
    CHECK(text.find('\n') == std::string::npos);
  }
}

TEST_CASE("what there is not is an error that says what there is, whichever collective asks") {
  for (const char* list :
       {"nonsense", "^nonsense", "all_reduce=nonsense", "nonsense=ring", "all_reduce=^nonsense",
        "gather=ring", "all_reduce=copy_engines", "^", ":2"}) {
    for (const Collective asks : {Collective::kAllReduce, Collective::kBroadcast}) {
      INFO(list);
      const auto algorithm_override = override_for(asks, list, "TUTTI_ALGORITHM");
      REQUIRE_FALSE(algorithm_override);
      CHECK(algorithm_override.error().code == Code::kInvalidArgument);
      CHECK_THAT(algorithm_override.error().what,
                 Catch::StartsWith("TUTTI_ALGORITHM: ") &&
                     (Catch::Contains("there are") || Catch::Contains(" algorithms of ")));
    }
  }
}

TEST_CASE("a call's wish travels as a number") {
  for (const Algorithm* algorithm : algorithms()) {
    const std::string name(algorithm->name);
    for (const std::string& algorithm_override : {name, "^" + name, name + ":1", name + ":63"}) {
      const auto number = override_number(algorithm->collective, algorithm_override);
      REQUIRE(number);
      CHECK(*number != 0);
      CHECK(override_text(*number) == algorithm_override);
    }
  }
  CHECK(override_text(*override_number(Collective::kGather, "^packet")) == "^packet");
  CHECK(*override_number(Collective::kGather, "") == 0);
  CHECK(override_text(0).empty());
  CHECK_FALSE(override_number(Collective::kGather, "ring"));
}

}  // namespace
}  // namespace tutti::planner
