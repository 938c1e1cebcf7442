// Every kind of rendezvous that notices the end of a rank's process reports it.
#include <unistd.h>

#include "support/meetings.h"

namespace tutti {
namespace {

using namespace test;

TEST_CASE("a rank that ends while it joins is named to those that wait") {
  for_each_kind([&](Make make) {
    const auto meeting = make();
    auto host = meeting->join(0), waiting = meeting->join(1), dying = meeting->join(2);
    REQUIRE(host);
    REQUIRE(waiting);
    REQUIRE(dying);
    if (dynamic_cast<MemoryMeeting*>(meeting.get()) != nullptr) return;  // Threads don't die.
    (*dying)->enter(Rank{2});
    (*waiting)->enter(Rank{1});
    dying->reset();  // As its process would: without leave.
    const auto told = (*waiting)->get("never put", Deadline::after(5min));
    REQUIRE_FALSE(told);
    CHECK(told.error().code == Code::kPeerFailed);
    CHECK(told.error().peer == Rank{2});
    CHECK_THAT(told.error().what,
               Catch::StartsWith("joining: rank 2 (process " + std::to_string(getpid())) &&
                   Catch::Contains("has ended before it had joined"));
    CHECK((*host)->get("never put", Deadline::after(5min)).error().peer == Rank{2});
    (*waiting)->leave();
  });
}

TEST_CASE("a rank that comes and goes in order harms nobody") {
  for_each_kind([&](Make make) {
    const auto meeting = make();
    auto host = meeting->join(0), leaving = meeting->join(1);
    REQUIRE(host);
    REQUIRE(leaving);
    leaving->reset();  // Never entered.
    CHECK((*host)->get("never put", Deadline::after(200ms)).error().code == Code::kTimeout);
  });
}

TEST_CASE("a rank that has joined or given up may end without harm") {
  for_each_kind([&](Make make) {
    const auto meeting = make();
    auto host = meeting->join(0), leaving = meeting->join(1);
    REQUIRE(host);
    REQUIRE(leaving);
    for (int times = 0; times < 2; ++times) (*leaving)->enter(Rank{1});
    for (int times = 0; times < 2; ++times) (*leaving)->leave();
    leaving->reset();
    CHECK((*host)->get("never put", Deadline::after(200ms)).error().code == Code::kTimeout);
    const auto next = meeting->join(1);
    REQUIRE(next);
    REQUIRE((*next)->put("k", bytes_of("v")));
    CHECK((*host)->get("k", Deadline::after(20s)));
  });
}

}  // namespace
}  // namespace tutti
