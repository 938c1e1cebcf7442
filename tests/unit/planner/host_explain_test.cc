// Explanations of a host's calls: of the planner, and of a communicator.
#include <sstream>
#include <string>

#include "base/times_text.h"
#include "planner/explain.h"
#include "support/catch.h"
#include "tutti/communicator.h"

using namespace tutti;

namespace {

void check_width(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(line.size() <= 100);
  }
}

planner::Request request_of(Collective collective, int ranks, std::size_t bytes) {
  planner::Request request;
  request.shape = {collective, ranks, 0, 1};
  request.bytes = bytes;
  return request;
}

}  // namespace

TEST_CASE("what is taken is the planner's first candidate, and the others have reasons") {
  planner::PlannerInputs inputs;
  for (int i = 0; i < kCollectiveCount; ++i) {
    for (const int ranks : {2, 3, 8}) {
      for (const std::size_t bytes : {std::size_t{8}, std::size_t{65536}, std::size_t{8} << 20}) {
        for (const bool mapped : {false, true}) {
          planner::Request request = request_of(static_cast<Collective>(i), ranks, bytes);
          request.mapped = mapped;
          INFO(to_string(request.shape.collective)
               << ", " << ranks << " ranks, " << bytes << " bytes, mapped " << mapped);
          const auto list = planner::candidates(request, inputs);
          const auto found = planner::explain(request, inputs);
          REQUIRE(list);
          REQUIRE(found);
          REQUIRE(found->ways.size() == list->size());
          for (std::size_t at = 0; at < list->size(); ++at) {
            CHECK(found->ways[at].candidate.name() == (*list)[at].name());
            CHECK(found->ways[at].why.empty() == (at == 0));
          }
          CHECK(found->bound_us > 0);
          const std::string text = planner::to_text(*found, request, "heading");
          check_width(text);
          CHECK_THAT(text, Catch::Contains("Taken: " + std::string((*list)[0].name())));
        }
      }
    }
  }
}

TEST_CASE("memory traffic is every input once and every output once") {
  const auto traffic = [](Collective collective, int ranks, std::size_t bytes) {
    return planner::memory_traffic({collective, ranks, 0}, bytes);
  };
  CHECK(traffic(Collective::kAllReduce, 4, 4000) == 2 * 4 * 4000);
  CHECK(traffic(Collective::kAllGather, 4, 16000) == 4 * 4000 + 4 * 16000);
  CHECK(traffic(Collective::kBroadcast, 4, 4000) == 4000 + 4 * 4000);
  CHECK(traffic(Collective::kScatter, 4, 16000) == 16000 + 4 * 4000);
  CHECK(traffic(Collective::kAllToAll, 4, 16000) == 2 * 4 * 16000);
}

TEST_CASE("a factor has two digits, and no power of ten") {
  CHECK(times_text(1.234) == "1.2");
  CHECK(times_text(2) == "2");
  CHECK(times_text(12.3) == "12");
  CHECK(times_text(99.7) == "100");
  CHECK(times_text(999) == "1,000");
  CHECK(times_text(123) == "120");
  CHECK(times_text(2249) == "2,200");
  CHECK(times_text(1234567) == "1,200,000");
}

TEST_CASE("a faster contract or faster memory is named, with how much faster") {
  planner::PlannerInputs inputs;
  planner::Request request = request_of(Collective::kAllReduce, 4, std::size_t{16} << 20);
  const auto plain = planner::explain(request, inputs);
  request.mapped = true;
  const auto mapped = planner::candidates(request, inputs);
  REQUIRE(plain);
  REQUIRE(mapped);
  REQUIRE(mapped->front().microseconds < plain->ways.front().candidate.microseconds);
  std::string all;
  for (const std::string& sentence : plain->to_be_faster) all += sentence + "\n";
  CHECK_THAT(all, Catch::Contains("mem_alloc"));
  CHECK_THAT(all, Catch::Contains("tutti tune"));
}

TEST_CASE("between hosts memory that peers can map is named where ranks share a host") {
  planner::TuningTable table;
  table.of(Collective::kAllReduce, false) = {{std::size_t{1} << 20, {{"two_shot", 1, 900}}}};
  table.of(Collective::kAllReduce, true) = {{std::size_t{1} << 20, {{"two_shot", 1, 300}}}};
  for (const bool shared : {false, true}) {
    planner::PlannerInputs inputs;
    inputs.table = &table;
    inputs.hosts.of = shared ? std::vector<int>{0, 1, 1, 2} : std::vector<int>{0, 1, 2, 3};
    const auto found =
        planner::explain(request_of(Collective::kAllReduce, 4, std::size_t{1} << 20), inputs);
    REQUIRE(found);
    std::string all;
    for (const std::string& sentence : found->to_be_faster) all += sentence + "\n";
    CHECK((all.find("memory that peers can map") != std::string::npos) == shared);
  }
}

TEST_CASE("nothing left to choose is one line") {
  planner::PlannerInputs inputs;
  inputs.overrides = "all_reduce=no_such";
  const auto request = request_of(Collective::kAllReduce, 4, 1 << 20);
  CHECK_FALSE(planner::explain(request, inputs));
  inputs.overrides = "ring";  // Relaxed, and forced.
  const auto found = planner::explain(request, inputs);
  REQUIRE_FALSE(found);
  CHECK_THAT(found.error().what, Catch::Contains("relaxed"));
  CHECK(found.error().what.find('\n') == std::string::npos);
}

TEST_CASE("a communicator explains a call without making it") {
  auto ranks = Communicator::in_process(2, {});
  REQUIRE(ranks);
  Request request;
  request.collective = Collective::kAllReduce;
  request.count = 1 << 20;
  request.type = DataType::kFloat32;
  const auto plain = (*ranks)[0].explain(request);  // Rank 1 has no part in it.
  REQUIRE(plain);
  check_width(*plain);
  CHECK_THAT(*plain, Catch::Contains("plain buffers") && Catch::Contains("between 2 ranks"));
  const auto memory = mem_alloc(std::size_t{8} << 20);
  REQUIRE(memory);
  request.input = *memory;
  request.output = static_cast<std::byte*>(*memory) + (std::size_t{4} << 20);
  const auto mapped = (*ranks)[0].explain(request);
  REQUIRE(mapped);
  CHECK_THAT(*mapped, Catch::Contains("mapped buffers"));
  CHECK(mem_free(*memory));
  request.collective = Collective::kBroadcast;
  request.root = Rank{2};
  request.input = request.output = nullptr;
  CHECK_FALSE((*ranks)[0].explain(request));
}
