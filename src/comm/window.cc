// Windows: memory that other ranks read and write without its owner's help.
#include "tutti/window.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/fork.h"
#include "base/wait.h"
#include "comm/exchange_over.h"
#include "comm/state.h"
#include "comm/window_service.h"
#include "kernels/host/accumulate.h"
#include "transport/local/segments.h"

namespace tutti {
namespace {

using Kind = WindowRequest::Kind;
using Count = std::atomic<std::uint64_t>;
static_assert(Count::is_always_lock_free);

constexpr std::size_t kPage = 4096;

/// What stands in front of a rank's memory: where it sleeps, and by rank and number the signals
/// that it was sent, each written by one rank.
struct Front {
  Doorbell bell;

  static std::size_t bytes(std::size_t ranks) {
    const std::size_t all = sizeof(Front) + ranks * Window::kSignals * sizeof(Count);
    return (all + kPage - 1) / kPage * kPage;
  }
  Count& count(int from, int number) {
    return reinterpret_cast<Count*>(this + 1)[from * Window::kSignals + number];
  }
  void count_signal(int from, int number, bool fence) {
    Count& counted = count(from, number);
    // relaxed: only that rank writes it. release: what it has put before is there before the
    // signal.
    counted.store(counted.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    notify(bell, fence);
  }
};

/// What an operation touches: `bytes` from `offset` on, and this rank's buffer.
struct Part {
  const void* own;
  std::size_t bytes, offset;
};

/// What a rank tells the others of its memory. Plain data: it travels as bytes.
struct Hello {
  BufferName name;
  std::uint64_t bytes = 0;
  std::uint64_t segment = 0;  // That of `name`, for ranks of its process.
  std::int32_t failed = 0;    // 1: it can't do its part.
  std::int32_t blamed = -1;   // The rank to blame for that; -1: itself.
};

Error refused(std::string_view function, const std::string& what, Rank me = Rank{}) {
  return {Code::kInvalidArgument, fmt::format("{}: {}", function, what), me};
}

/// Over a network what others say may be anything.
Error wrong_memory(int me, int rank, std::size_t size) {
  return {Code::kMismatch,
          fmt::format("window: rank {} describes its memory wrongly: {} bytes", rank, size),
          Rank{me}, Rank{rank}};
}

}  // namespace

struct Window::Parts {
  std::shared_ptr<void> memory;  // Goes last, behind what uses it.
  // Memory of ranks in this process, so that it outlives them here, as that of others does.
  std::vector<segments::Mapping> mapped;
  Communicator comm;
  std::shared_ptr<Dependents> parent;      // That of the communicator that it was made of.
  const std::size_t stream_from_bytes;     // Copies of so many go past the cache.
  std::vector<std::size_t> bytes;          // By rank.
  std::vector<std::byte*> fronts;          // By rank, where they are here; null: far.
  std::vector<std::uint64_t> taken;        // By rank and number, signals waited for.
  std::shared_ptr<WindowService> service;  // Null: all ranks are near.
  const std::size_t front_bytes;           // Before each rank's memory.
  const std::uint32_t forks = fork_count();

  Parts(Communicator own, std::shared_ptr<Dependents> dependents)
      : comm(std::move(own)),
        parent(std::move(dependents)),
        stream_from_bytes(state().executor->messages().stream_from_bytes()),
        front_bytes(Front::bytes(static_cast<std::size_t>(ranks()))) {
    parent->add(*state().executor);
  }
  Parts(const Parts&) = delete;
  Parts& operator=(const Parts&) = delete;
  ~Parts() {
    parent->remove(*state().executor);
    // In a forked child the window is the parent's.
    if (service != nullptr && forks == fork_count())
      service->abandon(
          {Code::kAborted,
           "window: a rank has destroyed its window while others had theirs; close ends "
           "it on all",
           state().me, state().me});
  }

  Communicator::State& state() const { return Insides::of(comm); }
  int me() const { return state().me.value; }
  int ranks() const { return state().rank_count; }
  std::size_t bytes_of(int rank) const { return bytes[static_cast<std::size_t>(rank)]; }
  std::size_t most_bytes() const { return static_cast<std::size_t>(PTRDIFF_MAX) - front_bytes; }
  Front* front(int rank) const {
    return reinterpret_cast<Front*>(fronts[static_cast<std::size_t>(rank)]);
  }
  std::byte* data(int rank) const {
    std::byte* const at = fronts[static_cast<std::size_t>(rank)];
    return at == nullptr ? nullptr : at + front_bytes;
  }

