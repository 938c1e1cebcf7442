// Spans in the trace: of the trainer, of any program, and where there is no trace.
#include "tutti/spans.h"

#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/processes.h"
#include "support/trace_rows.h"
#include "trainer/train.h"
#include "unit/trainer/digits.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;
using namespace trainer;

Settings traced(const std::string& path) {
  Settings settings;
  settings.trace = path;
  return settings;
}

/// Whether each two of a row are apart, or one is within the other.
void check_nested(const std::vector<Slice>& row) {
  for (std::size_t a = 0; a < row.size(); ++a) {
    for (std::size_t b = a + 1; b < row.size(); ++b) {
      if (row[a].apart(row[b]) || row[a].within(row[b]) || row[b].within(row[a])) continue;
      FAIL(row[a].name << " and " << row[b].name << " overlap");
    }
  }
}

TEST_CASE("a trace of a training has what each rank did in each unit, in order") {
  const ScratchDirectory directory;
  const std::string path = directory.path() + "/trace.json";
  TrainOptions options;
  options.strategy.name = GENERATE("ddp", "zero3", "horovod");
  options.batch = 512;
  options.epochs = 1;
  INFO(options.strategy.name);
  {
    auto comms = Communicator::in_process(2, traced(path));
    REQUIRE(comms);
    REQUIRE(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
              auto outcome = train(comm, digits(), options, [](int, int, const Epoch&) {});
              return outcome ? "" : outcome.error().to_string();
            }) == "");
  }
  const auto network = make_network(options.model, digits().train);
  REQUIRE(network);
  auto rows = rows_of(path, "program");
  const std::size_t steps = (digits().train.size() + options.batch - 1) / options.batch;
  for (const std::string rank : {"rank 0", "rank 1"}) {
    const std::vector<Slice>& row = rows[rank + ", trainer"];
    check_nested(row);
    const auto in_steps = named(row, "step ");
    REQUIRE(in_steps.size() == steps);
    for (std::size_t s = 0; s < steps; ++s) {
      const Slice& step = in_steps[s];
      CHECK(step.name == "step " + std::to_string(s + 1));
      std::vector<std::string> order, wanted;
      for (const Slice& slice : row) {
        const bool pass = slice.name.rfind("forward ", 0) == 0 ||
                          slice.name.rfind("backward ", 0) == 0 || slice.name == "optimiser";
        if (pass && slice.within(step)) order.push_back(slice.name);
      }
      for (const Unit& unit : network->units()) wanted.push_back("forward " + unit.name);
      for (std::size_t u = network->units().size(); u-- > 0;)
        wanted.push_back("backward " + network->units()[u].name);
      wanted.emplace_back("optimiser");
      CHECK(order == wanted);
    }
    CHECK(named(row, "evaluation").size() == 1);
    if (options.strategy.name == "ddp") CHECK(named(row, "wait for all_reduce").size() >= steps);
    if (options.strategy.name == "zero3") CHECK(named(row, "call all_gather").size() > steps);
    if (options.strategy.name == "horovod") {
      const auto& thread = rows[rank + ", background thread"];
      check_nested(thread);
      CHECK(named(thread, "call all_reduce").size() >= 2 * steps);
    }
  }
}

TEST_CASE("spans stand beside the calls of their rank, by the same clock") {
  const ScratchDirectory directory;
  const std::string path = directory.path() + "/trace.json";
  {
    auto comms = Communicator::in_process(2, traced(path));
    REQUIRE(comms);
    REQUIRE(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
              const Spans spans(comm, "main");
              std::this_thread::sleep_for(2ms);
              std::vector<float> data(300'000);
              const auto span = spans.begin("around", "the call");
              return comm.all_reduce(data.data(), data.data(), data.size(), DataType::kFloat32,
                                     ReduceOp::kSum)
                         ? ""
                         : "failed";
            }) == "");
  }
  auto spans = rows_of(path, "program"), calls = rows_of(path, "call");
  for (const auto& [row, slices] : calls) {
    const auto& around = spans[row.substr(0, 6) + ", main"];
    REQUIRE(around.size() == 1);
    CHECK(around[0].name == "around the call");
    for (const Slice& call : slices) {
      // Ticks of calls become nanoseconds by two looks at the clock: to some microseconds.
      CHECK(call.begin_us > around[0].begin_us - 100);
      CHECK(call.end_us < around[0].end_us + 100);
    }
  }
}

TEST_CASE("a row keeps its latest spans, and what names can show") {
  const ScratchDirectory directory;
  const std::string path = directory.path() + "/trace.json";
  constexpr int kRoom = 32'768;
  Spans after;
  {
    auto comms = Communicator::in_process(1, traced(path));
    REQUIRE(comms);
    const Spans spans((*comms)[0]), second((*comms)[0], "another");
    after = spans;
    std::this_thread::sleep_for(2ms);
    { const auto first = spans.begin("the first, which is gone"); }
    { const auto odd = second.begin(std::string(60, 'x'), "y\n"); }
    { const auto odd = second.begin("a\xff\n", "b"); }
    const auto open = second.begin("has not ended");
    for (int i = 0; i < kRoom; ++i) const auto span = spans.begin("one", std::to_string(i));
    comms->clear();
  }
  const auto late = after.begin("too late");
  auto rows = rows_of(path, "program");
  const auto& row = rows["rank 0, program"];
  // An entry that might be written just now is not taken.
  CHECK(row.size() >= kRoom - 1);
  CHECK(row.back().name == "one 32767");
  CHECK(named(row, "the first").empty());
  const auto& another = rows["rank 0, another"];
  REQUIRE(another.size() == 2);
  CHECK(another[0].name == std::string(48, 'x'));
  CHECK(another[1].name == "a?? b");
}

TEST_CASE("without a trace spans record nothing") {
  auto comms = Communicator::in_process(1);
  REQUIRE(comms);
  const Spans none, untraced((*comms)[0]);
  const auto a = none.begin("a"), b = untraced.begin("b");
  Communicator moved = std::move((*comms)[0]);
  const auto c = Spans((*comms)[0]).begin("c");
}

}  // namespace
}  // namespace tutti::test
