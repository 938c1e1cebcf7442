// What the verifier accepts and, above all, what it does not: each plan here is a right one with
// one thing wrong, and the error has to say that thing.
#include <fmt/format.h>

#include <numeric>
#include <string>
#include <vector>

#include "plan/structure.h"
#include "plan/verify/symbols.h"
#include "support/verdicts.h"

using namespace tutti;
using namespace tutti::test;

namespace {

constexpr const char* kAllReduce = R"(
plan exchange all_reduce ranks 2 pieces 1 contract deterministic
rank 0
lane 0
  move 0: input[0] -> to(1):contribution
  move 0: input[0], from(1):contribution -> output[0]
rank 1
lane 0
  move 0: input[0] -> to(0):contribution
  move 0: from(0):contribution, input[0] -> output[0]
)";

constexpr const char* kDirect = R"(
plan gather+direct all_gather ranks 2 pieces 1 contract deterministic
rank 0
lane 0
  signal 1
  wait 1
  move 0: input[0] -> output[0], output(1)[0]
  signal 1
  wait 1
rank 1
lane 0
  signal 0
  wait 0
  move 1: input[0] -> output[1], output(0)[1]
  signal 0
  wait 0
)";

}  // namespace

using Catch::Contains;

TEST_CASE("right plans verify") {
  CHECK(verdict(kAllReduce) == "ok");
  CHECK(verdict(kDirect) == "ok");
}

TEST_CASE("an error names plan, rank, lane, step and reason") {
  const std::string what =
      verdict(with(kAllReduce, "from(0):contribution, input[0]", "input[0], from(0):contribution"));
  CHECK(what ==
        "plan exchange: rank 1, lane 0, step 1: output[0]: the tree of ranks (1+0) is not the "
        "finished result: (1+0) is where (0+1) should be");
  CHECK(what.find('\n') == std::string::npos);
}

TEST_CASE("the wrong order is shown at its smallest part") {
  plan::Trees trees(15, false, false);
  std::vector<plan::Tree> order(15);
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[13], order[12]);
  CHECK(trees.difference(trees.reduce(order), 15) == "(13+12) is where (12+13) should be");
  std::swap(order[0], order[1]);  // In both halves: the whole.
  CHECK_THAT(trees.difference(trees.reduce(order), 15),
             Contains(" is where ((((0+1)+(2+3))") && Contains("should be"));
  CHECK_THAT(trees.difference(3, 15), Contains("3 is where ((((0+1)+(2+3))"));
}

TEST_CASE("another order of reduction is relaxed, and only that") {
  const std::string swapped =
      with(kAllReduce, "from(0):contribution, input[0]", "input[0], from(0):contribution");
  CHECK_THAT(verdict(swapped), Contains("not the finished result"));
  CHECK(verdict(with(swapped, "deterministic", "relaxed")) == "ok");
  CHECK(verdict(with(kAllReduce, "deterministic", "relaxed")) == "ok");
}

TEST_CASE("a contribution that is missing, doubled or of another chunk") {
  const std::string missing =
      with(kAllReduce, "input[0], from(1):contribution", "from(1):contribution");
  CHECK_THAT(verdict(missing),
             Contains("the tree of ranks 1 is not the finished result: 1 is where (0+1) "
                      "should be"));
  CHECK_THAT(verdict(with(missing, "deterministic", "relaxed")), Contains("not the finished"));
  const std::string doubled = with(kAllReduce, "input[0], from(1):contribution",
                                   "input[0], from(1):contribution, input[0]");
  CHECK_THAT(verdict(doubled), Contains("not the finished result"));
  CHECK_THAT(verdict(with(doubled, "deterministic", "relaxed")),
             Contains("adds the contribution of rank 0 twice"));

  const std::string other_block = R"(
plan scatter reduce_scatter ranks 2 pieces 1 contract deterministic
rank 0
lane 0
  move 1: input[1] -> to(1):contribution
  move 0: input[0], from(1):contribution -> output[0]
rank 1
lane 0
  move 0: input[0] -> to(0):contribution
  move 1: from(0):contribution, input[1] -> output[0]
)";
  CHECK(verdict(other_block) == "ok");
  CHECK_THAT(verdict(with(other_block, "input[0], from", "input[1], from")),
             Contains("input[1] is chunk 1 of the message, the step is about chunk 0"));
  CHECK_THAT(
      verdict(with(other_block, "move 1: input[1] -> to(1)", "move 0: input[0] -> to(1)")),
      Contains("from(0):contribution holds chunk 0 of the message, the step is about chunk 1"));
}

