// Spans and memory: making a row needs some, and says so; beginning and ending a span needs none.
#include "support/c_ranks.h"
#include "support/environment.h"
#include "support/processes.h"
#include "support/shortage.h"
#include "tutti/spans.h"

namespace tutti::test {
namespace {

TEST_CASE("a row that gets no memory is an error, and the next one is made") {
  const ScratchDirectory directory;
  const Environment traced({"TUTTI_"}, {{"TUTTI_TRACE", directory.path() + "/trace.json"}});
  Ranks ranks(1);
  for (long n = 1;; ++n) {
    INFO("allocation " << n);
    tutti_spans_t row = nullptr;
    tutti_result_t result = TUTTI_OK;
    bool struck = false;
    {
      const Shortage shortage(n, Failing::kOne);
      result = tutti_spans_create(ranks[0], "a row with a name that has memory of its own", &row);
      struck = shortage.has_struck();
    }
    REQUIRE(result == (struck ? TUTTI_SYSTEM : TUTTI_OK));
    CHECK((row == nullptr) == struck);
    tutti_spans_free(row);
    if (!struck) {
      CHECK(n > 2);
      return;
    }
  }
}

TEST_CASE("a span begins and ends without memory") {
  const ScratchDirectory directory;
  const Environment traced({"TUTTI_"}, {{"TUTTI_TRACE", directory.path() + "/trace.json"}});
  auto comms = Communicator::in_process(1);
  REQUIRE(comms);
  const Spans spans((*comms)[0]);
  Ranks ranks(1);
  tutti_spans_t row = nullptr;
  REQUIRE(tutti_spans_create(ranks[0], nullptr, &row) == TUTTI_OK);
  bool struck = false;
  {
    const Shortage shortage(1, Failing::kOne);
    {
      const auto span = spans.begin("a span with a name that is longer", "than what a string has");
    }
    tutti_span_t span = tutti_span_begin(row, "a span with a name that is longer", "than that");
    tutti_span_end(&span);
    struck = shortage.has_struck();
  }
  CHECK_FALSE(struck);
  tutti_spans_free(row);
}

}  // namespace
}  // namespace tutti::test
