// The text form: what is printed parses to the same plan, and what is no plan gets one clear line.
#include <cstdlib>
#include <fstream>
#include <random>
#include <string>

#include "plan/passes/passes.h"
#include "plan/text/text.h"
#include "plan/verify/verify.h"
#include "support/catch.h"
#include "support/plans.h"

using namespace tutti;

namespace {

void check_round_trip(const plan::Plan& plan) {
  const std::string text = plan::to_text(plan);
  const auto again = plan::parse(text);
  INFO(plan.name << " on " << plan.ranks.size() << " ranks");
  INFO((again ? "" : again.error().what));
  REQUIRE(again);
  REQUIRE(*again == plan);
}

std::string error_of(std::string_view text) {
  const auto plan = plan::parse(text);
  if (plan) return "ok";
  CHECK(plan.error().code == Code::kInvalidPlan);
  CHECK(plan.error().what.find('\n') == std::string::npos);
  return plan.error().what;
}

constexpr const char* kHeader = "plan p all_reduce ranks 2 pieces 2 contract deterministic\n";

// The error of a step in rank 0, lane 0.
std::string step_error_of(const std::string& step) {
  return error_of(kHeader + ("rank 0\nlane 0\n" + step + "\nrank 1\nlane 0\n"));
}

}  // namespace

TEST_CASE("every plan, lowered too, reads back as it was") {
  test::for_each_plan({1, 2, 3, 4, 5, 8, 13}, [](const plan::Plan& plan) {
    check_round_trip(plan);
    check_round_trip(plan::replicate(plan, 3));
    if (const auto direct = plan::direct(plan)) check_round_trip(*direct);
    if (const auto multicast = plan::multicast(plan)) check_round_trip(*multicast);
  });
}

TEST_CASE("one rank's part is a part of the whole") {
  const plan::Plan plan = build(two_shot_all_reduce, {.rank_count = 3});
  std::string parts;
  for (int rank = 0; rank < 3; ++rank) parts += plan::to_text(plan, Rank{rank});
  CHECK(plan::to_text(plan) ==
        "plan two_shot all_reduce ranks 3 pieces 3 contract deterministic\n" + parts);
}

TEST_CASE("all that the format can say") {
  const auto plan = plan::parse(
      "# a comment\r\n"
      "\n"
      "plan by_hand+x.1 broadcast ranks 2 pieces 3 contract relaxed root 1 group 2,4 , 8 "
      "weights 0,3 tree 2:1 , 1 tree 7: 1,1 # more\n"
      "rank 0 scratch 4\n"
      "lane 0\n"
      "\tmove 2:multicast( 1 ):result,  from(1):partial->scratch[3]:contribution # odd, but "
      "readable\n"
      "signal 1\n"
      "lane 1\n"
      "rank 1\n"
      "lane 0\n"
      "  wait 0\n"
      "  move 0: input(0)[0], output(0)[1], input[2], output[0] -> multicast:result, "
      "to(0):partial, "
      "output(0)[2], output[1]");
  INFO((plan ? "" : plan.error().what));
  REQUIRE(plan);
  CHECK(plan->name == "by_hand+x.1");
  CHECK(plan->shape ==
        plan::Shape{Collective::kBroadcast, 2, 1, {2, 4, 8}, {0, 3}, {{2, {1, 1}}, {7, {1, 1}}}});
  CHECK(plan->contract == Contract::kRelaxed);
  CHECK(plan->pieces == 3);
  REQUIRE(plan->ranks.size() == 2);
  CHECK(plan->ranks[0].scratch_chunks == 4);
  REQUIRE(plan->ranks[0].lanes.size() == 2);
  const plan::Lane& lane = plan->ranks[0].lanes[0];
  REQUIRE(lane.steps.size() == 2);
  CHECK(lane.steps[0] == plan::Step{.source_count = 2, .target_count = 1, .first = 0, .chunk = 2});
  CHECK(lane.steps[1] == plan::Step{.kind = plan::StepKind::kSignal, .peer = 1});
  CHECK(lane.locations[0] == plan::Location{plan::Place::kMulticast, Form::kResult, 1, 0});
  CHECK(lane.locations[1] == plan::Location{plan::Place::kSlot, Form::kPartial, 1, 0});
  CHECK(lane.locations[2] == plan::Location{plan::Place::kScratch, Form::kContribution, 0, 3});
  CHECK(plan->ranks[1].lanes[0].locations.size() == 8);
  check_round_trip(*plan);
}

