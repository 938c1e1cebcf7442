// Waiting for several works: for all of them, and for any.
#include <array>
#include <future>
#include <thread>
#include <vector>

#include "comm/state.h"
#include "support/catch.h"
#include "tutti/wait.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;

constexpr auto kType = DataType::kFloat32;

std::string said(const Status& status) { return status ? "ok" : status.error().to_string(); }
template <class Value>
std::string said(const Result<Value>& result) {
  return result ? "ok" : result.error().to_string();
}

/// Two ranks; rank 0 has started to receive from rank 1, once for each element of `received`.
struct Receiving {
  std::vector<Communicator> comms;
  std::array<float, 3> received{};
  std::vector<Work> works;
};
void start(Receiving& all) {
  auto comms = Communicator::in_process(2);
  REQUIRE(comms);
  all.comms = *std::move(comms);
  for (float& one : all.received) {
    auto work = all.comms[0].start_recv(&one, 1, kType, Rank{1});
    REQUIRE(work);
    all.works.push_back(*work);
  }
}
Status send(Receiving& all, float value) { return all.comms[1].send(&value, 1, kType, Rank{0}); }

TEST_CASE("works are waited for one after another, as they end") {
  Receiving all;
  start(all);
  for (int again = 0; again < 3; ++again) {
    CHECK(said(wait_any(all.works, 20ms)) ==
          "timeout: wait_any: none is done yet; they go on and can be waited for again");
  }
  for (const Work& work : all.works)  // A wait leaves nothing behind.
    CHECK(Work::State::of(work)->callbacks.empty());
  for (std::size_t next = 0; next < all.works.size(); ++next) {
    auto late = std::async(std::launch::async, [&] {
      std::this_thread::sleep_for(20ms);  // Rank 0 waits by then, mostly.
      return send(all, static_cast<float>(next + 1));
    });
    const auto place = wait_any(all.works);
    REQUIRE(said(place) == "ok");
    CHECK(*place == next);
    CHECK(all.received[next] == static_cast<float>(next + 1));
    CHECK(said(all.works[*place].wait(0ns)) == "ok");
    CHECK(said(late.get()) == "ok");
    all.works[*place] = {};  // Taken out.
  }
  CHECK(said(wait_any(all.works)) == "invalid argument: wait_any: no work was started");
  CHECK(said(wait_any({})) == "invalid argument: wait_any: no work was started");
}

TEST_CASE("all works are waited for, in all at most so long") {
  Receiving all;
  start(all);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(said(wait_all(all.works, 50ms)) ==
        "timeout: wait: not done yet; the call goes on and can be waited for again");
  CHECK(std::chrono::steady_clock::now() - begin < 10s);
  auto late = std::async(std::launch::async, [&] {
    for (const float value : {1.F, 2.F, 3.F}) {
      if (Status sent = send(all, value); !sent) return sent;
    }
    return ok();
  });
  CHECK(said(wait_all(all.works)) == "ok");
  CHECK(all.received == std::array{1.F, 2.F, 3.F});
  CHECK(said(late.get()) == "ok");
  CHECK(said(wait_all({})) == "ok");
  all.works.emplace_back();
  CHECK(said(wait_all(all.works)) == "invalid argument: wait: this Work was never started");
}

TEST_CASE("a work that failed ends the wait, and says why") {
  Receiving all;
  start(all);
  all.comms[1].abort("enough");
  const auto place = wait_any(all.works);
  REQUIRE(said(place) == "ok");
  const Status why = all.works[*place].wait();
  REQUIRE_FALSE(why);
  CHECK(why.error().code == Code::kAborted);
  CHECK_THAT(said(wait_all(all.works)), Catch::Contains("enough"));
}

TEST_CASE("works are not waited for where that would never end") {
  Receiving all;
  start(all);
  {
    Group group;
    CHECK_THAT(said(wait_any(all.works)), Catch::Contains("this thread has a group open"));
    CHECK(said(group.end()) == "ok");
  }
  std::promise<std::pair<std::string, std::string>> heard;
  all.works[0].then([&](const Status&) {  // On the progress thread.
    heard.set_value({said(wait_any(std::span(all.works).last(1))), said(wait_all(all.works))});
  });
  CHECK(said(send(all, 1)) == "ok");
  const auto [any, every] = heard.get_future().get();
  CHECK_THAT(any, Catch::Contains("runs on the thread that carries all work on"));
  CHECK_THAT(every, Catch::Contains("runs on the thread that carries all work on"));
  for (const float value : {2.F, 3.F}) CHECK(said(send(all, value)) == "ok");
  CHECK(said(wait_all(all.works)) == "ok");
}

}  // namespace
}  // namespace tutti
