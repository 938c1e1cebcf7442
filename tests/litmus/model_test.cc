// The checker itself, on litmus tests whose verdicts are known (PTX ISA, "Memory Consistency
// Model"; Lustig et al., ASPLOS 2019; Alglave, Maranget and Tautschnig, "Herding Cats", TOPLAS
// 2014).
#include <map>

#include "litmus/explore.h"
#include "support/catch.h"

namespace tutti::litmus {
namespace {

using Results = std::vector<std::uint64_t>;
constexpr auto kWeak = Order::kWeak, kRelaxed = Order::kRelaxed, kAcquire = Order::kAcquire,
               kRelease = Order::kRelease, kFenced = Order::kAcquireRelease,
               kSequential = Order::kSequential;

std::uint64_t x, y;
std::vector<Location> both() { return {{&x, sizeof x}, {&y, sizeof y}}; }
/// Threads of different blocks and devices.
Program apart(std::vector<std::function<void()>> bodies) {
  Program program{both(), {}};
  for (unsigned t = 0; t < bodies.size(); ++t) program.threads.push_back({{t, t}, bodies[t]});
  return program;
}

/// Whether all threads together may have these results, in their order.
bool may(const Program& program, const Results& wanted) {
  return Explorer(program).any([&](const Outcome& outcome) {
    Results results;
    for (const Trace& trace : outcome)
      results.insert(results.end(), trace.results.begin(), trace.results.end());
    return results == wanted;
  });
}

Program message(Order data, Order flag, Order seen, Scope scope = Scope::kSystem) {
  return apart({[=]() {
                  write(x, 1, data, scope);
                  write(y, 1, flag, scope);
                },
                [=]() {
                  saw(read(y, seen, scope));
                  saw(read(x, data, scope));
                }});
}
/// The same with a fence on each side; no order: without.
Program fenced_message(Order before, Order after) {
  return apart({[=]() {
                  write(x, 1, kWeak);
                  if (before != kWeak) fence(before);
                  write(y, 1);
                },
                [=]() {
                  saw(read(y));
                  if (after != kWeak) fence(after);
                  saw(read(x, kWeak));
                }});
}

TEST_CASE("MP: data behind a flag are seen with release and acquire, and not without either") {
  const Results stale{1, 0}, fresh{1, 1};
  CHECK_FALSE(may(message(kWeak, kRelease, kAcquire), stale));
  CHECK(may(message(kWeak, kRelease, kAcquire), fresh));
  CHECK(may(message(kWeak, kRelaxed, kAcquire), stale));
  CHECK(may(message(kWeak, kRelease, kRelaxed), stale));
  CHECK(may(message(kRelaxed, kRelaxed, kRelaxed), stale));
  CHECK(may(message(kWeak, kWeak, kAcquire), stale));  // A weak write is part of no pattern.
}

TEST_CASE("MP: fences stand for release and acquire") {
  const Results stale{1, 0};
  CHECK_FALSE(may(fenced_message(kFenced, kFenced), stale));
  CHECK_FALSE(may(fenced_message(kSequential, kSequential), stale));
  CHECK(may(fenced_message(kFenced, kWeak), stale));
  CHECK(may(fenced_message(kWeak, kFenced), stale));
}

TEST_CASE("MP: a scope that does not include the other thread orders nothing") {
  const Results stale{1, 0};
  CHECK(may(message(kWeak, kRelease, kAcquire, Scope::kDevice), stale));
  CHECK(may(message(kWeak, kRelease, kAcquire, Scope::kBlock), stale));
  Program near = message(kWeak, kRelease, kAcquire, Scope::kDevice);
  near.threads[1].where.device = near.threads[0].where.device;
  CHECK_FALSE(may(near, stale));
}

TEST_CASE("MP: a release also covers later strong writes, but only to its own location") {
  const auto reader = [] {
    saw(read(y, kAcquire));
    saw(read(x, kWeak));
  };
  const auto writer = [](Order second) {
    return [second] {
      write(x, 1, kWeak);
      write(y, 1, kRelease);
      write(y, 2, second);
    };
  };
  CHECK_FALSE(may(apart({writer(kRelaxed), reader}), {2, 0}));
  CHECK(may(apart({writer(kWeak), reader}), {2, 0}));
  const auto elsewhere = [] {
    write(x, 1, kRelease);
    write(y, 1);
  };
  const auto fenced_reader = [] {
    saw(read(y));
    fence(kFenced);
    saw(read(x, kWeak));
  };
  CHECK(may(apart({elsewhere, fenced_reader}), {1, 0}));
}

TEST_CASE("MP: a barrier orders the threads of a block alone") {
  Program program = apart({[]() {
                             write(x, 1, kWeak);
                             recorder->barrier("barrier");
                           },
                           []() {
                             recorder->barrier("barrier");
                             saw(read(x, kWeak));
                           }});
  CHECK(may(program, {0}));
  program.threads[1].where = program.threads[0].where;
  CHECK_FALSE(may(program, {0}));
  CHECK(may(program, {1}));
}

/// A thread in between hands the message on.
Program handed_on(Order first, Order second) {
  return apart({[]() {
                  write(x, 1, kWeak);
                  write(y, 1, kRelease);
                },
                [=]() {
                  if (read(y, first) == 1) write(y, 2, second);
                },
                []() {
                  saw(read(y, kAcquire));
                  saw(read(x, kWeak));
                }});
}
TEST_CASE("ISA2: causality is transitive through a thread that acquires and releases") {
  CHECK_FALSE(may(handed_on(kAcquire, kRelease), {2, 0}));
  CHECK(may(handed_on(kAcquire, kRelease), {2, 1}));
  CHECK(may(handed_on(kRelaxed, kRelease), {2, 0}));
  CHECK(may(handed_on(kAcquire, kRelaxed), {2, 0}));
}

/// What a thread has read of another one, it hands on.
Program seen_by(Order first) {
  return apart({[] { write(x, 1); },
                [=] {
                  if (read(x, first) == 1) write(y, 1, kRelease);
                },
                [] {
                  saw(read(y, kAcquire));
                  saw(read(x, kWeak));
                }});
}
TEST_CASE("WRC: a write that a strong read has seen is seen by all that come after that") {
  CHECK_FALSE(may(seen_by(kRelaxed), {1, 0}));
  CHECK(may(seen_by(kRelaxed), {1, 1}));
  CHECK(may(seen_by(kWeak), {1, 0}));
}

Program stores_then_loads(Order between) {
  const auto half = [between](std::uint64_t& own, std::uint64_t& other) {
    return [between, &own, &other]() {
      write(own, 1);
      if (between != kWeak) fence(between);
      saw(read(other));
    };
  };
  return apart({half(x, y), half(y, x)});
}
TEST_CASE("SB: only fence.sc keeps both threads from missing the other's store") {
  CHECK(may(stores_then_loads(kWeak), {0, 0}));
  CHECK(may(stores_then_loads(kFenced), {0, 0}));
  CHECK_FALSE(may(stores_then_loads(kSequential), {0, 0}));
  CHECK(may(stores_then_loads(kSequential), {1, 0}));
  CHECK(may(stores_then_loads(kSequential), {1, 1}));
}

Program loads_then_stores(Order load, Order store, bool dependent) {
  const auto half = [=](std::uint64_t& from, std::uint64_t& to) {
    return [=, &from, &to]() {
      saw(read(from, load));
      dependent ? write_dependent(to, 1) : write(to, 1, store);
    };
  };
  return apart({half(x, y), half(y, x)});
}
TEST_CASE("LB: both threads may read the other's later store, but not if it depends on the read") {
  CHECK(may(loads_then_stores(kRelaxed, kRelaxed, false), {1, 1}));
  CHECK_FALSE(may(loads_then_stores(kRelaxed, kRelaxed, true), {1, 1}));
  CHECK_FALSE(may(loads_then_stores(kAcquire, kRelease, false), {1, 1}));
  CHECK(may(loads_then_stores(kAcquire, kRelaxed, false), {1, 1}));
}

Program two_readers(Order first_load, Order between) {
  const auto reader = [=](std::uint64_t& first, std::uint64_t& second) {
    return [=, &first, &second]() {
      saw(read(first, first_load));
      if (between != kWeak) fence(between);
      saw(read(second));
    };
  };
  return apart({[]() { write(x, 1, kRelease); }, []() { write(y, 1, kRelease); }, reader(x, y),
                reader(y, x)});
}
TEST_CASE("IRIW: only fence.sc makes readers agree on the order of independent writes") {
  const Results disagree{1, 0, 1, 0};
  CHECK(may(two_readers(kRelaxed, kWeak), disagree));
  CHECK(may(two_readers(kAcquire, kWeak), disagree));
  CHECK(may(two_readers(kAcquire, kFenced), disagree));
  CHECK_FALSE(may(two_readers(kRelaxed, kSequential), disagree));
}

Program read_twice(Order write_order, Order first, Order second) {
  return apart({[=]() { write(x, 1, write_order); },
                [=]() {
                  saw(read(x, first));
                  write(y, 1, kWeak);  // Else the second read would be a poll.
                  saw(read(x, second));
                }});
}
TEST_CASE("CoRR: a location does not go back for strong accesses; for weak ones it may") {
  CHECK_FALSE(may(read_twice(kRelaxed, kRelaxed, kRelaxed), {1, 0}));
  CHECK(may(read_twice(kRelaxed, kRelaxed, kRelaxed), {0, 1}));
  CHECK(may(read_twice(kWeak, kWeak, kWeak), {1, 0}));
}

TEST_CASE("CoWR, CoRW, CoWW: a thread's own accesses of a location keep their order") {
  const Program own = apart({[]() {
    write(x, 1, kWeak);
    saw(read(x, kWeak));
  }});
  CHECK_FALSE(may(own, {0}));
  CHECK(may(own, {1}));
  const Program later = apart({[]() {
    saw(read(x, kWeak));
    write(x, 1, kWeak);
  }});
  CHECK_FALSE(may(later, {1}));
  const Program twice = apart({[]() {
    write(x, 1);
    write(x, 2);
    saw(read(x));
  }});
  CHECK_FALSE(may(twice, {1}));
  CHECK(may(twice, {2}));
}

TEST_CASE("a thread that polls ends at the poll, and keeps its block waiting") {
  Program program = apart({[]() {
                             while (read(y, kAcquire) == 0) {
                             }
                             recorder->barrier("barrier");
                             saw(1);
                           },
                           []() {
                             recorder->barrier("barrier");
                             saw(read(x));
                           }});
  program.threads[1].where = program.threads[0].where;
  bool blocked = false;
  const bool passed = Explorer(program).any([&](const Outcome& outcome) {
    blocked |= outcome[0].blocked && outcome[1].blocked;
    return !outcome[0].blocked || !outcome[1].blocked;
  });
  CHECK(blocked);
  CHECK_FALSE(passed);  // Nobody sets the flag.
}

}  // namespace
}  // namespace tutti::litmus