TEST_CASE("the plans in the documentation are plans") {
  const char* source = std::getenv("TEST_SOURCE_DIR");
  if (source == nullptr) {
    WARN("TEST_SOURCE_DIR is not set: run this through ctest");
    return;
  }
  std::ifstream file(std::string(source) + "/docs/plan-format.md");
  REQUIRE(file);
  int plans = 0;
  std::string line, text;
  bool in_plan = false;
  while (std::getline(file, line)) {
    if (line == "```" && in_plan) {
      INFO(text);
      const auto plan = plan::parse(text);
      REQUIRE(plan);
      const Status status = plan::verify(*plan);
      INFO((status ? "" : status.error().what));
      CHECK(status);
      ++plans;
      in_plan = false;
    }
    if (in_plan) text += line + '\n';
    if (line == "```plan") {
      in_plan = true;
      text.clear();
    }
  }
  CHECK(plans == 2);
}

TEST_CASE("errors name line and column and say what was expected") {
  CHECK(error_of("") == "plan text, line 1, column 1: expected 'plan', found the end of the line");
  CHECK(error_of("rank 0") == "plan text, line 1, column 1: expected 'plan', found 'rank 0'");
  CHECK(error_of("plan p all_reduce\n") ==
        "plan text, line 1, column 18: expected 'ranks', found the end of the line");
  CHECK(error_of("plan p sort ranks 2") ==
        "plan text, line 1, column 8: expected a collective (all_reduce, reduce_scatter, "
        "all_gather, broadcast, reduce, gather, scatter, all_to_all, scan, exclusive_scan), "
        "found 'sort ranks 2'");
  CHECK(error_of("\nplan p all_reduce ranks 65536") ==
        "plan text, line 2, column 25: expected a rank count (1 to 65535), found '65536'");
  CHECK(error_of("plan p all_reduce ranks 2 pieces 0").find("a number of pieces") !=
        std::string::npos);
  CHECK(error_of("plan p all_reduce ranks 2 pieces 1 contract none")
            .find("column 45: expected deterministic or relaxed, found 'none'") !=
        std::string::npos);
  CHECK(error_of("plan p broadcast ranks 2 pieces 1 contract relaxed root 2")
            .find("expected a rank (0 to 1), found '2'") != std::string::npos);
  CHECK(error_of("plan p broadcast ranks 2 pieces 1 contract relaxed group 2,0")
            .find("expected a group size (1 to 65535), found '0'") != std::string::npos);
  CHECK(error_of("plan p broadcast ranks 2 pieces 1 contract relaxed weights 1 2")
            .find("expected the end of the line, found '2'") != std::string::npos);
  CHECK(error_of(std::string(kHeader) + "rank 1") ==
        "plan text, line 2, column 6: expected the next rank (0 to 0), found '1'");
  CHECK(error_of(std::string(kHeader) + "rank 0\n") ==
        "plan text, line 3, column 1: expected 'rank 1', found the end of the line");
  CHECK(error_of(std::string(kHeader) + "rank 0\nrank 1\nrank 2") ==
        "plan text, line 4, column 1: the plan is for 2 ranks, this is one more");
  CHECK(error_of(std::string(kHeader) + "lane 0").find("expected 'rank'") != std::string::npos);
  CHECK(error_of(std::string(kHeader) + "rank 0\nwait 1").find("expected 'lane' or 'rank'") !=
        std::string::npos);
  CHECK(error_of(std::string(kHeader) + "rank 0\nlane 1").find("the next lane (0 to 0)") !=
        std::string::npos);
}

