// Ranks that make different calls: every pair of kinds of calls, on every transport. A rank that
// waits gets an error at once; one that only gives gets it at its next call at the latest. No rank
// waits for the deadline, and none returns ok with wrong data.
#include <algorithm>
#include <thread>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/mismatches.h"
#include "support/net/networks.h"
#include "support/transports.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kDeadline = 30s;  // Far more than any error may take.

Settings settings_of(std::string_view transport) {
  Settings settings;
  settings.transport = transport;
  settings.timeout = kDeadline;
  return settings;
}

struct Pair {
  Kind most, other;
  std::size_t count;
  int ranks, odd;
  std::string to_string() const {
    return std::to_string(ranks) + " ranks, " + std::to_string(count) +
           " elements: " + most.name(count) + " (root " + std::to_string(most.root) + ", " +
           std::string(tutti::to_string(most.op)) + ") but rank " + std::to_string(odd) + " " +
           other.name(count) + " (root " + std::to_string(other.root) + ", " +
           std::string(tutti::to_string(other.op)) + ")";
  }
};

std::vector<Pair> all_pairs(std::initializer_list<int> of_ranks) {
  std::vector<Pair> pairs;
  for (const int ranks : of_ranks) {
    if (too_many(ranks)) continue;
    const auto kinds = all_kinds(ranks);
    for (const Kind& most : kinds) {
      for (const Kind& other : kinds) {
        if (most == other) continue;
        for (const std::size_t count : kMismatchCounts) {
          for (int odd = ranks == 2 ? 1 : 0; odd < ranks; ++odd)
            pairs.push_back({most, other, count, ranks, odd});
        }
      }
    }
  }
  return pairs;
}

std::string check_pair(std::string_view transport, const Pair& pair) {
  auto comms = Communicator::in_process(pair.ranks, settings_of(transport));
  if (!comms) return comms.error().to_string();
  const std::string wrong = on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
    const int me = comm.rank().value;
    const Outcome got = call_and_barrier(comm, me == pair.odd ? pair.other : pair.most, pair.count);
    const auto bad = complaint(got, me, pair.odd, pair.most, pair.other, pair.count);
    return bad.empty() ? "" : "rank " + std::to_string(me) + ": " + bad;
  });
  leave(*comms);
  return wrong;
}

/// A share of all pairs, at least one, drawn by the seed that is printed.
void check_some(std::string_view transport, std::vector<Pair> pairs, std::size_t most) {
  const std::uint64_t seed = Catch::rngSeed();
  std::mt19937_64 random(seed);
  std::shuffle(pairs.begin(), pairs.end(), random);
  most = std::max<std::size_t>(1, std::min(pairs.size(), most) / share_here());
  pairs.resize(std::min(pairs.size(), most));
  std::size_t wrong = 0;
  for (const Pair& pair : pairs) {
    const std::string found = check_pair(transport, pair);
    if (found.empty()) continue;
    ++wrong;
    UNSCOPED_INFO(transport << ", --rng-seed " << seed << ", " << pair.to_string() << ": "
                            << found);
    CHECK(found == "");
  }
  INFO(transport << ": " << wrong << " of " << pairs.size() << " pairs, --rng-seed " << seed);
  CHECK(wrong == 0);
}

TEST_CASE("two ranks that differ in any way are told so, whatever they call") {
  for (const Transport* transport : transports_here()) {
    const bool all = transport->name == "in_process";
    check_some(transport->name, all_pairs({2}),
               all                           ? SIZE_MAX
               : another_network(*transport) ? 24
                                             : 120);
  }
}

TEST_CASE("of more ranks, whichever is the odd one, all are told so") {
  for (const Transport* transport : transports_here()) {
    const bool all = transport->name == "in_process";
    check_some(transport->name, all_pairs({3, 4, 6}),
               all                           ? 800
               : another_network(*transport) ? 16
                                             : 80);
  }
}

/// Calls again and again until there is an error: its text, or none after so many calls.
template <class Make>
std::string until_error(Communicator& comm, int most, Make make) {
  for (int i = 0; i < most; ++i) {
    const Status status = make(comm);
    if (!status) return status.error().to_string();
  }
  return "no error in " + std::to_string(most) + " calls";
}