TEST_CASE("a value in the wrong output") {
  CHECK_THAT(verdict(with(kDirect, "output[0], output(1)[0]", "output[1], output(1)[0]")),
             Contains("output[1] is chunk 1 of the message, the step is about chunk 0"));
}

TEST_CASE("an output that is never written") {
  CHECK_THAT(verdict(with(kDirect, "output[0], output(1)[0]", "output(1)[0]")),
             Contains("rank 0: output[0] is never written"));
  CHECK_THAT(
      verdict("plan none all_gather ranks 1 pieces 1000000 contract relaxed\nrank 0\nlane 0"),
      Contains("fewer locations than output chunks"));
}

TEST_CASE("slots that are sent and not taken, or the other way round") {
  CHECK_THAT(verdict(with(kAllReduce, "move 0: input[0] -> to(1):contribution", "")),
             Contains("rank 0 sends 0 slots to rank 1, which takes 1"));
  CHECK_THAT(verdict(with(kAllReduce, "-> output[0]", "-> output[0], to(1):result")),
             Contains("rank 0 sends 2 slots to rank 1, which takes 1"));
  CHECK_THAT(verdict(with(kDirect, "  signal 1\n", "  signal 1\n signal 1\n")),
             Contains("rank 0 sends 3 signals to rank 1, which takes 2"));
}

TEST_CASE("sender and receiver that disagree") {
  CHECK_THAT(verdict(with(kAllReduce, "to(1):contribution", "to(1):partial")),
             Contains("from(0):contribution holds a partial, not a contribution"));
  const std::string pieces = R"(
plan chain broadcast ranks 2 pieces 2 contract deterministic
rank 0
lane 0
  move 0: input[0] -> output[0], to(1):result
  move 1: input[1] -> output[1], to(1):result
rank 1
lane 0
  move 0: from(0):result -> output[0]
  move 1: from(0):result -> output[1]
)";
  CHECK(verdict(pieces) == "ok");
  const std::string swapped =
      with(pieces, "move 0: from(0):result -> output[0]\n  move 1: from(0):result -> output[1]",
           "move 1: from(0):result -> output[1]\n  move 0: from(0):result -> output[0]");
  CHECK_THAT(verdict(swapped),
             Contains("from(0):result holds chunk 0 of the message, the step is about chunk 1"));
}

TEST_CASE("forms that can't become each other") {
  CHECK_THAT(verdict(with(kAllReduce, "-> output[0]", "-> output[0], scratch[0]:contribution")),
             Contains("scratch chunks"));
  const std::string with_scratch = with(kAllReduce, "rank 0\n", "rank 0 scratch 1\n");
  CHECK_THAT(
      verdict(with(with_scratch, "-> output[0]",
                   "-> scratch[0]:contribution\n  move 0: scratch[0]:contribution -> output[0]")),
      Contains("scratch[0]:contribution: a reduced partial can't become a contribution"));
  CHECK_THAT(verdict(with(with_scratch, "move 0: input[0] -> to(1)",
                          "move 0: input[0] -> scratch[0]:result\n  move 0: input[0] -> to(1)")),
             Contains("scratch[0]:result: the tree of ranks 0 is not the finished result"));
  // A wire rounds the one once more to have the other.
  CHECK_THAT(verdict(with(with_scratch, "-> to(1):contribution",
                          "-> to(1):contribution, scratch[0]:result")),
             Contains("writes a contribution and a result: that takes two steps"));
  CHECK_THAT(verdict(with(with_scratch, "input[0], from(1):contribution",
                          "scratch[0]:contribution, from(1):contribution")),
             Contains("reads scratch[0]:contribution, which is undefined"));
  CHECK_THAT(verdict(with(with_scratch, "-> output[0]\n",
                          "-> output[0]\n move 0: output[0], input[0] -> scratch[0]:partial\n")),
             Contains("reads input[0] after output[0] was written"));
  CHECK_THAT(verdict(with(kDirect, "input[0] -> output[0]", "input[0], input[0] -> output[0]")),
             Contains("all_gather only moves data"));
}