TEST_CASE("errors in steps") {
  CHECK(step_error_of("move 0: input[0] -> output[0]") == "ok");
  CHECK(step_error_of("jump 0") ==
        "plan text, line 4, column 1: expected 'move', 'signal', 'wait', 'lane' or 'rank', found "
        "'jump 0'");
  const std::pair<const char*, const char*> cases[] = {
      {"move 2: input[0] -> output[0]", "column 6: expected a chunk (0 to 1), found '2"},
      {"move 0 input[0] -> output[0]", "column 8: expected ':'"},
      {"move 0: -> output[0]", "column 9: expected input, output, scratch, from or multicast"},
      {"move 0: input[0]", "column 17: expected '->', found the end of the line"},
      {"move 0: input[0] ->", "column 20: expected output, scratch, to or multicast"},
      {"move 0: input[0] -> input[0]", "column 21: expected output, scratch, to or multicast"},
      {"move 0: input[0] -> from(1):result", "expected output, scratch, to or multicast"},
      {"move 0: to(1):result -> output[0]", "expected input, output, scratch, from or multicast"},
      {"move 0: input[x] -> output[0]", "column 15: expected a chunk"},
      {"move 0: input[4294967295] -> output[0]", "expected a chunk (0 to 4294967294)"},
      {"move 0: input[99999999999999999999] -> output[0]", "expected a chunk"},
      {"move 0: input[-1] -> output[0]", "expected a chunk"},
      {"move 0: input[0 -> output[0]", "expected ']'"},
      {"move 0: from(2):partial -> output[0]", "expected a rank (0 to 1), found '2"},
      {"move 0: from(1) -> output[0]", "column 17: expected ':'"},
      {"move 0: from(1):sum -> output[0]", "expected contribution, partial or result"},
      {"move 0: input[0] -> output[0] output[1]", "expected the end of the line"},
      {"move 0: input[0] -> output[0],", "expected output, scratch, to or multicast"},
      {"signal", "column 7: expected a rank (0 to 1), found the end of the line"},
      {"wait 2", "expected a rank (0 to 1), found '2'"},
      {"wait 1 1", "expected the end of the line"},
      {"w\x01\xff", "found 'w?\?'"},
  };
  for (const auto& [step, expected] : cases) {
    INFO(step);
    CHECK_THAT(step_error_of(step),
               Catch::StartsWith("plan text, line 4, column ") && Catch::Contains(expected));
  }
}

TEST_CASE("what is too large is refused before it is read") {
  CHECK_THAT(error_of("plan " + std::string(200, 'x') + " all_reduce ranks 1"),
             Catch::Contains("a name of 1 to 128 characters"));
  CHECK_THAT(error_of(std::string(5'000'000, ' ')), Catch::Contains("longer than 4 MiB"));
  std::string many = "move 0: input[0]";
  for (int i = 0; i < 65536; ++i) many += ",input[0]";
  CHECK_THAT(step_error_of(many + " -> output[0]"), Catch::Contains("more than 65535"));
}

TEST_CASE("no text of plan-like words makes the parser fail in any other way than an error") {
  const std::uint64_t seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937_64 random(seed);
  const char* words[] = {"plan", "rank",       "lane",      "move",    "signal", "wait",
                         "0",    "1",          "2",         ":",       "->",     ",",
                         "[",    "]",          "(",         ")",       "input",  "to",
                         "from", "\n",         "\n",        " ",       "output", "ranks",
                         "#",    "4294967295", "multicast", "scratch", "result", "partial"};
  for (int trial = 0; trial < 2000; ++trial) {
    std::string text = trial % 4 == 0 ? "" : kHeader + std::string("rank 0\nlane 0\n");
    for (int length = 0; length < 30; ++length) {
      text += words[random() % std::size(words)];
      if (random() % 2 == 0) text += ' ';
    }
    const auto plan = plan::parse(text);
    if (plan) {
      check_round_trip(*plan);
    } else {
      REQUIRE_THAT(plan.error().what, Catch::StartsWith("plan text, line "));
    }
  }
}
