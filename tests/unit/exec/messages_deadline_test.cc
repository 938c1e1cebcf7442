// When a message is late: it is one that does not move, not one that takes long.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

#include "exec/messages.h"
#include "support/catch.h"

namespace tutti::exec {
namespace {

using namespace std::chrono_literals;

/// Memory that two ranks share, and of which none can be mapped: all goes by slots.
class PlainEndpoint final : public Endpoint {
 public:
  explicit PlainEndpoint(const Region& region) : region_(region) {}
  const Region& region() const override { return region_; }
  BufferName name(const void*, std::size_t) override { return {}; }
  Result<std::byte*> map(int, BufferName, std::size_t) override {
    return Error{Code::kSystem, "nothing can be mapped"};
  }
  bool alive(int) const override { return true; }
  std::size_t shared_bytes() const override { return 0; }

 private:
  Region region_;
};

MessageBatch batch_of(Message& message) {
  return {.messages = std::span(&message, 1), .open = 0, .start = {}};
}

TEST_CASE("a message that moves is not late, one that has stopped is") {
  const RegionConfig config = Region::default_config(2);
  const std::size_t bytes = Region::bytes_for(config);
  const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(4096, bytes), std::free);
  std::fill_n(static_cast<std::byte*>(memory.get()), bytes, std::byte{});
  Region region(static_cast<std::byte*>(memory.get()), config);
  region.format();
  PlainEndpoint first(region), second(region);
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