TEST_CASE("in place, an input is gone once its output is written") {
  const std::string twice = R"(
plan twice reduce_scatter ranks 2 pieces 1 contract deterministic
rank 0
lane 0
  move 1: input[1] -> to(1):contribution
  move 0: input[0], from(1):contribution -> output[0]
rank 1
lane 0
  move 0: input[0] -> to(0):contribution
  move 1: from(0):contribution, input[1] -> output[0]
)";
  // In a reduce-scatter, only the rank's own block lies in its output.
  const std::string own =
      with(twice, "-> output[0]\nrank 1",
           "-> output[0]\n move 0: input[0] -> scratch[0]:contribution\nrank 1");
  CHECK_THAT(verdict(with(own, "rank 0\n", "rank 0 scratch 1\n")),
             Contains("reads input[0] after output[0] was written"));
  const std::string other =
      with(twice, "-> output[0]\nrank 1",
           "-> output[0]\n move 1: input[1] -> scratch[0]:contribution\nrank 1");
  CHECK(verdict(with(other, "rank 0\n", "rank 0 scratch 1\n")) == "ok");
}

TEST_CASE("a plan that needs more slots than there are stands still") {
  const std::string two_sends = R"(
plan two all_gather ranks 2 pieces 2 contract deterministic
rank 0
lane 0
  move 0: input[0] -> output[0], to(1):result
  move 1: input[1] -> output[1], to(1):result
  move 2: from(1):result -> output[2]
  move 3: from(1):result -> output[3]
rank 1
lane 0
  move 2: input[0] -> output[2], to(0):result
  move 3: input[1] -> output[3], to(0):result
  move 0: from(0):result -> output[0]
  move 1: from(0):result -> output[1]
)";
  CHECK(verdict(two_sends) ==
        "plan two: rank 0, lane 0, step 1: deadlock with 1 slot per channel: waits until rank 1 "
        "has "
        "read its slot; rank 1 at step 1 waits until rank 0 has read its slot");
  CHECK(verdict(two_sends, {.slots = 2}) == "ok");
  CHECK_THAT(verdict(two_sends, {.slots = 0}), Contains("0 slots"));
}

TEST_CASE("ranks that wait for each other stand still") {
  const std::string receive_first = R"(
plan first all_reduce ranks 2 pieces 1 contract deterministic
rank 0
lane 0
  move 0: input[0], from(1):contribution -> output[0]
  move 0: output[0] -> to(1):result
rank 1
lane 0
  move 0: from(0):result -> output[0]
  move 0: output[0] -> to(0):contribution
)";
  CHECK_THAT(verdict(receive_first, {.slots = 100}),
             Contains("deadlock") && Contains("waits for a slot from rank 1; rank 1 at step 0"));
  // Each waits for the other's entry before it says that it has entered itself.
  std::string waits_first = with(kDirect, "  signal 1\n  wait 1\n", "  wait 1\n  signal 1\n");
  waits_first = with(waits_first, "  signal 0\n  wait 0\n", "  wait 0\n  signal 0\n");
  CHECK_THAT(verdict(waits_first), Contains("deadlock") && Contains("waits for a signal"));
}

TEST_CASE("mapped buffers are touched between their owner's start and end only") {
  // Without the entry signal of rank 1 (and its wait).
  std::string no_entry = with(kDirect, "  wait 1\n", "");
  no_entry = with(no_entry, "  signal 0\n", "");
  CHECK_THAT(verdict(no_entry), Contains("rank 0, lane 0, step 1: race") &&
                                    Contains("rank 1, which may not have entered the call"));
  // Nor is one needed by ranks that start together.
  CHECK(verdict(with(no_entry, "deterministic", "deterministic together")) == "ok");
  // Without the exit signal.
  std::string no_exit = with(kDirect, "  signal 1\n  wait 1\nrank 1", "  wait 1\nrank 1");
  no_exit = with(no_exit, "  signal 0\n  wait 0\n  move", "  signal 0\n  wait 0\n move");
  no_exit = with(no_exit, "  signal 0\n  wait 0\n", "  signal 0\n");  // The entry's wait stays.
  CHECK_THAT(verdict(no_exit), Contains("race"));
  const std::string late_signal = with(kDirect, "  signal 1\n  wait 1\nrank 1", "  wait 1\nrank 1");
  const std::string early_signal = with(late_signal, "  signal 1\n", "  signal 1\n  signal 1\n");
  CHECK_THAT(verdict(early_signal), Contains("rank 0, lane 0, step 3: race") &&
                                        Contains("rank 1, which may have left the call already"));
}

