// Every collective × algorithm × transport × type × operation × size × placement gives the
// reference's bits. What is registered is tested: nothing here names an algorithm or a transport.
#include <numeric>
#include <thread>

#include "algorithms/algorithm.h"
#include "support/catch.h"
#include "support/cluster.h"
#include "support/kinds.h"
#include "support/net/networks.h"
#include "support/transports.h"
#include "transport/transport.h"

namespace tutti::test {
namespace {

constexpr std::size_t kCounts[] = {1,  2,  3,  7,   13,   14,   15,   16,   17,
                                   63, 64, 65, 100, 1000, 4096, 4097, 10007};

template <class T>
const T& pick(std::mt19937_64& random, const std::vector<T>& from) {
  return from[random() % from.size()];
}

Case random_case(std::mt19937_64& random, Collective collective, int ranks, bool exact) {
  Case test;
  test.collective = collective;
  test.ranks = ranks;
  test.type = pick(random, all_types());
  do {
    test.op = pick(random, all_ops());
  } while (!is_supported(test.type, test.op));
  // In a relaxed plan only what is exact in any order can be compared by bits; float8 sums are not.
  if (exact && !is_integer(test.type)) {
    test.type = DataType::kFloat32;
    if (test.op == ReduceOp::kAvg || test.op == ReduceOp::kProd) test.op = ReduceOp::kSum;
  }
  test.exact = exact;
  test.count = kCounts[random() % std::size(kCounts)];
  test.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  test.in_place = random() % 2 == 0;
  test.mapped = random() % 2 == 0;
  test.misalign = random() % 3 == 0 ? size_of(test.type) * (random() % 8) : 0;
  return test;
}

/// A few random cases of one collective on one communicator per rank.
void check_cases(const Settings& settings, Collective collective, int ranks, int cases, bool exact,
                 std::uint64_t seed) {
  INFO("settings: algorithm '" << settings.algorithm << "' transport " << settings.transport
                               << " slot_bytes " << settings.slot_bytes << " slots "
                               << settings.slot_count << " lanes " << settings.lanes
                               << " read from " << settings.read_from_bytes << "; " << ranks
                               << " ranks, seed " << seed);
  auto comms = Communicator::in_process(ranks, settings);
  if (!comms) FAIL(comms.error().to_string());
  const std::string complaint = on_all_ranks(*comms, [&](Communicator& comm) {
    std::mt19937_64 random(seed);  // The same cases on every rank.
    for (int i = 0; i < cases; ++i) {
      const Case test = random_case(random, collective, ranks, exact);
      if (auto wrong = run_case(comm, test, seed + static_cast<std::uint64_t>(i)); !wrong.empty())
        return wrong;
    }
    return std::string();
  });
  leave(*comms);
  CHECK(complaint == "");
}

Settings test_settings(std::string_view transport, std::mt19937_64& random) {
  Settings settings;
  settings.transport = transport;
  settings.timeout = std::chrono::seconds(60);
  settings.slot_bytes = std::size_t{64} << random() % 7;  // Small slots: many tiles.
  settings.slot_count = 1 + static_cast<int>(random() % 3);
  settings.lanes = 1 + static_cast<int>(random() % 3);
  settings.read_from_bytes =
      random() % 2 == 0 ? 1 : 0;  // Plain buffers are read at all sizes, or large.
  return settings;
}

TEST_CASE("every algorithm on every transport gives the reference's bits") {
  const std::uint64_t seed = Catch::rngSeed();
  std::mt19937_64 random(seed);
  for (const Transport* transport : transports_here()) {
    Sample sample(share_with(*transport));
    for (const Algorithm* algorithm : algorithms()) {
      const std::string name =
          std::string(to_string(algorithm->collective)) + "=" + std::string(algorithm->name);
      for (const int ranks : {1, 2, 3, 4, 5, 8}) {
        const plan::Shape shape{algorithm->collective, ranks, 0, 1};
        if (!algorithm->applies(shape) || too_many(ranks)) continue;
        sample.add(name, [&random, name, algorithm, transport, shape, ranks] {
          Settings settings = test_settings(transport->name, random);
          settings.algorithm = name;
          const bool relaxed = algorithm->contract(shape) == Contract::kRelaxed;
          if (relaxed) settings.contract = Contract::kRelaxed;
          check_cases(settings, algorithm->collective, ranks, 6, relaxed, random());
        });
      }
    }
    sample.run(random);
  }
}

TEST_CASE("what is chosen by default gives the reference's bits") {
  std::mt19937_64 random(Catch::rngSeed());
  for (const Transport* transport : transports_here()) {
    Sample sample(share_with(*transport));
    for (const int ranks : {1, 2, 3, 4, 6, 7, 9, 17}) {
      for (int i = 0; i < kCollectiveCount; ++i) {
        if (too_many(ranks)) continue;
        const auto collective = static_cast<Collective>(i);
        sample.add(std::string(to_string(collective)), [&random, transport, collective, ranks] {
          Settings settings;
          settings.transport = transport->name;
          check_cases(settings, collective, ranks, 8, false, random());
        });
      }
    }
    sample.run(random);
  }
}

TEST_CASE("mixed calls follow each other without a barrier") {
  // Small and large, rooted and not, one after another: what lines and slots of one leave is not
  // seen by the next, however far a rank runs ahead.
  std::mt19937_64 random(Catch::rngSeed());
  for (const Transport* transport : transports_here()) {
    for (const int ranks : {2, 3, 5}) {
      const std::uint64_t seed = random();
      INFO(transport->name << ", " << ranks << " ranks, seed " << seed);
      Settings settings = test_settings(transport->name, random);
      auto comms = Communicator::in_process(ranks, settings);
      REQUIRE(comms);
      CHECK(on_all_ranks(*comms, [&](Communicator& comm) {
              std::mt19937_64 order(seed);
              for (int i = 0; i < 150; ++i) {
                const auto collective = static_cast<Collective>(order() % kCollectiveCount);
                Case test = random_case(order, collective, ranks, false);
                if (order() % 2 == 0) test.count = 1 + order() % 14;
                if (auto wrong = run_case(comm, test, seed + static_cast<std::uint64_t>(i));
                    !wrong.empty())
                  return wrong;
              }
              return std::string();
            }) == "");
      leave(*comms);
    }
  }
}

TEST_CASE("a rank that runs ahead overwrites no packet that others still read, short or long") {
  // Short and long packets share their memory.
  std::mt19937_64 random(Catch::rngSeed());
  for (const Transport* transport : transports_here()) {
    for (const int ranks : {2, 3, 5}) {
      const std::uint64_t seed = random();
      INFO(transport->name << ", " << ranks << " ranks, seed " << seed);
      Settings settings;
      settings.transport = transport->name;
      settings.algorithm = "packet";
      auto comms = Communicator::in_process(ranks, settings);
      REQUIRE(comms);
      CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
              std::mt19937_64 order(seed);
              std::size_t count = 0;
              for (std::uint32_t i = 0, left = 0; i < 600; ++i) {
                if (left-- == 0) {
                  left = static_cast<std::uint32_t>(order() % 20);
                  count = order() % 2 == 0 ? 1 + order() % 2048 : 8192 + order() % 8193;
                }
                std::vector<std::uint32_t> wanted(count);
                std::iota(wanted.begin(), wanted.end(), i * 100'000);
                std::vector<std::uint32_t> got(count);
                const bool root = comm.rank() == Rank{0};
                // The root is ahead by as much as it may.
                if (!root && i % 32 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                if (auto sent = comm.broadcast(root ? wanted.data() : nullptr, got.data(), count,
                                               DataType::kUint32, Rank{0});
                    !sent)
                  return sent.error().to_string();
                if (!root && got != wanted) return "call " + std::to_string(i) + " is wrong";
              }
              return "";
            }) == "");
      leave(*comms);
    }
  }
}

TEST_CASE("the bits do not depend on slots, lanes, splits, transport or algorithm") {
  std::mt19937_64 random(Catch::rngSeed());
  for (const int ranks : {3, 6, 13}) {
    Case test{.collective = Collective::kAllReduce,
              .type = DataType::kBfloat16,
              .count = 5000,
              .ranks = ranks};
    const std::uint64_t seed = random();
    for (const Transport* transport : transports_here()) {
      for (int variant = 0; variant < 4; ++variant) {
        auto comms = Communicator::in_process(ranks, test_settings(transport->name, random));
        REQUIRE(comms);
        test.mapped = variant % 2 == 0;
        INFO(ranks << " ranks, " << transport->name << ", seed " << seed);
        CHECK(on_all_ranks(*comms,
                           [&](Communicator& comm) { return run_case(comm, test, seed); }) == "");
        // The same message in pieces of uneven size.
        CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
                std::vector<Buffer> inputs(static_cast<std::size_t>(ranks),
                                           Buffer(test.input_bytes()));
                for (int r = 0; r < ranks; ++r)
                  fill(test, r, seed, inputs[static_cast<std::size_t>(r)].data());
                Buffer out(test.output_bytes());
                const Buffer& mine = inputs[static_cast<std::size_t>(comm.rank().value)];
                for (std::size_t at = 0, step = 1; at < test.count;
                     at += step, step = step * 3 + 1) {
                  const std::size_t part = std::min(step, test.count - at);
                  auto status = comm.all_reduce(mine.data() + at * 2, out.data() + at * 2, part,
                                                test.type, ReduceOp::kSum);
                  if (!status) return status.error().to_string();
                }
                return out == expected(test, 0, inputs) ? "" : "the split message has other bits";
              }) == "");
        leave(*comms);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::test
