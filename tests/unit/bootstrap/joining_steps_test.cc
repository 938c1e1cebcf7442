// The steps of joining, and ranks that come to them late.
#include <algorithm>
#include <optional>
#include <thread>

#include "support/meetings.h"
#include "tutti/communicator.h"

namespace tutti {
namespace {

using namespace test;
using std::chrono::steady_clock;

TEST_CASE("an error of a later step of joining names the step") {
  const auto store = memory_rendezvous();
  const Deadline used_up{steady_clock::now()};
  const auto outcome = exchange(*store, Rank{0}, 2, "world/segments", {}, used_up);
  REQUIRE_FALSE(outcome);
  CHECK_THAT(outcome.error().what,
             Catch::Contains("rank 1 of 2 has not come to the step 'segments' within ") &&
                 Catch::EndsWith(" s (TUTTI_TIMEOUT_MS)"));
}

/// Notes the deadlines of the steps behind the first one, which ends late.
class LateHello : public Shared {
 public:
  explicit LateHello(std::shared_ptr<Rendezvous> store) : Shared(std::move(store)) {}
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    const bool waits = key.ends_with("/all");
    if (waits && met_) nearest_ = std::min(nearest_, deadline.at - *met_);
    auto value = Shared::get(key, deadline);
    if (value && key == "world/hello/all") {
      std::this_thread::sleep_for(50ms);
      met_ = steady_clock::now();
    }
    return value;
  }
  steady_clock::duration nearest() const { return nearest_; }

 private:
  std::optional<steady_clock::time_point> met_;
  steady_clock::duration nearest_ = steady_clock::duration::max();
};

TEST_CASE("a rank that comes late leaves the later steps of joining their whole time") {
  const auto store = memory_rendezvous();
  LateHello seen(store);
  Settings settings;
  settings.timeout = 2s;  // From there on, the log tells of a wait before its deadline.
  std::jthread first([&] { CHECK(Communicator::create(*store, Rank{0}, 2, settings, "world")); });
  CHECK(Communicator::create(seen, Rank{1}, 2, settings, "world"));
  CHECK(seen.nearest() >= settings.timeout);
  CHECK(seen.nearest() < 1h);  // There is a later step.
}

/// Rank 1's view: its deadline passes once rank 0 has come, and before that hands out the table.
class Hasty : public Shared {
 public:
  explicit Hasty(std::shared_ptr<Rendezvous> store) : Shared(std::move(store)) {}
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    if (key != "world/hello/all" || !std::exchange(first_, false))
      return Shared::get(key, deadline);
    CHECK(Shared::get("world/hello/0", Deadline::after(1min)));
    return Error{Code::kTimeout, "over"};
  }

 private:
  bool first_ = true;
};

TEST_CASE("a rank whose time ends when all have come waits for rank 0 to hand out the table") {
  const auto store = memory_rendezvous();
  std::jthread first(
      [&] { CHECK(exchange(*store, Rank{0}, 2, "world/hello", {}, Deadline::after(1min))); });
  Hasty hasty(store);
  // Less than the 2 s after which the log tells of a wait, so that its only wait is to the
  // deadline.
  const auto met = exchange(hasty, Rank{1}, 2, "world/hello", {}, Deadline::after(1s));
  INFO((met ? "" : met.error().what));
  CHECK(met);
}

}  // namespace
}  // namespace tutti