TEST_CASE("two ranks that touch the same memory are ordered") {
  // Rank 1 reads rank 0's input, which in place rank 0 writes.
  const std::string one_shot = R"(
plan one_shot+direct all_reduce ranks 2 pieces 1 contract deterministic
rank 0
lane 0
  signal 1
  move 0: input[0], from(1):contribution -> output[0]
  wait 1
rank 1
lane 0
  move 0: input[0] -> to(0):contribution
  wait 0
  move 0: input(0)[0], input[0] -> output[0]
  signal 0
)";
  CHECK_THAT(verdict(one_shot), Contains("race") || Contains("in place"));
  // Now rank 0 writes only after rank 1 has read.
  const std::string ordered = R"(
plan one_shot+direct all_reduce ranks 2 pieces 1 contract deterministic
rank 0
lane 0
  signal 1
  wait 1
  move 0: input[0], from(1):contribution -> output[0]
rank 1 scratch 1
lane 0
  move 0: input[0] -> to(0):contribution
  wait 0
  move 0: input(0)[0], input[0] -> output[0]
  signal 0
)";
  CHECK(verdict(ordered) == "ok");
}

TEST_CASE("slots order only what is there whenever they are") {
  // Rank 1 learns by a slot that rank 0 has entered. The slot of piece 1 may be empty, and skipped,
  // while there is something to write in piece 0.
  const auto plan = [](int piece, int other) {
    return fmt::format(R"(
plan order all_gather ranks 2 pieces 2 contract deterministic
rank 0
lane 0
  move {0}: input[{0}] -> output[{0}], to(1):result
  move {1}: input[{1}] -> output[{1}], to(1):result
  wait 1
rank 1
lane 0
  move {0}: from(0):result -> output[{0}]
  move 2: input[0] -> output[2], output(0)[2]
  move {1}: from(0):result -> output[{1}]
  move 3: input[1] -> output[3], output(0)[3]
  signal 0
)",
                       piece, other);
  };
  CHECK(verdict(plan(0, 1)) == "ok");
  CHECK_THAT(verdict(plan(1, 0)), Contains("rank 0, which may not have entered the call"));
}

TEST_CASE("lanes share neither scratch nor outputs") {
  const std::string lanes = R"(
plan lanes broadcast ranks 2 pieces 2 contract deterministic
rank 0
lane 0
  move 0: input[0] -> output[0], to(1):result
lane 1
  move 1: input[1] -> output[1], to(1):result
rank 1 scratch 2
lane 0
  move 0: from(0):result -> scratch[0]:result
  move 0: scratch[0]:result -> output[0]
lane 1
  move 1: from(0):result -> scratch[1]:result
  move 1: scratch[1]:result -> output[1]
)";
  CHECK(verdict(lanes) == "ok");
  std::string shared = with(lanes, "-> scratch[1]:result", "-> scratch[0]:result");
  CHECK_THAT(verdict(shared), Contains("scratch[0]:result is used by lane 0 too"));
  // Out of place, both lanes write that chunk.
  const std::string crossed = with(lanes, "output[1], to(1):result",
                                   "output[1], to(1):result\n  move 0: input[0] -> output[0]");
  CHECK_THAT(verdict(crossed), Contains("race: writes output[0] of rank 0, which rank 0"));
}

