// A message that ends in a health check: its rank has sent it and ended between two looks.
#include <algorithm>
#include <cstdlib>
#include <functional>
#include <future>
#include <memory>

#include "exec/host_executor.h"
#include "support/catch.h"

namespace tutti::exec {
namespace {

using namespace std::chrono_literals;

/// Memory that two ranks share. Whether a peer lives, `is_alive` says.
class Watched final : public Endpoint {
 public:
  Watched(const Region& region, std::function<bool()> is_alive)
      : region_(region), is_alive_(std::move(is_alive)) {}
  const Region& region() const override { return region_; }
  BufferName name(const void*, std::size_t) override { return {}; }
  Result<std::byte*> map(int, BufferName, std::size_t) override {
    return Error{Code::kSystem, "nothing can be mapped"};
  }
  bool alive(int) const override { return is_alive_(); }
  std::size_t shared_bytes() const override { return 0; }

 private:
  Region region_;
  std::function<bool()> is_alive_;
};

TEST_CASE("a message that ends in a health check ends its call") {
  const RegionConfig config = Region::default_config(2);
  const std::size_t bytes = Region::bytes_for(config);
  const std::unique_ptr<void, void (*)(void*)> memory(std::aligned_alloc(4096, bytes), std::free);
  std::fill_n(static_cast<std::byte*>(memory.get()), bytes, std::byte{});
  Region region(static_cast<std::byte*>(memory.get()), config);
  region.format();

  Watched of_sender(region, [] { return true; });
  flight::Recorder record({});
  Messages sender(of_sender, 0, SIZE_MAX, record);
  std::byte out[8] = {std::byte{7}}, in[8] = {};
  Message send{.sends = true, .peer = 1, .data = out, .count = sizeof(out)};
  Message receive{.sends = false, .peer = 0, .data = in, .count = sizeof(in)};
  MessageBatch sent{.messages = std::span(&send, 1), .start = {}};
  MessageBatch received{.messages = std::span(&receive, 1), .start = {}};
  // The health check asks, and only then does the peer send, and end.
  bool asked = false;
  auto of_receiver = std::make_unique<Watched>(region, [&] {
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

}  // namespace
}  // namespace tutti::exec
