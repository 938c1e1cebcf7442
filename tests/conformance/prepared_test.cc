// Calls that are prepared once and made often: each time the collective on what the buffers hold
// now, whatever lies between, and beside ranks that make the same call in another way.
#include <algorithm>
#include <memory>
#include <optional>
#include <random>

#include "support/catch.h"
#include "support/cluster.h"

namespace tutti::test {
namespace {

Case any_case(std::mt19937_64& random, int ranks) {
  constexpr std::size_t kCounts[] = {0, 1, 2, 7, 40, 700, 9000};
  Case test = draw_case(random, ranks, kCounts);
  test.mapped = random() % 4 == 0;
  if (random() % 8 == 0) test.algorithm = "packet";
  if (test.type == DataType::kFloat32 && random() % 8 == 0)
    test.wire.format = WireFormat::kBfloat16;
  return test;
}

/// A rank's prepared call with its buffers.
struct Standing {
  Case test;
  int me;
  Memory input, output;
  std::optional<Prepared> call;

  Standing(Communicator& comm, const Case& of)
      : test(of),
        me(comm.rank().value),
        input(of.input_bytes(), of.mapped, 0),
        output(of.output_bytes(), of.mapped, 0) {
    Request request = request_of(comm, test, input.data(), output.data());
    std::string name(request.algorithm);
    request.algorithm = name;
    auto made = comm.prepare(request);
    name.assign(name.size(), 'x');  // It was copied.
    if (made) call = *std::move(made);
  }
  /// Once more with other contents: empty, or what is wrong.
  std::string run(Communicator& comm, std::uint64_t seed, unsigned way) {
    std::vector<Buffer> inputs(static_cast<std::size_t>(test.ranks), Buffer(test.input_bytes()));
    for (int rank = 0; rank < test.ranks; ++rank)
      fill(test, rank, seed, inputs[static_cast<std::size_t>(rank)].data());
    std::ranges::copy(inputs[static_cast<std::size_t>(me)], input.data());
    std::fill_n(output.data(), test.output_bytes(), std::byte{0xee});
    Status status;
    if (way == 0) {
      status = tutti::test::call(comm, test, input.data(), output.data());
    } else if (way == 1) {
      auto work = call->start();
      status = work ? work->wait() : Status(work.error());
    } else if (way == 2) {
      Group group;
      status = call->run();
      Status ended = group.end();
      if (status) status = std::move(ended);
    } else {
      status = call->run();
    }
    if (!status) return test.to_string() + ": " + status.error().to_string();
    const Buffer want =
        test.wire.is_plain() ? expected(test, me, inputs) : expected_on_wire(test, me, inputs);
    if (std::equal(want.begin(), want.end(), output.data())) return "";
    return test.to_string() + ": rank " + std::to_string(me) + " has a wrong result";
  }
};

TEST_CASE("prepared calls give the reference's bits each time, whichever way the others go") {
  const std::uint64_t seed = Catch::rngSeed();
  for (const int ranks : {1, 2, 3, 5}) {
    INFO("--rng-seed " << seed << ", " << ranks << " ranks");
    auto comms = Communicator::in_process(ranks, {});
    REQUIRE(comms);
    CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
            std::mt19937_64 random(seed);  // The same on every rank.
            std::mt19937_64 own(seed + static_cast<std::uint64_t>(comm.rank().value));
            std::vector<std::unique_ptr<Standing>> standing;
            std::size_t which = 0;
            for (int turn = 0; turn < 300; ++turn) {
              if (standing.size() < 4 || random() % 64 == 0) {
                if (standing.size() == 4) standing.erase(standing.begin());
                standing.push_back(std::make_unique<Standing>(comm, any_case(random, ranks)));
                if (!standing.back()->call) return "it was not prepared";
              }
              // Often the same again.
              if (random() % 4 == 0 || which >= standing.size()) which = random() % standing.size();
              const std::uint64_t contents = random();
              const auto way = static_cast<unsigned>(own() % 8);
              if (auto wrong = standing[which]->run(comm, contents, way); !wrong.empty())
                return wrong;
            }
            return "";
          }) == "");
    leave(*comms);
  }
}