TEST_CASE("what is out of range or out of place") {
  const auto edit = [](const char* from, const char* to) {
    return verdict(with(kAllReduce, from, to));
  };
  CHECK_THAT(edit("input[0]", "input[1]"), Contains("input[1]: there are 1 chunks"));
  CHECK_THAT(edit("to(1)", "to(0)"), Contains("names itself as its peer"));
  CHECK_THAT(
      edit("input[0] -> to(1):contribution", "input[0] -> to(1):contribution, to(1):contribution"),
      Contains("writes the same target twice"));
  CHECK_THAT(edit("from(1):contribution", "from(1):contribution, from(1):contribution"),
             Contains("reads two slots of one ring"));
  CHECK_THAT(verdict(with(kAllReduce, "rank 0", "rank 0 scratch 70000")),
             Contains("70000 scratch chunks: at most 65536"));

  plan::Plan plan = read(kAllReduce);
  plan.ranks[0].lanes[0].locations[1].place = plan::Place::kInput;
  plan.ranks[0].lanes[0].locations[1].peer = 0;
  CHECK_THAT(verdict(plan), Contains("rank 0, lane 0, step 0: writes to input[0]"));
  plan = read(kAllReduce);
  plan.ranks.pop_back();
  CHECK_THAT(verdict(plan), Contains("is for 2 ranks but describes 1"));
  plan = read(kAllReduce);
  plan.shape.root = 2;
  CHECK_THAT(verdict(plan), Contains("root 2"));
  plan = read(kAllReduce);
  plan.shape.groups = {2, 3};
  CHECK_THAT(verdict(plan), Contains("groups of 2 in groups of 3: takes a larger multiple"));
  plan = read(kAllReduce);
  plan.shape.weights = {1, 2, 3};
  CHECK_THAT(verdict(plan), Contains("3 weights: takes one for each rank, or none"));
  plan.shape.weights = {1, -1};
  CHECK_THAT(verdict(plan), Contains("weight -1"));
  CHECK(plan::root_of({1, {2, 0, 2, 1}}, 4) == 2);
  CHECK(plan::root_of({1, {0, 2, 3, 1}}, 4) == -1);  // A circle beside the root.
  // Too short, without a root, with two, of no weight, of a rank that there is not.
  for (const plan::SpanningTree& tree : std::vector<plan::SpanningTree>{
           {1, {0}}, {1, {1, 0}}, {1, {0, 1}}, {0, {0, 0}}, {1, {0, 2}}, {1, {-1, 1}}}) {
    plan = read(kAllReduce);
    plan.shape.trees = {{1, {0, 0}}, tree};
    CHECK_THAT(verdict(plan), Contains("tree 1: takes a weight of 1 to"));
  }
  plan = read(kAllReduce);
  plan.ranks[0].lanes[0].steps[0].target_count = 9;
  CHECK_THAT(verdict(plan), Contains("more locations than there are"));
  plan = read(kAllReduce);
  plan.ranks[0].lanes.clear();
  CHECK_THAT(verdict(plan), Contains("0 lanes"));
  plan = read(kAllReduce);
  plan.pieces = 0;
  CHECK_THAT(verdict(plan), Contains("0 pieces"));
  CHECK_THAT(verdict("plan x broadcast ranks 2 pieces 1 contract relaxed\nrank 0\nlane 0\nmove 0: "
                     "input[0] -> output[0]\nrank 1\nlane 0\nmove 0: input[0] -> output[0]"),
             Contains("only the root's is given"));
}

TEST_CASE("multicast rings are read by all others") {
  const std::string all = R"(
plan all+multicast broadcast ranks 3 pieces 1 contract deterministic
rank 0
lane 0
  move 0: input[0] -> output[0], multicast:result
rank 1
lane 0
  move 0: multicast(0):result -> output[0]
rank 2
lane 0
  move 0: multicast(0):result -> output[0]
)";
  CHECK(verdict(all) == "ok");
  CHECK_THAT(verdict(with(all, "multicast(0):result", "multicast(2):result")),
             Contains("which takes 0") || Contains("which takes 1"));
  const std::string stuck = R"(
plan stuck+multicast broadcast ranks 3 pieces 2 contract deterministic
rank 0
lane 0
  move 0: input[0] -> output[0], multicast:result
  move 1: input[1] -> output[1], multicast:result
  move 0: input[0] -> to(1):result
rank 1
lane 0
  move 0: from(0):result -> output[0]
  move 0: multicast(0):result -> output[0]
  move 1: multicast(0):result -> output[1]
rank 2
lane 0
  move 0: multicast(0):result -> output[0]
  move 1: multicast(0):result -> output[1]
)";
  CHECK_THAT(verdict(stuck), Contains("rank 0, lane 0, step 1: deadlock") &&
                                 Contains("until all ranks have read its multicast slot"));
  CHECK(verdict(stuck, {.slots = 2}) == "ok");
}