/// Each rank makes its kind of call for ever. All get an error that names two calls: the first
/// ones, unless a rank has run so far ahead that these are not in the records any more.
void check_for_ever(std::string_view transport, const std::vector<Kind>& kinds) {
  const int ranks = static_cast<int>(kinds.size());
  if (too_many(ranks)) return;
  auto comms = Communicator::in_process(ranks, settings_of(transport));
  if (!comms) FAIL(comms.error().to_string());
  const auto start = std::chrono::steady_clock::now();
  const std::string wrong = on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
    std::vector<std::byte> input(1024), output(1024);
    const Kind& kind = kinds[static_cast<std::size_t>(comm.rank().value)];
    const std::string error = until_error(comm, 100'000, [&](Communicator& one) {
      return call_kind(one, kind, 2, input.data(), output.data());
    });
    const auto has = [&](std::string_view part) { return error.find(part) != std::string::npos; };
    const bool named = has(" called ") && (has("as call 1;") || has("the calls before it differ"));
    return has("mismatch") && named ? "" : error;
  });
  INFO(transport);
  CHECK(wrong == "");
  CHECK(std::chrono::steady_clock::now() - start < kDeadline / 2);
  leave(*comms);
}

TEST_CASE("ranks that only give, or are served, find out without ever waiting for each other") {
  constexpr auto kBroadcast = Collective::kBroadcast, kReduce = Collective::kReduce,
                 kGather = Collective::kGather, kScatter = Collective::kScatter;
  for (const Transport* transport : transports_here()) {
    for (int time = 0; time < (another_network(*transport) ? 1 : 5); ++time) {
      check_for_ever(transport->name, {{kBroadcast, 0}, {kBroadcast, 1}});
      check_for_ever(transport->name, {{kScatter, 0}, {kGather, 0}});
      check_for_ever(transport->name, {{kReduce, 1}, {kReduce, 0}});
      check_for_ever(transport->name, {{kBroadcast, 0}, {kBroadcast, 0}, {kBroadcast, 2}});
      // Ranks 1 and 2 give to 0, which is served by 3.
      check_for_ever(transport->name,
                     {{kBroadcast, 3}, {kReduce, 0}, {kReduce, 0}, {kBroadcast, 3}});
    }
  }
}

TEST_CASE("a rank that is served next sees a call that differed, and names it") {
  for (const Transport* transport : transports_here()) {
    if (too_many(3)) continue;
    auto comms = Communicator::in_process(3, settings_of(transport->name));
    if (!comms) FAIL(comms.error().to_string());
    const std::string wrong = on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
      float input[3] = {1, 2, 3}, output[3] = {};
      const int me = comm.rank().value;
      // No rank waits for another in call 2: rank 2 only gives, and rank 1 is served.
      const std::string error = until_error(comm, 1000, [&, call = 1](Communicator& one) mutable {
        const Rank root{++call == 3 && me == 2 ? 2 : 0};
        return one.broadcast(input, output, 1, DataType::kFloat32, root);
      });
      return error.find("call 2") != std::string::npos &&
                     error.find("from rank 0") != std::string::npos &&
                     error.find("from rank 2") != std::string::npos
                 ? ""
                 : std::to_string(me) + ": " + error;
    });
    INFO(transport->name);
    CHECK(wrong == "");
    leave(*comms);
  }
}

/// Rank 1 waits for a message of rank 0, which is in a call, or comes to one.
TEST_CASE("a message against a call is an error at once, where both wait") {
  for (const Transport* transport : transports_here()) {
    for (const int ranks : {2, 3}) {
      if (too_many(ranks)) continue;
      for (const Kind& kind : all_kinds(ranks)) {
        if (another_network(*transport) && !kind.barrier) continue;
        const bool sends = kind.collective == Collective::kAllGather;  // More than a ring holds.
        INFO(transport->name << ", " << ranks << " ranks, " << kind.name(64));
        auto comms = Communicator::in_process(ranks, settings_of(transport->name));
        if (!comms) FAIL(comms.error().to_string());
        const auto start = std::chrono::steady_clock::now();
        const std::string wrong = on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
          if (comm.rank().value != 1) {
            const Outcome got = call_and_barrier(comm, kind, 64);
            const Error* const error = got.error();
            if (error == nullptr) return "no error";
            return error->code == Code::kMismatch ? "" : error->to_string();
          }
          std::vector<float> data(1 << 20);
          if (auto met = comm.barrier(); !met) return met.error().to_string();
          const Status status =
              sends ? comm.send(data.data(), data.size(), DataType::kFloat32, Rank{0})
                    : comm.recv(data.data(), 3, DataType::kFloat32, Rank{0});
          if (status) return "no error";
          const std::string text = status.error().to_string();
          const bool named = text.find(sends ? "send of" : "recv of") != std::string::npos &&
                             text.find("waits there for rank 1") != std::string::npos;
          return status.error().code == Code::kMismatch && named ? "" : text;
        });
        CHECK(wrong == "");
        CHECK(std::chrono::steady_clock::now() - start < kDeadline / 2);
        leave(*comms);
      }
    }
  }
}

