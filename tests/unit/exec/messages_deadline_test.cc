// When a message is late: it is one that does not move, not one that takes long.
#include <algorithm>
#include <vector>

#include "exec/messages.h"
#include "support/catch.h"
#include "unit/exec/two_ranks.h"

namespace tutti::exec {
namespace {

using namespace std::chrono_literals;

MessageBatch batch_of(Message& message) {
  return {.messages = std::span(&message, 1), .open = 0, .start = {}};
}

TEST_CASE("a message that moves is not late, one that has stopped is") {
  test::TwoRanks ranks;
  test::PlainEndpoint first(ranks.region()), second(ranks.region());
  flight::Recorder sends({}), receives({});
  Messages sender(first, 0, SIZE_MAX, sends), receiver(second, 1, SIZE_MAX, receives);

  std::vector<std::byte> in(std::size_t{8} << 20, std::byte{7}), out(in.size());
  Message send{.sends = true, .peer = 1, .data = in.data(), .count = in.size()};
  Message receive{.sends = false, .peer = 0, .data = out.data(), .count = out.size()};
  MessageBatch sent = batch_of(send), received = batch_of(receive);
  sender.post(sent);
  receiver.post(received);

  constexpr auto kTimeout = 1000ms;
  auto now = std::max(sent.start, received.start);
  for (int round = 0; round < 10; ++round, now += 900ms) {
    REQUIRE(sender.poll());
    REQUIRE(receiver.poll());
    REQUIRE_FALSE(sender.check_health(now, kTimeout));
    REQUIRE_FALSE(receiver.check_health(now, kTimeout));
  }
  REQUIRE(sent.open == 1);
  // The receiver looks no more: the sender fills the ring once, and then nothing moves.
  sender.poll();
  REQUIRE_FALSE(sender.poll());
  CHECK_FALSE(sender.check_health(now, kTimeout));
  CHECK_FALSE(sender.check_health(now + kTimeout, kTimeout));
  const auto late = sender.check_health(now + kTimeout + 1ms, kTimeout);
  REQUIRE(late);
  CHECK(late->code == Code::kTimeout);
}

}  // namespace
}  // namespace tutti::exec
