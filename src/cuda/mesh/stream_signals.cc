#include "cuda/mesh/stream_signals.h"

#include <atomic>
#include <string>
#include <thread>

#include <fmt/format.h>

namespace tutti::exec {
namespace {

// A word of the host: waits are counted from 1 on, so that two in a row differ; the counter's
// number and the peer; and the mark of `check`, which is gone once the stream goes on.
constexpr int kNumberFrom = 40, kPeerFrom = 48;
constexpr std::uint64_t kByte = 255, kMark = std::uint64_t{1} << 63;
static_assert(kStreamCounters <= 256 && cuda::kMostDeviceRanks < 255);

int number_of(std::uint64_t word) { return static_cast<int>(word >> kNumberFrom & kByte); }
constexpr std::chrono::milliseconds kBetweenLooks{50};
constexpr int kAllPeers = 255;  // In place of a peer: they meet.
int number_of(StreamSignals::Flag flag) { return kStreamSignals + static_cast<int>(flag); }
int peer_of(std::uint64_t word) { return static_cast<int>(word >> kPeerFrom & kByte); }

CUdeviceptr address_of(const std::uint64_t* at) { return reinterpret_cast<std::uintptr_t>(at); }

}  // namespace

Status StreamSignals::make(const CudaRings& rings, int rank) {
  rings_ = &rings;
  rank_ = rank;
  device_ = rings.options().devices[static_cast<std::size_t>(rank)];
  const CudaDriver& driver = cuda_driver();
  int can = 0;
  supported_ = driver.write_value != nullptr && driver.wait_value != nullptr &&
               driver.device_attribute != nullptr &&
               driver.device_attribute(&can, CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS,
                                       device_) == CUDA_SUCCESS &&
               can != 0;
  sent_.resize(rings.options().devices.size() * kStreamCounters);
  taken_.resize(sent_.size());
  TUTTI_TRY(memory_, CudaHostMemory::allocate(sizeof(Waiting)));
  return ok();
}

Status StreamSignals::reaches(int peer) const {
  const auto no = [](std::string why) { return Error{Code::kUnsupported, std::move(why)}; };
  if (!supported_)
    return no(fmt::format("streams of device {} can't wait for values (the driver says)", device_));
  switch (rings_->place_of(static_cast<std::size_t>(peer))) {
    case CudaRings::Place::kMapped: return ok();
    case CudaRings::Place::kStaged:
      return no(fmt::format("the devices of ranks {} and {} don't reach each other's memory", rank_,
                            peer));
    case CudaRings::Place::kRemote: break;
  }
  return no(fmt::format("rank {} is on another host", peer));
}

Status StreamSignals::write(std::uint64_t* at, std::uint64_t value, cudaStream_t stream) const {
  // By default a fence of the whole system is before it (CUDA Driver API,
  // CU_STREAM_WRITE_VALUE_DEFAULT): all that the stream did before, in whatever memory, can be seen
  // where the value is seen.
  return driver_status(cuda_driver().write_value(stream, address_of(at), value, 0),
                       "writing a value by a stream");
}

Status StreamSignals::signal(int peer, int number, cudaStream_t stream) {
  std::uint64_t& sent = of(sent_, peer, number);
  TUTTI_RETURN_IF_ERROR(write(rings_->stream_counter(peer, rank_, number), sent + 1, stream));
  ++sent;
  return ok();
}

Status StreamSignals::begin_wait(int peer, int number, std::uint64_t value, cudaStream_t stream) {
  auto* const waiting = reinterpret_cast<Waiting*>(memory_.data());
  constexpr std::uint64_t kWaits = (std::uint64_t{1} << kNumberFrom) - 1;
  waits_ = waits_ % kWaits + 1;
  const std::uint64_t word = waits_ | static_cast<std::uint64_t>(number) << kNumberFrom |
                             static_cast<std::uint64_t>(peer) << kPeerFrom;
  TUTTI_RETURN_IF_ERROR(write(&waiting->value, value, stream));
  return write(&waiting->word, word, stream);
}

Status StreamSignals::end_wait(cudaStream_t stream) const {
  return write(&reinterpret_cast<Waiting*>(memory_.data())->word, 0, stream);
}

Status StreamSignals::hold(const std::uint64_t* counter, std::uint64_t value, unsigned how,
                           cudaStream_t stream) const {
  return driver_status(cuda_driver().wait_value(stream, address_of(counter), value, how),
                       "waiting for a value by a stream");
}

Status StreamSignals::wait(int peer, int number, std::uint64_t count, cudaStream_t stream) {
  std::uint64_t& taken = of(taken_, peer, number);
  const std::uint64_t value = taken + count;
  TUTTI_RETURN_IF_ERROR(begin_wait(peer, number, value, stream));
  TUTTI_RETURN_IF_ERROR(
      hold(rings_->stream_counter(rank_, peer, number), value, CU_STREAM_WAIT_VALUE_GEQ, stream));
  taken = value;
  return end_wait(stream);
}

Status StreamSignals::set(int peer, Flag flag, std::uint64_t value, cudaStream_t stream) const {
  return write(rings_->stream_counter(peer, rank_, number_of(flag)), value, stream);
}

Status StreamSignals::meet(Flag flag, std::uint64_t value, cudaStream_t stream) {
  const int number = number_of(flag), ranks = rank_count();
  TUTTI_RETURN_IF_ERROR(begin_wait(kAllPeers, number, value, stream));
  for (int peer = 0; peer < ranks; ++peer) {
    if (peer == rank_) continue;
    std::uint64_t* const here = rings_->stream_counter(rank_, peer, number);
    TUTTI_RETURN_IF_ERROR(hold(here, value, CU_STREAM_WAIT_VALUE_EQ, stream));
    TUTTI_RETURN_IF_ERROR(write(here, 0, stream));
  }
  return end_wait(stream);
}

/// The stream meets the peers in their order and clears their flags. So what is 0 was cleared, or
/// has not come; the last that is 0 has not come.
Status StreamSignals::check_met(std::uint64_t word, std::uint64_t value, bool late) const {
  int missing = -1;
  for (int peer = 0; peer < rank_count(); ++peer) {
    // relaxed: a value that says all there is to know. Peers' streams may write it meanwhile.
    const std::uint64_t one = std::atomic_ref(*rings_->stream_counter(rank_, peer, number_of(word)))
                                  .load(std::memory_order_relaxed);
    if (peer == rank_ || one == value) continue;
    if (one != 0) {
      return Error{Code::kMismatch,
                   fmt::format("rank {} met another call of rank {} at its copy engines; all ranks "
                               "have to make the same calls in the same order",
                               rank_, peer),
                   Rank{rank_}, Rank{peer}};
    }
    missing = peer;
  }
  if (!late) return ok();
  return Error{
      Code::kTimeout,
      fmt::format("rank {} waited too long for rank {} in a call by copy engines", rank_, missing),
      Rank{rank_}, Rank{missing}};
}

Status StreamSignals::check() {
  if (memory_.data() == nullptr) return ok();
  auto* const waiting = reinterpret_cast<Waiting*>(memory_.data());
  const std::atomic_ref word(waiting->word);
  // relaxed: a number that says all there is to know.
  std::uint64_t now = word.load(std::memory_order_relaxed);
  if (now == 0) return ok();
  const std::lock_guard lock(mutex_);
  const auto time = std::chrono::steady_clock::now();
  if ((now & kMark) == 0) {  // Where the stream has gone on meanwhile, the next wait is marked.
    if (word.compare_exchange_strong(now, now | kMark, std::memory_order_relaxed)) marked_ = time;
    return ok();
  }
  const bool late = time - marked_ >= rings_->options().timeout;
  if (peer_of(now) == kAllPeers) {
    if (!late && time - looked_ < kBetweenLooks) return ok();
    looked_ = time;
    const std::uint64_t value = std::atomic_ref(waiting->value).load(std::memory_order_relaxed);
    Status met = check_met(now, value, late);
    // The mark is still there: what was found was all of this wait.
    return word.load(std::memory_order_relaxed) == now ? std::move(met) : ok();
  }
  if (!late) return ok();
  return Error{Code::kTimeout,
               fmt::format("rank {} waited too long for a signal of rank {} (number {})", rank_,
                           peer_of(now), number_of(now)),
               Rank{rank_}, Rank{peer_of(now)}};
}

bool StreamSignals::waits() const {
  if (memory_.data() == nullptr) return false;
  // relaxed: a number that says all there is to know.
  return std::atomic_ref(reinterpret_cast<Waiting*>(memory_.data())->word)
             .load(std::memory_order_relaxed) != 0;
}

/// The last peer whose flag has not come; -1: all have. See check_met.
int StreamSignals::missing_at(std::uint64_t word, std::uint64_t value) const {
  for (int peer = rank_count(); peer-- > 0;) {
    // relaxed: as in check_met.
    const std::uint64_t one = std::atomic_ref(*rings_->stream_counter(rank_, peer, number_of(word)))
                                  .load(std::memory_order_relaxed);
    if (peer != rank_ && one != value) return peer;
  }
  return -1;
}

int StreamSignals::awaited() const {
  if (memory_.data() == nullptr) return -1;
  auto* const waiting = reinterpret_cast<Waiting*>(memory_.data());
  const std::atomic_ref word(waiting->word);
  // acquire: the stream wrote the value before.
  const std::uint64_t now = word.load(std::memory_order_acquire);
  if (now == 0) return -1;
  if (peer_of(now) != kAllPeers) return peer_of(now);
  const int missing =
      missing_at(now, std::atomic_ref(waiting->value).load(std::memory_order_relaxed));
  // relaxed: the same number, but for the mark: what was found was all of this wait.
  return (word.load(std::memory_order_relaxed) | kMark) == (now | kMark) ? missing : -1;
}

void StreamSignals::release() {
  if (memory_.data() == nullptr) return;
  const std::lock_guard lock(mutex_);
  auto* const waiting = reinterpret_cast<Waiting*>(memory_.data());
  constexpr int kMost = 256;  // At a time: the watcher comes back.
  for (int released = 0; released < kMost; ++released) {
    // acquire: the stream wrote the value before.
    const std::uint64_t word = std::atomic_ref(waiting->word).load(std::memory_order_acquire);
    if (word == 0) return;
    const std::uint64_t value = std::atomic_ref(waiting->value).load(std::memory_order_relaxed);
    const bool all = peer_of(word) == kAllPeers;
    for (int peer = all ? 0 : peer_of(word); peer < (all ? rank_count() : peer_of(word) + 1);
         ++peer) {
      // relaxed: the stream that goes on expects nothing of what this thread did before.
      std::atomic_ref(*rings_->stream_counter(rank_, peer, number_of(word)))
          .store(value, std::memory_order_relaxed);
    }
    // The peer may have written a smaller number behind it. So it is written again.
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

}  // namespace tutti::exec
