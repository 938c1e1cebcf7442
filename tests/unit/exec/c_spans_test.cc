// The C API's spans: which are in the trace, in whose row, and arguments that say nothing.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "support/c_ranks.h"
#include "support/environment.h"
#include "support/processes.h"
#include "support/trace_rows.h"

using namespace std::chrono_literals;
using tutti::test::check_invalid;
using tutti::test::Environment;
using tutti::test::named;
using tutti::test::Ranks;
using tutti::test::rows_of;
using tutti::test::ScratchDirectory;

namespace {

/// Communicators that are made while it lives are traced.
class Traced {
 public:
  const std::string& path() const { return path_; }

 private:
  ScratchDirectory directory_;
  std::string path_ = directory_.path() + "/trace.json";
  Environment environment_{{"TUTTI_"}, {{"TUTTI_TRACE", path_}}};
};

tutti_spans_t row_of(tutti_comm_t comm, const char* name) {
  tutti_spans_t row = nullptr;
  REQUIRE(tutti_spans_create(comm, name, &row) == TUTTI_OK);
  return row;
}

/// A step with a call in it, as a program makes it.
tutti_result_t step(tutti_comm_t comm) {
  tutti_spans_t row = nullptr;
  if (tutti_spans_create(comm, "layers", &row) != TUTTI_OK) return TUTTI_SYSTEM;
  tutti_span_t whole = tutti_span_begin(row, "step", nullptr);
  tutti_span_t forward = tutti_span_begin(row, "forward", "conv1");
  std::this_thread::sleep_for(3ms);
  tutti_span_end(&forward);
  std::vector<float> data(300'000);
  const tutti_result_t result =
      tutti_all_reduce(comm, data.data(), data.data(), data.size(), TUTTI_FLOAT32, TUTTI_SUM);
  tutti_span_end(&whole);
  tutti_spans_free(row);  // What has ended is in the trace nevertheless.
  return result;
}

}  // namespace

TEST_CASE("spans of C stand in a row of their rank, one within the other, around its calls") {
  const Traced traced;
  {
    Ranks ranks(2);
    CHECK(ranks.all_ok([](int, tutti_comm_t comm) { return step(comm); }));
  }
  auto spans = rows_of(traced.path(), "program");
  const auto calls = rows_of(traced.path(), "call");
  REQUIRE(spans.size() == 2);
  REQUIRE(calls.size() == 2);
  for (const auto& [row, slices] : calls) {
    const auto& own = spans[row.substr(0, 6) + ", layers"];
    REQUIRE(own.size() == 2);
    CHECK(own[0].name == "forward conv1");
    CHECK(own[1].name == "step");
    CHECK(own[0].within(own[1]));
    CHECK(own[0].end_us - own[0].begin_us >= 3000);
    for (const auto& call : slices) {
      // Ticks of calls become nanoseconds by two looks at the clock: to some microseconds.
      CHECK(call.begin_us > own[0].end_us - 100);
      CHECK(call.end_us < own[1].end_us + 100);
    }
  }
}

TEST_CASE("a span counts once, and one that does not end does not count") {
  const Traced traced;
  tutti_spans_t left = nullptr;
  {
    Ranks ranks(1);
    tutti_spans_t row = row_of(ranks[0], nullptr), other = row_of(ranks[0], "other");
    left = row;
    {
      tutti_span_t lost = tutti_span_begin(row, "left by an early return", nullptr);
      CHECK(lost.row != nullptr);
    }
    tutti_span_t once = tutti_span_begin(row, "once", nullptr);
    tutti_span_end(&once);
    tutti_span_end(&once);
    tutti_span_t nothing = {};
    tutti_span_end(&nothing);
    tutti_span_end(nullptr);
    tutti_span_t unnamed = tutti_span_begin(row, nullptr, nullptr);
    tutti_span_end(&unnamed);
    // A name of the caller's that changes, and more of it than counts.
    std::string name(60, 'x');
    tutti_span_t cut = tutti_span_begin(other, name.c_str(), "y");
    name.assign(60, 'z');
    tutti_span_end(&cut);
    tutti_span_t later = tutti_span_begin(other, "a", "b");
    tutti_span_end(&later);
    CHECK(tutti_spans_free(other) == TUTTI_OK);
  }
  tutti_span_t late = tutti_span_begin(left, "too late", nullptr);
  tutti_span_end(&late);
  CHECK(tutti_spans_free(left) == TUTTI_OK);
  auto rows = rows_of(traced.path(), "program");
  const auto& row = rows["rank 0, program"];
  REQUIRE(row.size() == 2);
  CHECK(row[0].name == "once");
  CHECK(row[1].name.empty());
  const auto& other = rows["rank 0, other"];
  REQUIRE(other.size() == 2);
  CHECK(other[0].name == std::string(48, 'x'));
  CHECK(other[1].name == "a b");
}

TEST_CASE("without a trace there is no row, and spans of none are nothing") {
  const Environment untraced({"TUTTI_"}, {});
  Ranks ranks(1);
  // Whatever was there: a program that goes on after an error must not use it.
  auto* row = reinterpret_cast<tutti_spans_t>(&ranks);
  REQUIRE(tutti_spans_create(ranks[0], "layers", &row) == TUTTI_OK);
  CHECK(row == nullptr);
  tutti_span_t span = tutti_span_begin(row, "forward", "conv1");
  CHECK(span.row == nullptr);
  tutti_span_end(&span);
  CHECK(tutti_spans_free(row) == TUTTI_OK);
}

TEST_CASE("a row of no communicator, or with no place to go, is an error") {
  const Traced traced;
  Ranks ranks(1);
  auto* row = reinterpret_cast<tutti_spans_t>(&ranks);
  check_invalid("tutti_spans_create", [&] { return tutti_spans_create(nullptr, "layers", &row); });
  CHECK(row == nullptr);
  check_invalid("tutti_spans_create",
                [&] { return tutti_spans_create(ranks[0], "layers", nullptr); });
}
