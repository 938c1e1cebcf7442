// Health checks of a rank that waits for a message: a message may end in one, as its rank has sent
// it and ended between two looks; and they take place though the network always has something.
#include <array>
#include <future>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "exec/host_executor.h"
#include "support/catch.h"
#include "support/net/slow_network.h"
#include "unit/exec/two_ranks.h"

namespace tutti::exec {
namespace {

using namespace std::chrono_literals;

/// To ranks that take nothing: what is sent stays.
class FullLink final : public test::IdleLink {
 public:
  std::chrono::nanoseconds slept{0};
  bool pending() const override { return true; }
  bool pending_to(int) const override { return true; }
  void sleep(std::chrono::nanoseconds longest) override {
    slept += longest;
    std::this_thread::sleep_for(longest);
  }
};

TEST_CASE("calls that end together wait once for ranks that take nothing") {
  test::TwoRanks ranks;
  FullLink link;
  HostExecutor::Options options;
  options.timeout = 1h;
  options.wait = wait_policy(2, 2, -1);
  HostExecutor executor(std::make_unique<test::PlainEndpoint>(
                            ranks.region(), [] { return true; }, &link),
                        0, std::move(options));
  REQUIRE(ranks.region().abort({Code::kPeerFailed, "rank 1 has ended", Rank{1}, Rank{1}}));
  std::array<std::byte, 8> data{};
  Call call;
  call.input = call.output = data.data();
  call.count = data.size();
  for (int i = 0; i < 5; ++i) {
    executor.begin(call);
    REQUIRE(executor.poll() == Poll::kDone);
    const Status ended = executor.take_status();
    REQUIRE_FALSE(ended);
    CHECK(ended.error().code == Code::kPeerFailed);
  }
  CHECK(link.slept > 0s);
  CHECK(link.slept <= Watchdog::kLongestGoodbye);
}

TEST_CASE("a message that ends in a health check ends its call") {
  test::TwoRanks ranks;
  Region& region = ranks.region();
  test::PlainEndpoint of_sender(region);
  flight::Recorder record({});
  Messages sender(of_sender, 0, SIZE_MAX, record);
  std::byte out[8] = {std::byte{7}}, in[8] = {};
  Message send{.sends = true, .peer = 1, .data = out, .count = sizeof(out)};
  Message receive{.sends = false, .peer = 0, .data = in, .count = sizeof(in)};
  MessageBatch sent{.messages = std::span(&send, 1), .start = {}};
  MessageBatch received{.messages = std::span(&receive, 1), .start = {}};
  // The health check asks, and only then does the peer send, and end.
  bool asked = false;
  auto of_receiver = std::make_unique<test::PlainEndpoint>(region, [&] {
    if (!std::exchange(asked, true)) sender.post(sent), (void)sender.poll();
    return false;
  });
  HostExecutor::Options options;
  options.timeout = 1s;
  options.wait = wait_policy(2, 2, -1);
  HostExecutor receiver(std::move(of_receiver), 1, std::move(options));

  auto outcome = std::async(std::launch::async, [&] { return receiver.run(received); });
  const bool ended = outcome.wait_for(10s) == std::future_status::ready;
  CHECK(ended);
  if (!ended) (void)region.abort({Code::kInternal, "it waits for ever"});
  CHECK(outcome.get());
  CHECK(asked);
  CHECK(in[0] == std::byte{7});
}

/// Something always comes, but no message. Takes a frame only after so many looks.
class BusyCarrier final : public net::Carrier {
 public:
  explicit BusyCarrier(int looks_for_each) : looks_for_each_(looks_for_each) {}
  void send(net::FrameHeader, std::span<const net::Piece>) override { ++queued_; }
  using Carrier::send;
  Result<bool> flush() override { return false; }
  Result<bool> progress(net::FrameSink&) override {
    std::this_thread::sleep_for(1ms);
    if (queued_ != 0 && looks_for_each_ != 0 && ++looks_ % looks_for_each_ == 0) --queued_;
    return true;
  }
  std::size_t pending() const override { return queued_; }
  std::string where() const override { return "busy"; }
  void leave() override {}
  bool left() override { return true; }

 private:
  int looks_for_each_, looks_ = 0;
  std::size_t queued_ = 0;
};

/// Rank 0 carries out a batch of one message.
Status run_busy(Message message, std::chrono::milliseconds timeout, int looks_for_each) {
  HostExecutor::Options options;
  options.timeout = timeout;
  options.wait = wait_policy(2, 2, -1);
  BusyCarrier carrier(looks_for_each);
  HostExecutor executor(
      std::make_unique<test::SlowEndpoint>(test::slow_region(2), 0,
                                           std::make_unique<test::OnePeerNetwork>(carrier)),
      0, std::move(options));
  MessageBatch batch{.messages = std::span(&message, 1), .start = {}};
  auto outcome = std::async(std::launch::async, [&] { return executor.run(batch); });
  const bool ended = outcome.wait_for(20s) == std::future_status::ready;
  CHECK(ended);
  if (!ended) (void)executor.endpoint().region().abort({Code::kInternal, "it waits for ever"});
  return outcome.get();
}

TEST_CASE("a message has a deadline though other news come all the time") {
  std::byte in[8] = {};
  const Status status =
      run_busy({.sends = false, .peer = 1, .data = in, .count = sizeof(in)}, 100ms, 0);
  REQUIRE(!status);
  CHECK(status.error().code == Code::kTimeout);
  CHECK(status.error().peer == Rank{1});
}

TEST_CASE("a message that lies in the ring has a deadline if its peer takes nothing") {
  std::byte out[8] = {};
  const Message send{.sends = true, .peer = 1, .data = out, .count = sizeof(out)};
  const Status status = run_busy(send, 100ms, 0);
  REQUIRE(!status);
  INFO(status.error().what);
  CHECK(status.error().code == Code::kTimeout);
  CHECK(status.error().peer == Rank{1});
  CHECK(status.error().what.find("rank 1 to take") != std::string::npos);
}

TEST_CASE("a peer that takes little is not late") {
  // Three slots of frames; all of them take longer than the timeout.
  std::vector<std::byte> out(3 * 8192);
  const Message send{.sends = true, .peer = 1, .data = out.data(), .count = out.size()};
  CHECK(run_busy(send, 1s, 400));
}

}  // namespace
}  // namespace tutti::exec
