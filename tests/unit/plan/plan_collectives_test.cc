// What the verifier makes of collectives that exchange blocks, and of those that have a root.
#include "plan/passes/passes.h"
#include "support/verdicts.h"

using namespace tutti;
using namespace tutti::test;
using Catch::Contains;

TEST_CASE("an all-to-all in place exchanges blocks by way of slots, or says that it is apart") {
  const std::string exchange = R"(
plan exchange all_to_all ranks 2 pieces 1 contract deterministic
rank 0
lane 0
  move 0: input[0] -> output[0]
  move 1: input[1] -> to(1):result
  move 2: from(1):result -> output[1]
rank 1
lane 0
  move 3: input[1] -> output[1]
  move 2: input[0] -> to(0):result
  move 1: from(0):result -> output[0]
)";
  CHECK(verdict(exchange) == "ok");
  // What came has taken the place of what was to go.
  const std::string late =
      with(exchange, "  move 1: input[1] -> to(1):result\n  move 2: from(1):result -> output[1]",
           "  move 2: from(1):result -> output[1]\n  move 1: input[1] -> to(1):result");
  CHECK_THAT(verdict(late), Contains("reads input[1] after output[1] was written"));
  CHECK(verdict(with(late, "deterministic", "deterministic apart")) == "ok");

  const auto direct = plan::direct(read(exchange));
  REQUIRE(direct);
  CHECK(direct->apart);
  plan::Plan in_place = *direct;
  in_place.apart = false;
  CHECK_THAT(verdict(in_place), Contains("race") || Contains("in place"));
}

TEST_CASE("rooted collectives: buffers that only the root has") {
  const std::string gather = R"(
plan direct gather ranks 2 pieces 1 contract deterministic root 1
rank 0
lane 0
  move 0: input[0] -> to(1):result
rank 1
lane 0
  move 1: input[0] -> output[1]
  move 0: from(0):result -> output[0]
)";
  CHECK(verdict(gather) == "ok");
  CHECK_THAT(verdict(with(gather, "-> to(1):result", "-> to(1):result, output[0]")),
             Contains("touches the output of rank 0: only the root gets one"));
  CHECK_THAT(verdict(with(gather, "  move 1: input[0] -> output[1]\n", "")),
             Contains("rank 1: output[1] is never written"));
  const std::string scatter = R"(
plan direct scatter ranks 2 pieces 1 contract deterministic
rank 0
lane 0
  move 1: input[1] -> to(1):result
  move 0: input[0] -> output[0]
rank 1
lane 0
  move 1: from(0):result -> output[0]
)";
  CHECK(verdict(scatter) == "ok");
  CHECK_THAT(verdict(with(scatter, "from(0):result", "input[1]")),
             Contains("reads the input of rank 1, which is undefined"));
}
