// A rank of an elastic job goes back to the turn that all ranks have ended.
#include <vector>

#include "support/catch.h"
#include "trainer/worker.h"
#include "unit/trainer/digits.h"

namespace tutti::test {
namespace {

using namespace trainer;
using Values = std::vector<std::vector<float>>;

Values values_of(Worker& worker) {
  Values values;
  for (const Piece& piece : worker.strategy().pieces())
    values.emplace_back(piece.values.begin(), piece.values.end());
  return values;
}

TEST_CASE("a rank that fails within a turn goes back to that turn or to the one before") {
  TrainOptions options;
  options.strategy.optimiser.name = "adam";
  const Split& data = digits();
  const auto network = make_network(options.model, data.train);
  auto first = Communicator::in_process(1), second = Communicator::in_process(1);
  REQUIRE((network && first && second));
  Worker worker(data, options, *network);
  worker.keep_copies();
  REQUIRE(worker.use(first->front()));
  std::vector<Values> before;  // By turn.
  for (int turn = 0; turn < 4; ++turn) {
    before.push_back(values_of(worker));
    if (turn < 3) REQUIRE(worker.advance());
  }
  first->front().abort("another rank has died");
  REQUIRE_FALSE(worker.advance());
  REQUIRE(worker.turn() == 3);
  REQUIRE(worker.use(second->front()));

  SECTION("to the turn before, and it goes on from there") {
    REQUIRE(worker.go_back(2));
    CHECK(worker.turn() == 2);
    CHECK(values_of(worker) == before[2]);
    CHECK_FALSE(worker.go_back(3));  // What was there is no more.
    REQUIRE(worker.advance());
    CHECK(values_of(worker) == before[3]);
  }
  SECTION("to this turn") {
    REQUIRE(worker.go_back(3));
    CHECK(values_of(worker) == before[3]);
  }
  SECTION("no further") { CHECK_FALSE(worker.go_back(1)); }
}

}  // namespace
}  // namespace tutti::test
