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
             Contains("touches the output of rank 0, which gets none"));
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

TEST_CASE(
    "scans: each rank gets the sum over the ranks up to it, or below it, in canonical order") {
  const std::string scan = R"(
plan direct scan ranks 2 pieces 1 contract deterministic
rank 0
lane 0
  move 0: input[0] -> to(1):contribution
  move 0: input[0] -> output[0]
rank 1
lane 0
  move 0: from(0):contribution, input[0] -> output[0]
)";
  CHECK(verdict(scan) == "ok");
  CHECK_THAT(
      verdict(with(scan, "from(0):contribution, input[0]", "input[0], from(0):contribution")),
      Contains("the tree of ranks (1+0) is not the finished result: (1+0) is where (0+1)"));
  // A result, but of another rank.
  CHECK_THAT(
      verdict(with(scan, "from(0):contribution, input[0] ->", "from(0):contribution ->")),
      Contains("rank 1, lane 0, step 0: output[0]: the tree of ranks 0 is not the finished"));
  const std::string handed = with(with(scan, "to(1):contribution", "to(1):result"),
                                  "from(0):contribution, input[0]", "from(0):result");
  CHECK_THAT(verdict(handed), Contains("the tree of ranks 0 is not the finished result"));
  CHECK_THAT(verdict(with(handed, "deterministic", "relaxed")),
             Contains("a sum of ranks 0 is not"));
  const std::string exclusive = with(handed, " scan ", " exclusive_scan ");
  CHECK_THAT(verdict(exclusive), Contains("touches the output of rank 0, which gets none"));
  CHECK(verdict(with(exclusive, "  move 0: input[0] -> output[0]\n", "")) == "ok");
}

TEST_CASE("a relaxed scan may add up in another order, but only the ranks that are due") {
  const std::string chain = R"(
plan chain scan ranks 4 pieces 1 contract relaxed
rank 0
lane 0
  move 0: input[0] -> to(1):contribution
  move 0: input[0] -> output[0]
rank 1
lane 0
  move 0: from(0):contribution, input[0] -> output[0], to(2):partial
rank 2
lane 0
  move 0: from(1):partial, input[0] -> output[0], to(3):partial
rank 3
lane 0
  move 0: from(2):partial, input[0] -> output[0]
)";
  CHECK(verdict(chain) == "ok");
  CHECK_THAT(verdict(with(chain, "relaxed", "deterministic")),
             Contains("rank 3, lane 0, step 0: output[0]: the tree of ranks (((0+1)+2)+3)"));
  // As many ranks as rank 2 is due, but one of them is not the one.
  CHECK_THAT(verdict(with(chain, "from(1):partial, input[0] -> output[0], to(3):partial",
                          "from(1):partial -> output[0], to(3):partial")),
             Contains("rank 2, lane 0, step 0: output[0]: a sum of ranks (0+1) is not"));
}
