#include "exec/flight/recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <bitset>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <utility>

#include "base/fork.h"
#include "exec/flight/place.h"
#include "exec/flight/reader.h"
#include "exec/flight/spans.h"
#include "exec/flight/trace_file.h"

namespace tutti::exec::flight {
namespace {

/// A recorder whose calls are still to be added to a trace, and what the program adds to them.
struct TracedRecorder {
  Recorder* recorder;
  std::vector<std::shared_ptr<Spans::Buffer>> rows;
};

/// This process's record.
struct File {
  std::mutex mutex;
  Place place;
  FileHead<Word>* head = nullptr;
  std::bitset<kTracks> used;
  std::uint64_t serial = 0;  // The last one given.
  std::vector<TracedRecorder> traced;
};
File& file() {
  static auto* const instance = new File();  // Never destroyed: threads may outlive main.
  return *instance;
}

/// A child records its own calls in a file of its own. The parent's mapping stays: a communicator
/// of the parent that the child destroys unmaps its track.
void forget_parents() {
  file().place = {};
  file().head = nullptr;
  file().used.reset();
  file().traced.clear();
  begin_traces_anew();
}
const HeldAcrossFork file_held(
    ForkOrder::kFlight, []() -> std::mutex& { return file().mutex; }, forget_parents);

template <std::size_t words>
void put(std::array<Word, words>& to, std::string_view text) {
  std::array<std::uint64_t, words> packed{};
  std::memcpy(packed.data(), text.data(), std::min(text.size(), sizeof(packed)));
  // relaxed: the caller publishes the text with a store of its own.
  for (std::size_t i = 0; i < words; ++i) to[i].store(packed[i], std::memory_order_relaxed);
}

/// At the end of a process that is not killed.
void remove_file() {
  const std::lock_guard lock(file().mutex);
  file().place.remove();
}

/// Makes the file if there is none. False: the system refuses one; then calls are recorded where
/// nobody else can read them.
bool open_file(File& file, const About& about) {
  if (file.place.fd) return true;
  Place place = Place::make(about.folder, about.host);
  if (!place.fd || !place.hold(0, sizeof(FileHead<Word>))) return place.remove(), false;
  MappedMemory head = map_memory(sizeof(FileHead<Word>), MAP_SHARED, place.fd.get());
  if (head == nullptr) return place.remove(), false;
  file.head = new (head.release()) FileHead<Word>();
  file.head->pid.store(static_cast<std::uint64_t>(getpid()), std::memory_order_relaxed);
  // release: a reader that sees the magic sees the pid.
  file.head->magic.store(kMagic, std::memory_order_release);
  file.place = std::move(place);
  static const bool registered = std::atexit(remove_file) == 0;
  static_cast<void>(registered);
  return true;
}

/// A track of the file and its place; null if there is none to be had.
MappedMemory claim(const About& about, int& place) {
  const std::lock_guard lock(file().mutex);
  if (!open_file(file(), about)) return {};
  std::size_t free = 0;
  while (free < kTracks && file().used[free]) ++free;
  if (free == kTracks || !file().place.hold(track_at(free), kTrackBytes)) return {};
  MappedMemory memory = map_memory(kTrackBytes, MAP_SHARED, file().place.fd.get(), track_at(free));
  if (memory == nullptr) return memory;
  file().used.set(free);
  place = static_cast<int>(free);
  return memory;
}

}  // namespace

/// Sees to it that a recorder's calls get into its trace once: when the communicator ends, or with
/// the process, whose other threads may then still run.
struct Traced {
  static void keep(Recorder& recorder) {
    if (recorder.trace_.empty()) return;
    static const bool registered = std::atexit(write_all) == 0;
    static_cast<void>(registered);
    file().traced.push_back({&recorder, {}});
  }
  static void write(Recorder& recorder) noexcept {
    TracedRecorder traced{nullptr, {}};
    {
      const std::lock_guard lock(file().mutex);
      const auto found = find(recorder);
      if (found == file().traced.end()) return;
      traced = std::move(*found);
      file().traced.erase(found);
    }
    // No lock: nobody else ends this recorder, and a file may take long.
    add(traced);
  }
  static std::vector<TracedRecorder>::iterator find(const Recorder& recorder) {
    return std::ranges::find(file().traced, &recorder, &TracedRecorder::recorder);
  }