  Status make(std::size_t own_bytes);
  Result<std::vector<Hello>> meet(Hello mine, Status so_far, const char* what);
  Status map(const std::vector<Hello>& all);
  Status serve();
  /// Ok, or why `function` can't be called for that rank, or that part of its memory, or signal.
  Status check(std::string_view function, Rank peer) const;
  Status check(std::string_view function, Rank peer, const Part& part) const;
  Status check(std::string_view function, Rank peer, int number) const;
  /// What the number at `offset` there was before.
  Result<std::int64_t> exchange(std::string_view function, Kind kind, const Operands& operands,
                                Rank to, std::size_t offset) const;
  void copy(std::byte* to, const std::byte* from, std::size_t size) const;
  Status look(int from, const std::string& waiting) const;
  Status wait_signal(int from, int number, std::uint64_t goal) const;
};

/// Makes this rank's memory and finds the others'. What one rank can't have is an error on all.
Status Window::Parts::make(std::size_t own_bytes) {
  Status made;
  if (own_bytes > most_bytes()) {
    made = refused("window", fmt::format("{} bytes are more than memory can hold", own_bytes),
                   state().me);
  } else if (auto allocated = mem_alloc(front_bytes + own_bytes); allocated) {
    memory.reset(*allocated, [](void* data) { (void)mem_free(data); });
  } else {
    made = std::move(allocated.error());
  }
  Hello mine{.name = {}, .bytes = own_bytes};
  if (made) {
    mine.name = state().executor->endpoint().name(memory.get(), front_bytes + own_bytes);
    mine.segment = segments::id_of(memory.get());
  }
  TUTTI_TRY(const auto all, meet(mine, std::move(made), "has no memory for it"));
  TUTTI_RETURN_IF_ERROR(meet(mine, map(all), "can't map the others' memory"));
  for (const Hello& one : all) bytes.push_back(one.bytes);
  taken.assign(static_cast<std::size_t>(ranks()) * kSignals, 0);
  return serve();
}

/// What all ranks say of themselves; an error if one has failed so far, with this text on others.
Result<std::vector<Hello>> Window::Parts::meet(Hello mine, Status so_far, const char* what) {
  std::vector<Hello> all(static_cast<std::size_t>(ranks()));
  if (!so_far) mine.failed = 1, mine.blamed = so_far.error().peer.value;
  TUTTI_RETURN_IF_ERROR(comm.all_gather(&mine, all.data(), sizeof(Hello), DataType::kUint8));
  TUTTI_RETURN_IF_ERROR(std::move(so_far));
  const auto bad = std::ranges::find_if(all, [](const Hello& one) { return one.failed != 0; });
  if (bad == all.end()) return all;
  const auto rank = static_cast<int>(bad - all.begin());
  const int blamed = known_rank(Rank{bad->blamed}, ranks()).value < 0 ? rank : bad->blamed;
  const std::string why = blamed == rank ? "" : fmt::format(", because of rank {}", blamed);
  return Error{Code::kSystem, fmt::format("window: rank {} {}{}", rank, what, why), state().me,
               Rank{blamed}};
}

Status Window::Parts::map(const std::vector<Hello>& all) {
  Endpoint& endpoint = state().executor->endpoint();
  const auto& identities = state().identities;
  fronts.assign(all.size(), nullptr);
  fronts[static_cast<std::size_t>(me())] = static_cast<std::byte*>(memory.get());
  for (int rank = 0; rank < ranks(); ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (all[at].bytes > most_bytes()) return wrong_memory(me(), rank, all[at].bytes);
    if (rank == me() || !endpoint.near(me(), rank)) continue;
    const std::size_t size = front_bytes + all[at].bytes;
    if (identities[at].process != identities[static_cast<std::size_t>(me())].process) {
      const exec::ProcessWait shown(endpoint.region(), me(), rank);
      TUTTI_TRY(fronts[at], endpoint.map(rank, all[at].name, size));
      continue;
    }
    TUTTI_TRY(const auto here, segments::serve());
    TUTTI_TRY(auto mapping, segments::fetch({.address = here, .rank = rank}, all[at].segment,
                                            Deadline::after(state().settings.timeout)));
    mapping.close_fd();
    if (mapping.bytes() < size) return wrong_memory(me(), rank, all[at].bytes);
    fronts[at] = mapping.data();
    mapped.push_back(std::move(mapping));
  }
  return ok();
}

/// Where some ranks are far: lets them reach this rank's memory.
Status Window::Parts::serve() {
  std::vector<bool> far;
  for (const std::byte* front : fronts) far.push_back(front == nullptr);
  if (std::ranges::count(far, true) == 0) return ok();
  Front* const own = front(me());
  const bool fence = state().executor->team().fence;
  auto made = std::make_shared<WindowService>(
      state(), std::move(far),
      WindowMemory{
          .data = {data(me()), bytes_of(me())},
          .keeps = memory,
          .signalled = [own, fence](int from,
                                    int number) { own->count_signal(from, number, fence); },
          .failed = [own] { ring(own->bell); }});
  TUTTI_RETURN_IF_ERROR(made->begin());
  service = std::move(made);
  return ok();
}

Status Window::Parts::check(std::string_view function, Rank peer) const {
  if (in_group()) return refused(function, "it can't be called in a group", state().me);
  const auto at = static_cast<std::size_t>(peer.value);  // A negative one is a large one.
  if (at < fronts.size() && fronts[at] != nullptr) [[likely]]
    return ok();
  if (at < fronts.size()) return Progress::may_wait(function);
  return refused(function, fmt::format("rank {} is not one of the {} ranks", peer.value, ranks()),
                 state().me);
}

Status Window::Parts::check(std::string_view function, Rank peer, const Part& part) const {
  TUTTI_RETURN_IF_ERROR(check(function, peer));
  const std::size_t all = bytes_of(peer.value);
  if (part.offset > all || part.bytes > all - part.offset)
    return refused(function,
                   fmt::format("{} bytes at {} of the {} bytes of rank {}", part.bytes, part.offset,
                               all, peer.value),
                   state().me);
  if (part.own == nullptr && part.bytes != 0)
    return refused(function, "the buffer is null, but the size is not 0", state().me);
  return ok();
}

Status Window::Parts::check(std::string_view function, Rank peer, int number) const {
  TUTTI_RETURN_IF_ERROR(check(function, peer));
  if (number >= 0 && number < kSignals) return ok();
  return refused(function,
                 fmt::format("there is no signal {}; numbers are below {}", number, kSignals),
                 state().me);
}

Result<std::int64_t> Window::Parts::exchange(std::string_view function, Kind kind,
                                             const Operands& operands, Rank to,
                                             std::size_t offset) const {
  std::int64_t before = 0;
  TUTTI_RETURN_IF_ERROR(check(function, to, {&before, sizeof(before), offset}));
  if (offset % sizeof(before) != 0)
    return refused(function, fmt::format("offset {} is not a multiple of 8", offset), state().me);
  if (std::byte* const there = data(to.value); there != nullptr)
    return tutti::exchange(kind, operands, there + offset);
  WindowRequest request{.kind = kind, .offset = offset, .bytes = sizeof(before)};
  std::memcpy(request.small.data(), &operands, sizeof(operands));
  TUTTI_RETURN_IF_ERROR(
      service->ask(to.value, request, std::as_writable_bytes(std::span(&before, 1))));
  return before;
}

void Window::Parts::copy(std::byte* to, const std::byte* from, std::size_t size) const {
  if (size < stream_from_bytes)
    std::memcpy(to, from, size);
  else
    exec::Messages::copy(to, from, size, true);
}

/// Ok, or why waiting for that rank is in vain.
Status Window::Parts::look(int from, const std::string& waiting) const {
  if (service == nullptr) return state().executor->look_at(std::span(&from, 1), waiting);
  const Error* const failed = service->error();
  return failed != nullptr ? Status(copy_of(*failed)) : ok();
}

Status Window::Parts::wait_signal(int from, int number, std::uint64_t goal) const {
  Front& mine = *front(me());
  const Count& count = mine.count(from, number);
  // acquire: pairs with the release in count_signal.
  const auto ready = [&] { return count.load(std::memory_order_acquire) >= goal; };
  const exec::HostExecutor& executor = *state().executor;
  const std::chrono::milliseconds limit = state().settings.timeout;
  const auto start = std::chrono::steady_clock::now();
  const auto waiting = [&] {
    return fmt::format("wait_signal: signal {} of rank {}", number, from);
  };
  Status why;
  const auto check_health = [&] {
    why = look(from, waiting());
    if (why && std::chrono::steady_clock::now() - start > limit)
      why = executor.with_place(
          {Code::kTimeout,
           fmt::format("{} has not come within {} ms; TUTTI_TIMEOUT_MS sets the "
                       "limit",
                       waiting(), limit.count()),
           state().me, Rank{from}});
    return static_cast<bool>(why);
  };
  const auto sleep = [&](auto& is_ready, auto longest) {
    return sleep_on(mine.bell, is_ready, longest, executor.team().fence);
  };
  // Once more behind a failure: a rank may have signalled before it left.
  if (wait_until(
          executor.wait(), ready, [] {}, check_health, sleep) ||
      ready())
    return ok();
  return why;
}

Window::Window(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
Window::Window(Window&&) noexcept = default;
Window& Window::operator=(Window&&) noexcept = default;
Window::~Window() = default;

Result<Window> Window::create(Communicator& comm, std::size_t bytes) {
  if (in_group()) return refused("window", "it can't be made in a group", comm.rank());
  TUTTI_TRY(auto own, comm.duplicate());
  return walled("window", [&]() -> Result<Window> {
    auto parts = std::make_unique<Parts>(std::move(own), Insides::of(comm).dependents);
    TUTTI_RETURN_IF_ERROR(parts->state().guarded("window", [&] { return parts->make(bytes); }));
    return Window(std::move(parts));
  });
}

/// The body of a function: what it returns, or the error of a window that is closed.
template <class Body>
auto Window::on(std::string_view function, Body&& body) const {
  using Outcome = std::invoke_result_t<Body, Parts&>;
  if (parts_ == nullptr) [[unlikely]]
    return walled(function, [&]() -> Outcome {
      return refused(function, "this window is closed, or was moved from");
    });
  return walled(function, [&]() -> Outcome {
    if (parts_->forks != fork_count())
      return refused(function, "the window is the parent process's, not a forked child's");
    return body(*parts_);
  });
}

Status Window::close() {
  return on("close", [this](Parts& open) -> Status {
    TUTTI_RETURN_IF_ERROR(open.check("close", open.state().me));
    TUTTI_RETURN_IF_ERROR(Progress::may_wait("close"));
    const auto mine = std::move(parts_);  // It goes, however this ends.
    if (mine->service != nullptr) TUTTI_RETURN_IF_ERROR(mine->service->end());
    return mine->comm.barrier();
  });
}

std::byte* Window::data() const {
  return parts_ == nullptr ? nullptr : address_of(parts_->state().me);
}

std::size_t Window::bytes(Rank of) const {
  const bool there = parts_ != nullptr && of.value >= 0 && of.value < parts_->ranks();
  return there ? parts_->bytes_of(of.value) : 0;
}

std::byte* Window::address_of(Rank of) const {
  return bytes(of) != 0 ? parts_->data(of.value) : nullptr;
}

Status Window::put(const void* data, std::size_t bytes, Rank to, std::size_t offset) {
  return on("put", [&](const Parts& mine) -> Status {
    TUTTI_RETURN_IF_ERROR(mine.check("put", to, {data, bytes, offset}));
    if (bytes == 0) return ok();
    const auto* const from = static_cast<const std::byte*>(data);
    if (std::byte* const there = mine.data(to.value); there != nullptr)
      return mine.copy(there + offset, from, bytes), ok();
    return mine.service->send(to.value, {.kind = Kind::kPut, .offset = offset}, {from, bytes});
  });
}

Status Window::get(void* data, std::size_t bytes, Rank from, std::size_t offset) {
  return on("get", [&](const Parts& mine) -> Status {
    TUTTI_RETURN_IF_ERROR(mine.check("get", from, {data, bytes, offset}));
    if (bytes == 0) return ok();
    auto* const to = static_cast<std::byte*>(data);
    if (const std::byte* const there = mine.data(from.value); there != nullptr)
      return mine.copy(to, there + offset, bytes), ok();
    return mine.service->ask(from.value, {.kind = Kind::kGet, .offset = offset, .bytes = bytes},
                             {to, bytes});
  });
}

Status Window::accumulate(const void* data, std::size_t count, DataType type, ReduceOp op, Rank to,
                          std::size_t offset) {
  return on("accumulate", [&](const Parts& mine) -> Status {
    const std::size_t element = size_of(type);
    const auto bad = [&](const std::string& what) {
      return refused("accumulate", what, mine.state().me);
    };
    if (!kernels::may_accumulate(type, op))
      return bad(fmt::format("{} of {} can't be accumulated", to_string(op), to_string(type)));
    if (offset % element != 0)
      return bad(fmt::format("offset {} is not a multiple of the {} bytes of {}", offset, element,
                             to_string(type)));
    if (count > static_cast<std::size_t>(PTRDIFF_MAX) / element)
      return bad(fmt::format("{} elements are more than memory can hold", count));
    const std::size_t bytes = count * element;
    TUTTI_RETURN_IF_ERROR(mine.check("accumulate", to, {data, bytes, offset}));
    if (bytes == 0) return ok();
    const auto* const from = static_cast<const std::byte*>(data);
    if (std::byte* const there = mine.data(to.value); there != nullptr)
      return kernels::accumulate(type, op, from, there + offset, count), ok();
    return mine.service->send(to.value,
                              {.kind = Kind::kAccumulate,
                               .type = static_cast<std::uint8_t>(type),
                               .op = static_cast<std::uint8_t>(op),
                               .offset = offset},
                              {from, bytes});
  });
}

Result<std::int64_t> Window::fetch_add(std::int64_t value, Rank to, std::size_t offset) {
  return on("fetch_add", [&](const Parts& mine) {
    return mine.exchange("fetch_add", Kind::kFetchAdd, {.value = value}, to, offset);
  });
}

Result<std::int64_t> Window::compare_swap(std::int64_t expected, std::int64_t value, Rank to,
                                          std::size_t offset) {
  return on("compare_swap", [&](const Parts& mine) {
    return mine.exchange("compare_swap", Kind::kCompareSwap, {value, expected}, to, offset);
  });
}

Status Window::flush(Rank to) {
  return on("flush", [&](const Parts& mine) -> Status {
    TUTTI_RETURN_IF_ERROR(mine.check("flush", to));
    // To a near rank the copy is done: whatever this rank tells another behind it comes behind it.
    if (mine.front(to.value) != nullptr) return ok();
    return mine.service->ask(to.value, {.kind = Kind::kFlush}, {});
  });
}

Status Window::signal(Rank to, int number) {
  return on("signal", [&](const Parts& mine) -> Status {
    TUTTI_RETURN_IF_ERROR(mine.check("signal", to, number));
    if (Front* const there = mine.front(to.value); there != nullptr)
      return there->count_signal(mine.me(), number, mine.state().executor->team().fence), ok();
    return mine.service->send(
        to.value, {.kind = Kind::kSignal, .number = static_cast<std::uint16_t>(number)}, {});
  });
}

Status Window::wait_signal(Rank from, int number, std::uint64_t count) {
  return on("wait_signal", [&](Parts& mine) -> Status {
    TUTTI_RETURN_IF_ERROR(mine.check("wait_signal", from, number));
    TUTTI_RETURN_IF_ERROR(Progress::may_wait("wait_signal"));
    std::uint64_t& taken = mine.taken[static_cast<std::size_t>(from.value) * kSignals +
                                      static_cast<std::size_t>(number)];
    if (count > UINT64_MAX - taken)
      return refused("wait_signal", fmt::format("{} signals are more than can be counted", count),
                     mine.state().me);
    TUTTI_RETURN_IF_ERROR(mine.wait_signal(from.value, number, taken + count));
    taken += count;
    return ok();
  });
}

}  // namespace tutti