TEST_CASE("messages around calls that wait for each other are right") {
  // A rank is late for a call as it waits for a message, whose sender is on its way: no deadlock.
  for (const Transport* transport : transports_here()) {
    if (too_many(3)) continue;
    INFO(transport->name);
    auto comms = Communicator::in_process(3, settings_of(transport->name));
    if (!comms) FAIL(comms.error().to_string());
    CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
            const int me = comm.rank().value;
            std::vector<float> data(50'000, 1), sum(50'000);
            for (int i = 0; i < 60; ++i) {
              Status done;
              const std::size_t count = i % 2 == 0 ? 3 : data.size();
              if (i % 20 == 7 && me == 0) std::this_thread::sleep_for(60ms);
              if (me == 0) done = comm.send(data.data(), count, DataType::kFloat32, Rank{1});
              if (me == 1) done = comm.recv(sum.data(), count, DataType::kFloat32, Rank{0});
              if (!done) return done.error().to_string();
              if (i % 20 == 13 && me == 1) std::this_thread::sleep_for(60ms);
              done = comm.broadcast(data.data(), sum.data(), 3, DataType::kFloat32, Rank{0});
              if (done && i % 3 == 0)
                done = comm.all_reduce(data.data(), sum.data(), 3, DataType::kFloat32, {});
              if (!done) return done.error().to_string();
            }
            return "";
          }) == "");
    leave(*comms);
  }
}

TEST_CASE("most ranks know whose call is the odd one") {
  for (const char* transport : {"in_process", "shared_memory"}) {
    const int odd = GENERATE(0, 1, 2);
    auto comms = Communicator::in_process(3, settings_of(transport));
    if (!comms) FAIL(comms.error().to_string());
    const std::string wrong = on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
      float input[3] = {}, output[3] = {};
      const bool differs = comm.rank().value == odd;
      if (auto met = comm.barrier(); !met) return met.error().to_string();
      if (differs) std::this_thread::sleep_for(200ms);  // So that the others have begun.
      const Status status = comm.all_reduce(input, output, differs ? 2 : 3, DataType::kFloat32, {});
      if (status) return "no error";
      const Error& error = status.error();
      const bool own = error.what.find("was ended by") == std::string::npos;
      return !own || error.peer == Rank{odd} ? "" : error.to_string();
    });
    INFO(transport << ", rank " << odd);
    CHECK(wrong == "");
    leave(*comms);
  }
}

TEST_CASE("ranks may differ in what a collective ignores") {
  for (const Transport* transport : transports_here()) {
    auto comms = Communicator::in_process(2, settings_of(transport->name));
    if (!comms) FAIL(comms.error().to_string());
    const std::string wrong = on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
      const int me = comm.rank().value;
      const Reduction reduction(me == 0 ? ReduceOp::kSum : ReduceOp::kMax);
      for (int i = 0; i < kCollectiveCount; ++i) {
        const auto collective = static_cast<Collective>(i);
        const float input[2] = {1, 1};
        float output[2] = {};
        const Status done = comm.call({.collective = collective,
                                       .input = input,
                                       .output = output,
                                       .count = 1,
                                       .type = DataType::kFloat32,
                                       .reduction = reduces(collective) ? Reduction() : reduction,
                                       .root = Rank{has_root(collective) ? 1 : me}});
        if (!done) return done.error().to_string();
      }
      return "";
    });
    INFO(transport->name);
    CHECK(wrong == "");
    leave(*comms);
  }
}

TEST_CASE("some ranks in place and others not is right") {
  std::mt19937_64 random(Catch::rngSeed());
  for (const Transport* transport : transports_here()) {
    for (const int ranks : {2, 3, 5}) {
      if (too_many(ranks) || (another_network(*transport) && ranks != 3)) continue;
      const std::uint64_t seed = random();
      INFO(transport->name << ", " << ranks << " ranks, seed " << seed);
      auto comms = Communicator::in_process(ranks, settings_of(transport->name));
      if (!comms) FAIL(comms.error().to_string());
      CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
              std::mt19937_64 draw(seed);
              for (int i = 0; i < 4 * kCollectiveCount; ++i) {
                Case test{.collective = static_cast<Collective>(i % kCollectiveCount),
                          .count = kMismatchCounts[draw() % std::size(kMismatchCounts)],
                          .ranks = ranks,
                          .root = static_cast<int>(draw() % static_cast<unsigned>(ranks)),
                          .mapped = draw() % 2 == 0};
                const auto odd = static_cast<int>(draw() % static_cast<unsigned>(ranks));
                test.in_place = (comm.rank().value == odd) == (draw() % 2 == 0);
                if (auto wrong = run_case(comm, test, draw()); !wrong.empty()) return wrong;
              }
              return "";
            }) == "");
      leave(*comms);
    }
  }
}

}  // namespace
}  // namespace tutti::test