TEST_CASE("a prepared call of blocks of different sizes has lists of its own") {
  constexpr int kRanks = 3;
  auto comms = Communicator::in_process(kRanks, {});
  REQUIRE(comms);
  CHECK(on_all_ranks(*comms, [](Communicator& comm) -> std::string {
          const int me = comm.rank().value;
          std::vector<std::size_t> counts{2, 0, 3}, offsets{4, 3, 0};
          std::vector<std::int32_t> mine(counts[static_cast<std::size_t>(me)]), all(7, -1);
          Request request{.collective = Collective::kAllGather,
                          .input = mine.data(),
                          .output = all.data(),
                          .count = mine.size(),
                          .type = DataType::kInt32,
                          .vector_variant = true};
          request.output_blocks = {counts, offsets};
          auto call = comm.prepare(request);
          counts.assign(kRanks, 1000), offsets.assign(kRanks, 1000);
          if (!call) return call.error().to_string();
          for (const std::int32_t turn : {10, 20, 30}) {
            std::ranges::fill(mine, turn + me);
            if (auto done = call->run(); !done) return done.error().to_string();
            if (all != std::vector<std::int32_t>{turn + 2, turn + 2, turn + 2, -1, turn, turn, -1})
              return "a wrong result";
          }
          return "";
        }) == "");
  leave(*comms);
}

/// Refused in one line of kInvalidArgument.
void check_refused(const Status& status) {
  REQUIRE(!status);
  CHECK(status.error().code == Code::kInvalidArgument);
  CHECK(status.error().what.find('\n') == std::string::npos);
}

TEST_CASE("what makes no sense is refused when it is prepared, and nothing is sent") {
  auto comms = Communicator::in_process(2, {});
  REQUIRE(comms);
  float value = 1;
  Request good{Collective::kAllReduce, &value, &value, 1, DataType::kFloat32};
  Request no_input = good, no_root = good, no_algorithm = good, no_blocks = good, no_type = good;
  no_input.input = nullptr;
  no_root.collective = Collective::kBroadcast, no_root.root = Rank{2};
  no_algorithm.algorithm = "smoke";
  no_blocks.collective = Collective::kAllGather, no_blocks.vector_variant = true;
  no_type.type = static_cast<DataType>(99);
  for (const Request& bad : {no_input, no_root, no_algorithm, no_blocks, no_type}) {
    const auto made = (*comms)[0].prepare(bad);
    check_refused(made ? ok() : Status(made.error()));
  }
  // Only one rank has tried: the other goes on as if nothing was.
  CHECK(on_all_ranks(*comms, [](Communicator& comm) {
          const Status met = comm.barrier();
          return met ? "" : met.error().to_string();
        }) == "");
}

TEST_CASE("a prepared call outlives its communicator, and says so") {
  float value = 1;
  const Request request{Collective::kAllReduce, &value, &value, 1, DataType::kFloat32};
  auto comms = Communicator::in_process(1, {});
  REQUIRE(comms);
  auto made = comms->front().prepare(request);
  REQUIRE(made);
  Communicator elsewhere = std::move(comms->front());
  CHECK(made->run());  // It is the communicator that counts, not where it lies.
  Prepared taken = *std::move(made);
  check_refused(made->run());  // NOLINT(bugprone-use-after-move): that is the question.
  CHECK(!made->start());
  { const Communicator gone = std::move(elsewhere); }
  check_refused(taken.run());
  CHECK(!taken.start());
}

TEST_CASE("a prepared call of a communicator that has ended gives its error") {
  auto comms = Communicator::in_process(2, {});
  REQUIRE(comms);
  float value = 1;
  auto call = (*comms)[0].prepare({Collective::kAllReduce, &value, &value, 1, DataType::kFloat32});
  REQUIRE(call);
  (*comms)[1].abort("enough");
  const Status ended = call->run();
  REQUIRE(!ended);
  CHECK(ended.error().code == Code::kAborted);
  CHECK(ended.error().peer == Rank{1});
}

}  // namespace
}  // namespace tutti::test
