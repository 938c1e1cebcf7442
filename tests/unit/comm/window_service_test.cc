// What a rank sends to a window of another host is not trusted: requests that can't be end the
// window on all ranks, touch no memory, and are told of with the rank that sent them.
#include "comm/window_service.h"

#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "exec/flight/reader.h"
#include "support/catch.h"
#include "tutti/window.h"

namespace tutti {
namespace {

using Kind = WindowRequest::Kind;
constexpr std::size_t kBytes = 100;

struct Bad {
  const char* what;  // Is said of it.
  WindowRequest request;
  int times = 1;  // It is sent.
};

std::vector<Bad> bad_requests() {
  const auto type = static_cast<std::uint8_t>(DataType::kInt32);
  const auto op = static_cast<std::uint8_t>(ReduceOp::kSum);
  const auto avg = static_cast<std::uint8_t>(ReduceOp::kAvg);
  return {
      {"8 bytes at 93 of a window of 100 bytes", {.kind = Kind::kPut, .offset = 93, .bytes = 8}},
      {"101 bytes at 0 of a window", {.kind = Kind::kPut, .bytes = 101}},
      {"1 bytes at 18446744073709551615 of",
       {.kind = Kind::kPut, .offset = ~std::uint64_t{0}, .bytes = 1}},
      {"18446744073709551615 bytes at 1 of",
       {.kind = Kind::kGet, .offset = 1, .bytes = ~std::uint64_t{0}}},
      {"104 bytes at 0 of", {.kind = Kind::kAccumulate, .type = type, .op = op, .bytes = 104}},
      {"accumulate", {.kind = Kind::kAccumulate, .type = type, .op = op, .offset = 2, .bytes = 4}},
      {"accumulate", {.kind = Kind::kAccumulate, .type = type, .op = op, .bytes = 6}},
      {"accumulate", {.kind = Kind::kAccumulate, .type = type, .op = avg, .bytes = 4}},
      {"accumulate", {.kind = Kind::kAccumulate, .type = 255, .op = op, .bytes = 4}},
      {"accumulate", {.kind = Kind::kAccumulate, .type = type, .op = 255, .bytes = 4}},
      {"8 bytes at 96 of a window", {.kind = Kind::kFetchAdd, .offset = 96, .bytes = 8}},
      {"exchange", {.kind = Kind::kFetchAdd, .offset = 4, .bytes = 8}},
      {"exchange", {.kind = Kind::kCompareSwap, .bytes = 4}},
      {"exchange", {.kind = Kind::kCompareSwap, .bytes = 16}},
      {"exchange", {.kind = Kind::kFetchAdd}},
      {"signal 64", {.kind = Kind::kSignal, .number = 64}},
      {"an answer that nobody waits for", {.kind = Kind::kData, .bytes = 8, .ticket = 1}},
      {"an end out of turn", {.kind = Kind::kBye}, 2},
      {"an end out of turn", {.kind = Kind::kOver}},
      {"kind 0", {.kind = static_cast<Kind>(0)}},
      {"kind 77", {.kind = static_cast<Kind>(77)}},
  };
}

/// What the service of rank 0 says of requests of rank 1, whose end has no service.
std::string said_of(const Bad& bad) {
  Settings settings;
  settings.transport = "tcp";
  settings.timeout = std::chrono::seconds(20);
  auto comms = Communicator::in_process(2, settings);
  if (!comms) return comms.error().to_string();
  std::vector<std::byte> memory(kBytes, std::byte{7});
  auto service =
      std::make_shared<WindowService>(Insides::of((*comms)[0]), std::vector<bool>{false, true},
                                      WindowMemory{memory, nullptr, [](int, int) {}, [] {}});
  if (auto begun = service->begin(); !begun) return begun.error().to_string();
  for (int i = 0; i < bad.times; ++i) {
    auto sent = (*comms)[1].send(&bad.request, sizeof bad.request, DataType::kUint8, Rank{0});
    // The error that the last one causes may be known here before the send returns.
    if (!sent && i + 1 < bad.times) return "not sent: " + sent.error().to_string();
  }
  for (const Deadline end = Deadline::after(std::chrono::seconds(20));
       service->error() == nullptr && !end.passed();)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::string said = service->error() == nullptr ? "" : service->error()->to_string();
  service->abandon({Code::kAborted, "the test is over"});
  const bool touched = std::ranges::count(memory, std::byte{7}) != kBytes;
  return touched ? "memory was touched" : said;
}

TEST_CASE("requests that can't be are refused, whatever is wrong with them") {
  for (const Bad& bad : bad_requests()) {
    INFO(bad.what);
    const std::string said = said_of(bad);
    INFO(said);
    const std::string begin =
        "rank 0: mismatch: window: rank 1 sent a request that can't be: " + std::string(bad.what);
    CHECK(said.starts_with(begin));
  }
}

// Each answer waits here until the rank that asked takes it.
TEST_CASE("a rank that asks and asks, and takes no answer, ends the window") {
  Settings settings;
  settings.transport = "tcp";
  auto comms = Communicator::in_process(2, settings).value();
  std::vector<std::byte> memory(kBytes);
  auto service =
      std::make_shared<WindowService>(Insides::of(comms[0]), std::vector<bool>{false, true},
                                      WindowMemory{memory, nullptr, [](int, int) {}, [] {}});
  REQUIRE(service->begin());
  const WindowRequest request{.kind = Kind::kGet, .bytes = kBytes, .ticket = 1};
  int asked = 0;
  while (asked < 1000 && comms[1].send(&request, sizeof request, DataType::kUint8, Rank{0}))
    ++asked;
  for (const Deadline end = Deadline::after(std::chrono::seconds(10));
       service->error() == nullptr && !end.passed();)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::string said = service->error() == nullptr ? "" : service->error()->to_string();
  service->abandon({Code::kAborted, "the test is over"});
  INFO(said);
  CHECK(
      said.starts_with("rank 0: mismatch: window: rank 1 sent a request that can't be: "
                       "it takes none of 16 answers"));
}

/// The most memory that this process has had, in bytes.
std::size_t most_memory() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<std::size_t>(usage.ru_maxrss) * 1024;
}

TEST_CASE("what a rank says that it will accumulate takes no memory before it comes") {
  constexpr std::size_t kLarge = std::size_t{512} << 20;
  const auto unmap = [](void* memory) { munmap(memory, kLarge); };
  void* const mapped = mmap(nullptr, kLarge, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(mapped != MAP_FAILED);
  const std::shared_ptr<void> memory(mapped, unmap);
  Settings settings;
  settings.transport = "tcp";
  auto comms = Communicator::in_process(2, settings).value();
  auto service = std::make_shared<WindowService>(
      Insides::of(comms[0]), std::vector<bool>{false, true},
      WindowMemory{{static_cast<std::byte*>(mapped), kLarge}, memory, [](int, int) {}, [] {}});
  REQUIRE(service->begin());
  const std::size_t before = most_memory();
  const WindowRequest request{.kind = Kind::kAccumulate,
                              .type = static_cast<std::uint8_t>(DataType::kInt32),
                              .op = static_cast<std::uint8_t>(ReduceOp::kSum),
                              .bytes = kLarge};
  REQUIRE(comms[1].send(&request, sizeof request, DataType::kUint8, Rank{0}));
  // The second one is taken for the data, and is no data of that size. The error that it causes may
  // be known here before the send returns.
  (void)comms[1].send(&request, sizeof request, DataType::kUint8, Rank{0});
  for (const Deadline end = Deadline::after(std::chrono::seconds(10));
       service->error() == nullptr && !end.passed();)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  CHECK(service->error() != nullptr);
  CHECK(most_memory() - before < kLarge / 2);
  service->abandon({Code::kAborted, "the test is over"});
}

// The rank that asked has its answer after the first, and frees the memory for it.
TEST_CASE("an answer that comes twice ends the window") {
  const std::size_t bytes =
      GENERATE(std::size_t{8}, std::size_t{200});  // In the request, and behind it.
  CAPTURE(bytes);
  Settings settings;
  settings.transport = "tcp";
  auto comms = Communicator::in_process(2, settings).value();
  std::vector<std::byte> memory(kBytes), sent(bytes), answer(bytes);
  auto service =
      std::make_shared<WindowService>(Insides::of(comms[0]), std::vector<bool>{false, true},
                                      WindowMemory{memory, nullptr, [](int, int) {}, [] {}});
  REQUIRE(service->begin());
  std::jthread asks([&] { (void)service->ask(1, {.kind = Kind::kGet, .bytes = bytes}, answer); });
  WindowRequest request;
  REQUIRE(comms[1].recv(&request, sizeof request, DataType::kUint8, Rank{0}));
  request.kind = Kind::kData;
  REQUIRE(comms[1].send(&request, sizeof request, DataType::kUint8, Rank{0}));
  if (request.has_data_behind())
    REQUIRE(comms[1].send(sent.data(), bytes, DataType::kUint8, Rank{0}));
  // The error that it causes may be known here before the send returns.
  (void)comms[1].send(&request, sizeof request, DataType::kUint8, Rank{0});
  for (const Deadline end = Deadline::after(std::chrono::seconds(10));
       service->error() == nullptr && !end.passed();)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const std::string said = service->error() == nullptr ? "" : service->error()->to_string();
  service->abandon({Code::kAborted, "the test is over"});
  INFO(said);
  CHECK(said.find("an answer that nobody waits for") != std::string::npos);
}

// To `tutti status` the receive that a service always has is no wait.
TEST_CASE("a window that nobody asks anything waits for nothing") {
  Settings settings;
  settings.transport = "tcp";
  auto comms = Communicator::in_process(2, settings).value();
  std::vector<std::byte> memory(kBytes);
  std::atomic<int> signals{0};
  const auto count = [&](int, int) { signals.fetch_add(1); };
  Communicator::State& state = Insides::of(comms[0]);
  auto service = std::make_shared<WindowService>(state, std::vector<bool>{false, true},
                                                 WindowMemory{memory, nullptr, count, [] {}});
  REQUIRE(service->begin());
  const WindowRequest request{.kind = Kind::kSignal, .number = 3};
  for (int i = 0; i < 3; ++i)
    REQUIRE(comms[1].send(&request, sizeof request, DataType::kUint8, Rank{0}));
  for (const Deadline end = Deadline::after(std::chrono::seconds(20));
       signals.load() < 3 && !end.passed();)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const auto track = exec::flight::read_own(state.executor->flight());
  service->abandon({Code::kAborted, "the test is over"});
  REQUIRE(track);
  for (const exec::flight::Seen& entry : track->entries) {
    INFO(describe(entry));
    CHECK(outcome_name(entry.state) == "ok");
    CHECK(describe(entry) == "recv of 64 uint8 from rank 1");
  }
  CHECK(track->entries.size() == 3);
}

}  // namespace
}  // namespace tutti
