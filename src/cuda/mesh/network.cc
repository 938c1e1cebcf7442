#include "cuda/mesh/network.h"

#include <algorithm>
#include <utility>

#include "base/threads.h"

namespace tutti::exec {
namespace {

constexpr int kPollsBeforeNap = 200;
constexpr std::chrono::microseconds kShortNap{20}, kLongNap{1000};
constexpr std::uintptr_t kPage = 4096;

/// From the first byte of a ring to its last, of what is in the host's memory.
std::span<std::byte> memory_of(const Ring& ring, bool gpudirect) {
  auto* first = reinterpret_cast<std::byte*>(ring.head);
  std::byte* end = first;
  const auto parts = {
      std::pair(first, sizeof(Counter)),
      std::pair(reinterpret_cast<std::byte*>(ring.tails), sizeof(Counter)),
      std::pair(gpudirect ? first : ring.slots, gpudirect ? 0 : ring.slot_count * ring.slot_bytes),
      std::pair(reinterpret_cast<std::byte*>(ring.used), ring.slot_count * sizeof(*ring.used)),
      std::pair(reinterpret_cast<std::byte*>(ring.stamps), ring.slot_count * sizeof(*ring.stamps))};
  for (const auto& [at, bytes] : parts) {
    first = std::min(first, at);
    end = std::max(end, at + bytes);
  }
  return {first, end};
}

/// In whole pages, each of them once: what is registered must not overlap.
std::vector<std::span<std::byte>> in_pages(std::vector<std::span<std::byte>> ranges) {
  for (auto& range : ranges) {
    const auto before = reinterpret_cast<std::uintptr_t>(range.data()) % kPage;
    const std::size_t bytes = (before + range.size() + kPage - 1) / kPage * kPage;
    range = {range.data() - before, bytes};
  }
  std::ranges::sort(ranges, [](const auto& a, const auto& b) { return a.data() < b.data(); });
  std::vector<std::span<std::byte>> merged;
  for (const auto& range : ranges) {
    if (merged.empty() || merged.back().data() + merged.back().size() < range.data()) {
      merged.push_back(range);
      continue;
    }
    auto& last = merged.back();
    const auto end = std::max(last.data() + last.size(), range.data() + range.size());
    last = {last.data(), end};
  }
  return merged;
}

}  // namespace

RegionConfig CudaNetwork::config(std::size_t ranks, std::uint32_t lanes, std::uint32_t slot_count,
                                 std::size_t slot_bytes) {
  RegionConfig config;
  config.rank_count = static_cast<std::uint32_t>(ranks);
  config.lanes = lanes;
  config.slot_count = slot_count;
  config.slot_bytes = slot_bytes;
  config.multicast_slots = config.packet_slots = config.message_slots = 1;
  config.packet_bytes = kCacheLine;
  config.message_bytes = 2 * kCacheLine;
  config.notes = 1;
  return config;
}

Result<std::unique_ptr<CudaNetwork>> CudaNetwork::open(CudaNetworkOptions options) {
  std::unique_ptr<CudaNetwork> network(new CudaNetwork(std::move(options)));
  const CudaNetworkOptions& asked = network->options_;
  TUTTI_TRY(network->endpoint_, asked.transport->open(asked.opening));
  // What these refer to is the caller's, and not needed any more.
  network->options_.opening.peers = {};
  network->options_.opening.exchange = nullptr;
  network->options_.opening.nic_paths = nullptr;
  network->options_.opening.gpudirect = {};
  TUTTI_RETURN_IF_ERROR(network->pin());
  network->why_unreachable_.resize(asked.remote.size());
  return network;
}

Status CudaNetwork::start(std::function<void()> on_abort) {
  on_abort_ = std::move(on_abort);
  TUTTI_TRY(proxy_, start_thread("the thread that drives the network", [this] { run(); }));
  return ok();
}

CudaNetwork::~CudaNetwork() {
  // release: the proxy has no more to do than what came before.
  stop_.store(true, std::memory_order_release);
  if (proxy_.joinable()) {
    endpoint_->remote_link()->wake();
    proxy_.join();
  }
  const OnDevice on(options_.device);
  for (const Range& range : pinned_) cudaHostUnregister(range.data());
}

/// The memory that kernels touch.
std::vector<CudaNetwork::Range> CudaNetwork::rings() const {
  std::vector<Range> ranges;
  const int me = options_.opening.rank;
  const bool gpudirect = region().config().gpudirect != 0;
  const auto counter = [&](Counter& at) {
    ranges.emplace_back(reinterpret_cast<std::byte*>(&at), sizeof(at));
  };
  for (std::size_t rank = 0; rank < options_.remote.size(); ++rank) {
    if (!options_.remote[rank]) continue;
    const int peer = static_cast<int>(rank);
    for (Note* const note : {region().note(me, peer), region().note(peer, me)})
      ranges.emplace_back(reinterpret_cast<std::byte*>(note), sizeof(*note));
    for (int lane = 0; lane < static_cast<int>(region().config().lanes); ++lane) {
      ranges.push_back(memory_of(region().channel(me, peer, lane), gpudirect));
      ranges.push_back(memory_of(region().channel(peer, me, lane), gpudirect));
      counter(region().signal(me, peer, lane));
      counter(region().signal(peer, me, lane));
    }
  }
  return ranges;
}

Status CudaNetwork::pin() {
  const OnDevice on(options_.device);
  for (const Range& range : in_pages(rings())) {
    TUTTI_RETURN_IF_ERROR(
        cuda_status(cudaHostRegister(range.data(), range.size(),
                                     cudaHostRegisterPortable | cudaHostRegisterMapped),
                    "pinning " + std::to_string(range.size()) + " bytes of rings to other hosts"));
    pinned_.push_back(range);
  }
  return ok();
}

std::size_t CudaNetwork::pinned_bytes() const {
  std::size_t bytes = 0;
  for (const Range& range : pinned_) bytes += range.size();
  return bytes;
}

void CudaNetwork::wake() {
  // relaxed: a nap that has just begun is short of kLongNap anyway.
  if (napping_.load(std::memory_order_relaxed)) endpoint_->remote_link()->wake();
}

void CudaNetwork::drain(Deadline deadline) {
  // release: pairs with the proxy's acquire, so that it sees what this thread saw end.
  const std::uint64_t mine = drains_.fetch_add(1, std::memory_order_release) + 1;
  endpoint_->remote_link()->wake();
  // acquire: pairs with the proxy's release.
  while (drained_.load(std::memory_order_acquire) < mine && !deadline.passed())
    std::this_thread::sleep_for(kShortNap);
}

void CudaNetwork::abort(const Error& error) {
  region().abort(error);
  endpoint_->remote_link()->wake();
}

std::string CudaNetwork::why_unreachable(int peer) const {
  const std::lock_guard lock(mutex_);
  return why_unreachable_[static_cast<std::size_t>(peer)];
}

/// Ends kernels, or explains why they end.
void CudaNetwork::look() {
  if (!abort_seen_ && aborted()) {
    abort_seen_ = true;
    on_abort_();
  }
  for (std::size_t rank = 0; rank < options_.remote.size(); ++rank) {
    const int peer = static_cast<int>(rank);
    if (!options_.remote[rank] || endpoint_->alive(peer)) continue;
    const std::lock_guard lock(mutex_);
    if (why_unreachable_[rank].empty()) why_unreachable_[rank] = endpoint_->why_dead(peer);
  }
}

void CudaNetwork::run() {
  // For flushes, which need the device and are no part of what others capture.
  cudaSetDevice(options_.device);
  auto mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);
  RemoteLink& remote_link = *endpoint_->remote_link();
  int idle = 0;
  std::chrono::nanoseconds nap = kShortNap;
  while (!stop_.load(std::memory_order_acquire)) {  // acquire: pairs with the destructor.
    // acquire, release: see drain.
    const std::uint64_t asked = drains_.load(std::memory_order_acquire);
    if (remote_link.progress()) {
      idle = 0;
      nap = kShortNap;
      continue;
    }
    if (drained_.load(std::memory_order_relaxed) != asked && !remote_link.pending())
      drained_.store(asked, std::memory_order_release);
    if (idle < kPollsBeforeNap) {
      ++idle;
      std::this_thread::yield();
      continue;
    }
    look();
    napping_.store(true, std::memory_order_relaxed);  // relaxed: see wake.
    remote_link.sleep(nap);
    napping_.store(false, std::memory_order_relaxed);
    nap = std::min<std::chrono::nanoseconds>(nap + nap / 4, kLongNap);
  }
}

}  // namespace tutti::exec