 private:
  static void add(const TracedRecorder& traced) noexcept {
    const auto track = read_own(*traced.recorder);
    if (track) add_to_trace(*track, traced.rows, traced.recorder->trace_);
  }
  static void write_all() {
    // With the lock none of them is destroyed.
    const std::lock_guard lock(file().mutex);
    for (const TracedRecorder& traced : std::exchange(file().traced, {})) add(traced);
  }
};

std::shared_ptr<Spans::Buffer> add_row(const Recorder& recorder, std::string_view name) {
  const std::lock_guard lock(file().mutex);
  const auto found = Traced::find(recorder);
  if (found == file().traced.end()) return nullptr;
  return found->rows.emplace_back(std::make_shared<Spans::Buffer>(name));
}

Recorder::Recorder(const About& about)
    : owner_(getpid()), folder_(about.folder), trace_(about.trace), memory_(claim(about, place_)) {
  if (memory_ == nullptr) memory_ = map_memory(kTrackBytes, MAP_PRIVATE | MAP_ANONYMOUS);
  if (memory_ == nullptr) throw std::bad_alloc();
  // The memory is zero, which is the initial value of all of it.
  track_ = reinterpret_cast<Track<Word>*>(memory_.get());
  current_ = track_->entries.data();  // Not an entry yet: its number is 0.
  Head<Word>& head = track_->head;
  // relaxed: the serial publishes all of it.
  const auto set = [](Word& word, auto value) {
    word.store(static_cast<std::uint64_t>(value), std::memory_order_relaxed);
  };
  for (std::size_t i = 0; i < 2; ++i) set(head.communicator[i], about.communicator[i]);
  set(head.rank, about.rank);
  set(head.ranks, about.ranks);
  set(head.local_ranks, about.local_ranks);
  set(head.devices, about.devices ? 1 : 0);
  set(head.made_ticks, ticks());
  set(head.made_ns, monotonic_ns());
  put(head.transport, about.transport);
  put(head.host, about.host);
  put(head.job, about.job);
  const std::lock_guard lock(file().mutex);
  // release: a reader that sees the serial sees the head.
  head.serial.store(++file().serial, std::memory_order_release);
  Traced::keep(*this);
  if (place_ < 0) return;
  const auto end = static_cast<std::uint64_t>(place_) + 1;
  // relaxed: only this process writes it, under the mutex; a reader looks at the serial first.
  if (file().head->tracks.load(std::memory_order_relaxed) < end)
    file().head->tracks.store(end, std::memory_order_relaxed);
}

Recorder::~Recorder() {
  if (owner_ == getpid()) Traced::write(*this);
  const std::lock_guard lock(file().mutex);
  // In a forked child the track is the parent's.
  if (place_ < 0 || owner_ != getpid()) return;
  // release: what is written afterwards is not this communicator's.
  track_->head.serial.store(0, std::memory_order_release);
  memory_.reset();
  // Gives the pages back and leaves zeros for the next communicator. Where the system refuses that,
  // the place is not used again.
  const bool cleared = fallocate(file().place.fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                 static_cast<off_t>(track_at(static_cast<std::size_t>(place_))),
                                 static_cast<off_t>(kTrackBytes)) == 0;
  file().used.set(static_cast<std::size_t>(place_), !cleared);
  if (file().place.path.empty() || file().used.any()) return;
  file().place.remove();
  munmap(std::exchange(file().head, nullptr), sizeof(FileHead<Word>));
}

void Recorder::begin_run(std::uint64_t number, std::size_t kind, std::uint64_t bytes, bool eager) {
  Sums<Word>& sums = track_->totals.sums;
  Run<Word>& run = sums.run;
  // relaxed, all loads and most stores: only this thread writes them. The fence: a reader that sees
  // any of the stores sees the odd version, or a later one.
  const std::uint64_t version = sums.version.load(std::memory_order_relaxed);
  sums.version.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  if (const std::uint64_t begin = run.begin.load(std::memory_order_relaxed); begin != 0) {
    const auto was = static_cast<std::size_t>(run.kind.load(std::memory_order_relaxed));
    const std::uint64_t calls = run.eager.load(std::memory_order_relaxed) != 0 ? number - begin : 1;
    add(sums.calls[was], calls);
    add(sums.bytes[was], calls * run.bytes.load(std::memory_order_relaxed));
  }
  run.begin.store(number, std::memory_order_relaxed);
  run.kind.store(kind, std::memory_order_relaxed);
  run.bytes.store(bytes, std::memory_order_relaxed);
  run.eager.store(eager ? 1 : 0, std::memory_order_relaxed);
  // release: a reader that sees it sees all of the above.
  sums.version.store(version + 2, std::memory_order_release);
}

/// The call in progress, of an entry that does not show it yet, gets an entry of its own.
void Recorder::take_own_entry(std::uint64_t call) {
  // relaxed, both: only this thread writes them.
  const std::uint64_t what = current_->what.load(std::memory_order_relaxed);
  const std::uint64_t count = current_->count.load(std::memory_order_relaxed);
  current_ = &append(call, what, count, 0, 0);
  first_ = call;
}

/// Messages take the entry of the latest call: then its number tells how far its run has come.
void Recorder::keep_latest() {
  if (!has_current()) return;
  // relaxed, both: only this thread writes them. The fence: a reader that finds the entry gone
  // finds the number.
  const State state = State::of(current_->state.load(std::memory_order_relaxed));
  track_->totals.latest_call.store(first_ + (timed_ ? 0 : state.tile), std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
}

/// The current round has waited since it began, and that rank came last. A call counts once.
void Recorder::note_wait(int last, std::uint64_t now, bool first) {
  const auto rank = static_cast<std::size_t>(last);
  const std::uint64_t begin = current_->begin.load(std::memory_order_relaxed);
  if (begin == 0 || begin >= now || rank >= kMostRanks) return;
  if (first) add(track_->totals.wait_calls[rank], 1);
  add(track_->totals.wait_ticks[rank], now - begin);
  // relaxed: as in wait.
  State state = State::of(current_->state.load(std::memory_order_relaxed));
  state.awaited = last;
  current_->state.store(state.packed(), std::memory_order_relaxed);
}

/// Keeps the rank that the call waited for.
void Recorder::end_timed(int last) {
  const std::uint64_t now = ticks(), begin = current_->begin.load(std::memory_order_relaxed);
  if (begin != 0 && begin < now) add(track_->totals.call_ticks, now - begin);
  State state = State::of(current_->state.load(std::memory_order_relaxed));
  if (last >= 0 && state.at == At::kGather) {
    note_wait(last, now, true);
    state.awaited = last;
  }
  current_->end.store(now, std::memory_order_relaxed);
  state.outcome = static_cast<std::uint8_t>(Outcome::kOk);
  current_->state.store(state.packed(), std::memory_order_relaxed);
}

void Recorder::end_failed(std::uint64_t call, int code) {
  if (!has_current()) return;
  // relaxed: as in end_ok.
  State state = State::of(current_->state.load(std::memory_order_relaxed));
  if (!timed_ && call > first_ + state.tile) {
    take_own_entry(call);
    state = {};
  }
  open_ = false;
  if (state.outcome != 0) return;  // It had ended; it was the rank's last call.
  state.outcome = static_cast<std::uint8_t>(static_cast<int>(Outcome::kFailed) + code);
  current_->end.store(ticks(), std::memory_order_relaxed);
  current_->state.store(state.packed(), std::memory_order_relaxed);
}

void Recorder::end_message(std::uint64_t number, int peer, Outcome outcome, bool waited) {
  Entry<Word>& entry = track_->entries[(number - 1) % kEntries];
  // relaxed: only this thread writes it. Another number: so many came since that it is gone.
  if (entry.number.load(std::memory_order_relaxed) != number) return;
  const State state{static_cast<std::uint8_t>(outcome), At::kMessage, peer, 0};
  if (waited) entry.end.store(ticks(), std::memory_order_relaxed);
  entry.state.store(state.packed(), std::memory_order_relaxed);
}

void Recorder::set_device_state(std::uint64_t number, State state, std::uint64_t since,
                                std::uint64_t now) {
  Entry<Word>& entry = track_->entries[(number - 1) % kEntries];
  // relaxed, all: as in set_state and end_ok.
  if (entry.number.load(std::memory_order_relaxed) != number) return;
  const bool over = state.outcome != static_cast<std::uint8_t>(Outcome::kRunning);
  const std::uint64_t begin = entry.begin.load(std::memory_order_relaxed);
  const std::uint64_t from = std::clamp(over ? since : begin, begin, now);
  const std::uint64_t length = (over ? now : std::max(since, from)) - from;
  state.tile = static_cast<std::uint32_t>(
      std::min<std::uint64_t>((length + kTileTicks - 1) / kTileTicks, UINT32_MAX));
  if (over) entry.end.store(now, std::memory_order_relaxed);
  entry.state.store(state.packed(), std::memory_order_relaxed);
}

std::uint64_t Recorder::what_of(std::uint64_t number) const {
  const Entry<Word>& entry = track_->entries[(number - 1) % kEntries];
  // relaxed, both: as in set_state.
  if (entry.number.load(std::memory_order_relaxed) != number) return 0;
  return entry.what.load(std::memory_order_relaxed);
}

std::uint64_t Recorder::call_at(std::uint64_t number) const {
  const std::uint64_t end = number > kEntries / 2 ? number - kEntries / 2 : 0;
  for (; number > end; --number) {
    const Entry<Word>& entry = track_->entries[(number - 1) % kEntries];
    // relaxed, both: as in set_state.
    if (entry.number.load(std::memory_order_relaxed) != number) return 0;
    if (const auto call = entry.call.load(std::memory_order_relaxed); call != 0) return call;
  }
  return 0;
}

std::uint64_t Recorder::place_of(std::uint64_t hash, std::string_view name) {
  const auto known = static_cast<std::size_t>(track_->head.plan_count.load(
      std::memory_order_relaxed));  // relaxed: only this thread writes it.
  const auto end = plan_hashes_.begin() + static_cast<std::ptrdiff_t>(known);
  const auto found = std::find(plan_hashes_.begin(), end, hash);
  const auto place = static_cast<std::size_t>(found - plan_hashes_.begin());
  if (place < known) return place + 1;
  if (known == kPlans) return 0;
  plan_hashes_[known] = hash;
  put(track_->head.plans[known], name);
  // release: a reader that sees the count sees the name.
  track_->head.plan_count.store(known + 1, std::memory_order_release);
  return known + 1;
}

}  // namespace tutti::exec::flight
