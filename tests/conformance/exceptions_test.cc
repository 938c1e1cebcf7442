// Memory runs out at any moment: that is an error of the call, on all ranks, and nothing is thrown.
#include <atomic>
#include <cstdlib>
#include <new>
#include <numeric>
#include <thread>
#include <utility>

#include "base/folder.h"
#include "base/wall.h"
#include "bootstrap/sockets.h"
#include "support/catch.h"
#include "support/transports.h"
#include "tutti/communicator.h"
#include "tutti/window.h"

namespace {

// Allocations of this thread until one fails; 0: none does.
thread_local long until_failure = 0;
thread_local bool all_later_ones = false;  // Fail as well, until this is false again.
thread_local bool failing = false;         // They do.

bool fails() {
  if (until_failure > 0 && --until_failure == 0) failing = true;
  return std::exchange(failing, failing && all_later_ones);
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (fails()) return nullptr;
  if (alignment <= alignof(std::max_align_t)) return std::malloc(bytes == 0 ? 1 : bytes);
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void* const memory = allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Instead of the library's own, for the whole program. Those that are missing call these; those
// that don't throw are here, too, as a sanitizer has its own of them.
void* operator new(std::size_t bytes) {
  return allocate_or_throw(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { std::free(memory); }

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kF32 = DataType::kFloat32;
constexpr auto kLimit = 60s;  // Every call's; ranks are told of a failure well before it.
constexpr auto kToldWithin = 40s;

enum class Failing { kOne, kAllFromThenOn };

void begin_shortage(long n, Failing which) {
  until_failure = n;
  all_later_ones = which == Failing::kAllFromThenOn;
}
void end_shortage() {
  until_failure = 0;
  all_later_ones = failing = false;
}

/// Makes the nth allocation of this thread fail, and all later ones if so said, while it lives.
class Shortage {
 public:
  Shortage(long n, Failing which) { begin_shortage(n, which); }
  ~Shortage() { end_shortage(); }
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;
  bool has_struck() const { return until_failure == 0; }
};

/// The allocations to fail: each where one fails. Where all later ones fail, too, most are alike.
long next(long n, Failing which) { return which == Failing::kOne || n < 24 ? n + 1 : n + n / 8; }

std::string text(const Status& status) { return status ? "ok" : status.error().to_string(); }

/// A rank's buffers, which are not of the library.
struct Buffers {
  std::vector<float> in = std::vector<float>(90'000, 1), out = std::vector<float>(180'000);
};
/// What a rank does, in one of these tests. Allocates nothing by itself.
using Part = std::function<Status(Communicator&, Buffers&)>;

/// A failure of the part ends the communicator; or else the communicator may go on.
enum class After { kEnded, kAny };

/// Both ranks do their part; rank 0 with its nth allocation failing. Returns whether there were as
/// many.
bool try_with_failure(const Settings& settings, long n, Failing which, After after,
                      const Part& part) {
  auto comms = Communicator::in_process(2, settings);
  if (!comms) FAIL(comms.error().to_string());
  Status other, other_later;
  Buffers buffers[2];
  std::chrono::steady_clock::duration took{};
  std::thread second([&] {
    const auto begin = std::chrono::steady_clock::now();
    other = part((*comms)[1], buffers[1]);
    other_later = (*comms)[1].barrier();
    took = std::chrono::steady_clock::now() - begin;
  });
  Status own;
  bool struck = false, thrown = false;
  try {
    const Shortage shortage(n, which);
    own = part((*comms)[0], buffers[0]);
    struck = shortage.has_struck();
  } catch (const std::exception&) {
    thrown = true;
  }
  if (thrown) (*comms)[0].abort("thrown");
  const Status later = (*comms)[0].barrier();
  second.join();
  INFO("allocation " << n << "; rank 0: " << text(own) << "; rank 1: " << text(other));
  INFO("then, rank 0: " << text(later) << "; rank 1: " << text(other_later));
  CHECK_FALSE(thrown);
  if (!own) {
    CHECK(own.error().what.find("out of memory") != std::string::npos);
    CHECK_FALSE(other);
    if (after == After::kEnded) CHECK_FALSE(later);
  }
  CHECK(bool(later) == bool(other_later));
  if (!later) CHECK(later.error().code != Code::kTimeout);
  if (!other) REQUIRE(other.error().code != Code::kTimeout);
  REQUIRE(took < kToldWithin);
  return struck;
}

/// All allocations of the part, one after another.
void every_allocation(const Settings& settings, After after, const Part& part) {
  for (const Failing which : {Failing::kOne, Failing::kAllFromThenOn}) {
    INFO((which == Failing::kOne ? "one fails" : "all fail from one on"));
    long n = 1;
    // A failure takes UCX a second: it closes its connections one after another.
    const long step = settings.transport == "ucx" ? 53 : 0;
    while (try_with_failure(settings, n, which, after, part))
      n = step != 0 ? n + step : next(n, which);
    INFO(n - 1 << " allocations");
    CHECK(n > 10);
    CHECK(n < 5000);
  }
}

Status all_kinds_of_calls(Communicator& comm, Buffers& buffers) {
  auto& [in, out] = buffers;
  const Rank other{1 - comm.rank().value};
  TUTTI_RETURN_IF_ERROR(comm.all_reduce(in.data(), out.data(), 10, kF32, ReduceOp::kSum));
  TUTTI_RETURN_IF_ERROR(comm.all_reduce(in.data(), out.data(), in.size(), kF32, ReduceOp::kSum));
  TUTTI_RETURN_IF_ERROR(comm.all_gather(in.data(), out.data(), in.size(), kF32));
  const std::array<std::size_t, 2> counts{30'000, 50'000};
  const Blocks blocks{counts, {}};
  TUTTI_RETURN_IF_ERROR(comm.all_gather_v(in.data(), out.data(), blocks, kF32));
  TUTTI_RETURN_IF_ERROR(comm.call({.collective = Collective::kBroadcast,
                                   .input = in.data(),
                                   .output = out.data(),
                                   .count = in.size(),
                                   .type = kF32,
                                   .algorithm = "binomial"}));
  if (comm.rank().value == 0) {
    TUTTI_RETURN_IF_ERROR(comm.send(in.data(), in.size(), kF32, other));
  } else {
    TUTTI_RETURN_IF_ERROR(comm.recv(out.data(), in.size(), kF32, other));
  }
  Group group;
  TUTTI_RETURN_IF_ERROR(comm.send(in.data(), 100, kF32, other));
  TUTTI_RETURN_IF_ERROR(comm.recv(out.data(), 100, kF32, other));
  return group.end();
}

TEST_CASE("memory that runs out in a call ends it on all ranks") {
  for (const Transport* transport : transports_here()) {
    Settings settings;
    settings.transport = transport->name;
    settings.timeout = kLimit;
    INFO(transport->name);
    every_allocation(settings, After::kEnded, all_kinds_of_calls);
  }
}

/// What a rank asks of another's window: rank 0, with its nth allocation failing. Returns whether
/// there were as many.
bool ask_with_failure(long n, Failing which) {
  Settings settings;
  settings.transport = "tcp";  // Others copy.
  settings.timeout = kLimit;
  auto comms = Communicator::in_process(2, settings).value();
  Status other;
  std::thread second([&] {
    auto window = Window::create(comms[1], 4096).value();
    other = window.signal(Rank{0});
    if (other) other = window.wait_signal(Rank{0});
    if (other) other = window.close();
  });
  auto window = Window::create(comms[0], 4096).value();
  std::vector<std::byte> data(200);
  const auto ask = [&]() -> Status {
    TUTTI_RETURN_IF_ERROR(window.put(data.data(), data.size(), Rank{1}, 0));
    TUTTI_RETURN_IF_ERROR(window.get(data.data(), data.size(), Rank{1}, 0));
    TUTTI_TRY([[maybe_unused]] const auto before, window.fetch_add(1, Rank{1}, 0));
    return window.flush(Rank{1});
  };
  Status own = window.wait_signal(Rank{1});
  bool struck = false;
  if (own) {
    const Shortage shortage(n, which);
    own = ask();
    struck = shortage.has_struck();
  }
  if (own) own = window.signal(Rank{1});
  const Status later = own ? window.close() : window.flush(Rank{1});
  second.join();
  INFO("allocation " << n << "; rank 0: " << text(own) << ", then " << text(later)
                     << "; rank 1: " << text(other));
  CHECK(bool(own) == bool(other));
  CHECK(bool(own) == bool(later));
  if (!own) CHECK(own.error().what.find("out of memory") != std::string::npos);
  if (!other) REQUIRE(other.error().code != Code::kTimeout);
  return struck;
}

TEST_CASE("memory that runs out where a window is asked ends it on all ranks") {
  for (const Failing which : {Failing::kOne, Failing::kAllFromThenOn}) {
    INFO((which == Failing::kOne ? "one fails" : "all fail from one on"));
    long n = 1;
    while (ask_with_failure(n, which)) n += which == Failing::kOne ? 1 : 4;
    CHECK(n > 10);
    CHECK(n < 1000);
  }
}

/// Waits for the first call, starts others and messages, and waits for them.
Status asynchronous(Communicator& comm, Work first) {
  std::vector<float> in(90'000, 1), out(90'000), more(90'000);
  const Rank other{1 - comm.rank().value};
  Status status = first.wait();
  std::vector<Work> works;
  const auto add = [&](Result<Work> work) {
    if (work) works.push_back(*std::move(work));
    if (!work && status) status = std::move(work.error());
  };
  add(comm.start_all_reduce(in.data(), out.data(), in.size(), kF32, ReduceOp::kSum));
  add(comm.start_send(in.data(), in.size(), kF32, other));
  add(comm.start_recv(more.data(), in.size(), kF32, other));
  for (Work& work : works) {
    Status outcome = work.wait();
    if (!outcome && status) status = std::move(outcome);
  }
  return status;
}

/// One call after another, of which a rank starts the first before it comes here.
void wait_without_memory(std::vector<Communicator>& comms, long n, Failing which, bool& failed) {
  Status other;
  const auto begin = std::chrono::steady_clock::now();
  float one = 1, two = 2;
  auto zeroth = comms[0].start_all_reduce(&one, &one, 1, kF32, ReduceOp::kSum);
  REQUIRE(zeroth);
  // It can't be over yet: it is the progress thread that lacks memory from then on.
  zeroth->then([=](const Status&) { begin_shortage(n, which); });
  auto first = comms[1].start_all_reduce(&two, &two, 1, kF32, ReduceOp::kSum);
  REQUIRE(first);
  std::thread second([&] { other = asynchronous(comms[1], *first); });
  const Status own = asynchronous(comms[0], *zeroth);
  second.join();
  INFO("allocation " << n << "; rank 0: " << text(own) << "; rank 1: " << text(other));
  // The thread carries both ranks on: either may be the one that lacked memory.
  CHECK(bool(own) == bool(other));
  failed = !own;
  if (failed) {
    CHECK((own.error().code == Code::kSystem || other.error().code == Code::kSystem));
    CHECK(own.error().code != Code::kTimeout);
    CHECK(other.error().code != Code::kTimeout);
  }
  REQUIRE(std::chrono::steady_clock::now() - begin < kToldWithin);
}

/// The end of a shortage on the progress thread.
void progress_thread_has_memory() {
  auto comms = Communicator::in_process(1);
  REQUIRE(comms);
  float one = 1;
  auto work = comms->front().start_all_reduce(&one, &one, 1, kF32, ReduceOp::kSum);
  REQUIRE(work);
  work->then([](const Status&) { end_shortage(); });
  (void)work->wait();
}

void without_memory_on_the_progress_thread(Failing which) {
  for (const Transport* transport : transports_here()) {
    // Not covered yet: it may take until the deadline.
    if (transport->name == "ucx" && which == Failing::kAllFromThenOn) continue;
    Settings settings;
    settings.transport = transport->name;
    settings.timeout = kLimit;
    INFO(transport->name);
    long failures = 0;
    for (long n = 1; n < 400; n = transport->name == "ucx" || n >= 60 ? n + 17 : next(n, which)) {
      auto comms = Communicator::in_process(2, settings);
      if (!comms) FAIL(comms.error().to_string());
      bool failed = false;
      wait_without_memory(*comms, n, which, failed);
      failures += failed;
      progress_thread_has_memory();
      for (Communicator& comm : *comms) {
        if (!failed) continue;
        const Status later = comm.barrier();
        REQUIRE_FALSE(later);
        CHECK(later.error().code != Code::kTimeout);
      }
    }
    CHECK(failures > 0);
  }
}

TEST_CASE("memory that runs out on the progress thread ends the call on all ranks") {
  without_memory_on_the_progress_thread(Failing::kOne);
}

TEST_CASE("memory that stays out on the progress thread ends the call on all ranks") {
  without_memory_on_the_progress_thread(Failing::kAllFromThenOn);
}

TEST_CASE("memory that runs out in a split ends it on all ranks") {
  Settings settings;
  settings.transport = "shared_memory";
  settings.timeout = kLimit;
  every_allocation(settings, After::kAny, [](Communicator& comm, Buffers&) -> Status {
    TUTTI_TRY(auto part, comm.split(0, 0));
    return part.barrier();
  });
}

TEST_CASE("an error that finds no memory keeps its code and its ranks") {
  static_assert(sizeof(Status) == sizeof(void*));
  std::vector<Status> made(3);
  const std::string longer(100, 'a');
  {
    Error errors[] = {{Code::kTimeout, longer, Rank{4095}, Rank{0}},
                      {Code::kInternal, longer},
                      {Code::kPeerFailed, longer, Rank{1}, Rank{2}}};
    const Shortage shortage(1, Failing::kAllFromThenOn);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = std::move(errors[i]);
    const Error& shown = made[0].error();  // Another one is looked at meanwhile.
    if (shown.code != Code::kTimeout || made[1].error().code != Code::kInternal ||
        shown.code != Code::kTimeout)
      made.clear();
  }
  REQUIRE(made.size() == 3);
  for (const Status& status : made) {
    CHECK_FALSE(status);
    CHECK(status.error().what == "out of memory");
  }
  CHECK(made[0].error().rank == Rank{4095});
  CHECK(made[0].error().peer == Rank{0});
  CHECK(made[1].error().rank == Rank{-1});
  CHECK(made[1].error().peer == Rank{-1});
  // With memory again a status keeps what its owner adds, wherever it goes.
  made[2].error().what += longer;
  for (int others = 0; others < 20; ++others) (void)std::as_const(made[others % 2]).error();
  const Status moved = std::move(made[2]);
  CHECK(made[2]);
  CHECK(moved.error().to_string() == "rank 1: peer failed: out of memory" + longer);
  made[0] = std::move(made[1]);
  CHECK(made[0].error().code == Code::kInternal);
}

// libstdc++'s iterators end the process.
TEST_CASE("memory that runs out while a folder is read is an error") {
  const std::string folder = "/proc/self";
  Status read;
  bool struck = true;
  for (long n = 1; struck; ++n) {
    INFO("allocation " << n);
    {
      const Shortage shortage(n, Failing::kOne);
      read = walled("a folder", [&]() -> Status {
        TUTTI_TRY([[maybe_unused]] const auto names, names_in(folder));
        return ok();
      });
      struck = shortage.has_struck();
    }
    CHECK(bool(read) == !struck);
    REQUIRE(n < 1000);
  }
}

TEST_CASE("memory that runs out where ranks are threads ends all of them") {
  Settings settings;
  settings.timeout = kLimit;
  for (const Failing which : {Failing::kOne, Failing::kAllFromThenOn}) {
    bool struck = true;
    for (long n = 1; struck; n = next(n, which)) {
      INFO("allocation " << n << (which == Failing::kOne ? "" : " and all later ones"));
      const auto begin = std::chrono::steady_clock::now();
      bool thrown = false, made = true;
      try {
        const Shortage shortage(n, which);
        made = bool(Communicator::in_process(3, settings));
        struck = shortage.has_struck();
      } catch (const std::exception&) {
        thrown = true;
      }
      CHECK_FALSE(thrown);
      if (which == Failing::kAllFromThenOn && struck) CHECK_FALSE(made);
      REQUIRE(std::chrono::steady_clock::now() - begin < kToldWithin);
      REQUIRE(n < 5000);
    }
  }
}

/// Two ranks meet, one of which lacks memory; `theirs` is the rendezvous of the other one. Returns
/// whether there were as many allocations.
bool join_with_failure(std::shared_ptr<Rendezvous> mine, Rendezvous& theirs, Rank me, long n,
                       Failing which) {
  Settings settings;
  settings.transport = "shared_memory";
  settings.timeout = kLimit;
  Status other;
  const auto begin = std::chrono::steady_clock::now();
  std::thread second([&] {
    auto made = Communicator::create(theirs, Rank{1 - me.value}, 2, settings);
    other = made ? made->barrier() : Status(std::move(made.error()));
  });
  Status own;
  bool struck = false, thrown = false;
  try {
    const Shortage shortage(n, which);
    auto made = Communicator::create(*mine, me, 2, settings);
    if (!made) mine.reset();  // Without memory it may be all that this rank can do.
    struck = shortage.has_struck();
    end_shortage();
    own = made ? made->barrier() : Status(std::move(made.error()));
  } catch (const std::exception&) {
    thrown = true;
    (void)theirs.fail({Code::kAborted, "thrown"});
  }
  second.join();
  INFO("allocation " << n << "; this rank: " << text(own) << "; the other: " << text(other));
  CHECK_FALSE(thrown);
  if (!own) CHECK_FALSE(other);
  if (!other) CHECK(other.error().code != Code::kTimeout);
  REQUIRE(std::chrono::steady_clock::now() - begin < kToldWithin);
  return struck;
}

TEST_CASE("memory that runs out while joining is told to the others") {
  for (const Failing which : {Failing::kOne, Failing::kAllFromThenOn}) {
    INFO((which == Failing::kOne ? "one fails" : "all fail from one on"));
    bool struck = true;
    long n = 0;
    while (struck) {
      n = next(n, which);
      const auto meeting = memory_rendezvous();
      struck = join_with_failure(meeting, *meeting, Rank{0}, n, which);
    }
    CHECK(n < 5000);
  }
}

TEST_CASE("memory that runs out at a client of a store is told to the others") {
  int port = 0;
  {
    const auto listening = bootstrap::listen_at("127.0.0.1", 0, Deadline::after(10s));
    REQUIRE(listening);
    port = listening->port;
  }
  bool struck = true;
  for (long n = 1; struck; n = next(n, Failing::kAllFromThenOn)) {
    auto host = tcp_rendezvous("127.0.0.1", port, Rank{0}, Deadline::after(kLimit), "secret");
    REQUIRE(host);
    auto client = tcp_rendezvous("127.0.0.1", port, Rank{1}, Deadline::after(kLimit), "secret");
    REQUIRE(client);
    struck = join_with_failure(*std::move(client), **host, Rank{1}, n, Failing::kAllFromThenOn);
    REQUIRE(n < 5000);
  }
}

}  // namespace
}  // namespace tutti::test
