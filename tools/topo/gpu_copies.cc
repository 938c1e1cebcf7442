#include "tools/topo/gpu_copies.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "base/driver_library.h"
#include "perf/sweep/noise.h"
#include "tools/tune/rates.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti::tools {
namespace {

constexpr std::size_t kBytes = std::size_t{64} << 20;
constexpr int kRounds = 5;
constexpr double kUsOfCopy = 20e3;  // No more rounds then.
constexpr int kMostGpus = 64;

// CUDA's driver interface as its public documentation has it. Handles are pointers, addresses
// numbers.
using Handle = void*;
using Address = unsigned long long;
constexpr int kAlreadyEnabled = 704;
constexpr unsigned kNonBlocking = 1, kPortable = 1;

/// It has more than 20 functions, because each is one of the driver's.
struct Library : DriverLibrary {
  using DriverLibrary::DriverLibrary;
  int (*init)(unsigned) = find("cuInit");
  int (*count)(int*) = find("cuDeviceGetCount");
  int (*device)(int*, int) = find("cuDeviceGet");
  int (*bus)(char*, int, int) = find("cuDeviceGetPCIBusId");
  int (*can_access)(int*, int, int) = find("cuDeviceCanAccessPeer");
  int (*retain)(Handle*, int) = find("cuDevicePrimaryCtxRetain");
  int (*give_back)(int) = find("cuDevicePrimaryCtxRelease_v2");
  int (*enable_peer)(Handle, unsigned) = find("cuCtxEnablePeerAccess");
  int (*push)(Handle) = find("cuCtxPushCurrent_v2");
  int (*pop)(Handle*) = find("cuCtxPopCurrent_v2");
  int (*allocate)(Address*, std::size_t) = find("cuMemAlloc_v2");
  int (*free)(Address) = find("cuMemFree_v2");
  int (*allocate_host)(void**, std::size_t, unsigned) = find("cuMemHostAlloc");
  int (*free_host)(void*) = find("cuMemFreeHost");
  int (*copy)(Address, Address, std::size_t, Handle) = find("cuMemcpyAsync");
  int (*copy_peer)(Address, Handle, Address, Handle, std::size_t,
                   Handle) = find("cuMemcpyPeerAsync");
  int (*create_stream)(Handle*, unsigned) = find("cuStreamCreate");
  int (*destroy_stream)(Handle) = find("cuStreamDestroy_v2");
  int (*synchronize)(Handle) = find("cuStreamSynchronize");
  int (*create_event)(Handle*, unsigned) = find("cuEventCreate");
  int (*destroy_event)(Handle) = find("cuEventDestroy_v2");
  int (*record)(Handle, Handle) = find("cuEventRecord");
  int (*elapsed)(float*, Handle, Handle) = find("cuEventElapsedTime");
};

/// A GPU that copies: its context, two buffers there and one in the host's memory, a stream.
class Gpu {
 public:
  Gpu(const Library& cuda, int device) : cuda_(cuda), device_(device) {}
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() {
    if (context_ == nullptr) return;
    const Current current(*this);
    if (stream_ != nullptr) ask(cuda_.destroy_stream, stream_);
    for (const Handle event : events_) {
      if (event != nullptr) ask(cuda_.destroy_event, event);
    }
    for (const Address buffer : buffers_) {
      if (buffer != 0) ask(cuda_.free, buffer);
    }
    if (host_ != nullptr) ask(cuda_.free_host, host_);
    ask(cuda_.give_back, device_);
  }

  /// Takes what it needs; empty, or what the driver refused. On a CPU near it.
  std::string open() {
    if (!ask(cuda_.retain, &context_, device_)) {
      context_ = nullptr;
      return "CUDA makes no context there: another process may have it for itself";
    }
    const Current current(*this);
    const auto make = [&](auto function, auto* made, auto... more) {
      return ask(function, made, more...);
    };
    for (Address& buffer : buffers_) {
      if (!make(cuda_.allocate, &buffer, kBytes)) return "its memory is full";
    }
    if (!make(cuda_.allocate_host, &host_, kBytes, kPortable)) return "no pinned memory";
    for (Handle& event : events_) {
      if (!make(cuda_.create_event, &event, 0U)) return "CUDA makes no events";
    }
    return make(cuda_.create_stream, &stream_, kNonBlocking) ? "" : "CUDA makes no stream";
  }

  double in() { return rate(buffers_[0], host()); }
  double out() { return rate(host(), buffers_[0]); }
  double inside() { return 2 * rate(buffers_[1], buffers_[0]); }

  /// To another, and whether by the host's memory.
  std::pair<double, bool> to(Gpu& peer) {
    const bool direct = reaches(peer) && peer.reaches(*this);
    return {timed([&] {
              return ask(cuda_.copy_peer, peer.buffers_[0], peer.context_, buffers_[0], context_,
                         kBytes, stream_);
            }),
            !direct};
  }

 private:
  /// Its context is this thread's meanwhile.
  class Current {
   public:
    explicit Current(const Gpu& gpu) : cuda_(gpu.cuda_) { ask(cuda_.push, gpu.context_); }
    Current(const Current&) = delete;
    Current& operator=(const Current&) = delete;
    ~Current() {
      Handle before = nullptr;
      ask(cuda_.pop, &before);
    }

   private:
    const Library& cuda_;
  };

  Address host() const { return reinterpret_cast<Address>(host_); }

  /// Whether it can touch the peer's memory; it can from then on.
  bool reaches(const Gpu& peer) const {
    int can = 0;
    if (!ask(cuda_.can_access, &can, device_, peer.device_) || can == 0) return false;
    const Current current(*this);
    const int code = cuda_.enable_peer == nullptr ? 1 : call(cuda_.enable_peer, peer.context_, 0U);
    return code == 0 || code == kAlreadyEnabled;
  }

  double rate(Address to, Address from) {
    return timed([&] { return ask(cuda_.copy, to, from, kBytes, stream_); });
  }

  /// GB/s of a copy, the median of several after a first one; 0: the driver refused.
  template <class Copy>
  double timed(const Copy& copy) {
    const Current current(*this);
    if (!copy() || !ask(cuda_.synchronize, stream_)) return 0;
    std::vector<double> rates;
    const auto start = Clock::now();
    for (int round = 0; round < kRounds && (round == 0 || since_us(start) < kUsOfCopy); ++round) {
      float ms = 0;
      const bool done = ask(cuda_.record, events_[0], stream_) && copy() &&
                        ask(cuda_.record, events_[1], stream_) && ask(cuda_.synchronize, stream_) &&
                        ask(cuda_.elapsed, &ms, events_[0], events_[1]);
      if (!done || ms <= 0) return 0;
      rates.push_back(static_cast<double>(kBytes) / static_cast<double>(ms) * 1e-6);
    }
    return perf::median(rates);
  }

  const Library& cuda_;
  const int device_;
  Handle context_ = nullptr, stream_ = nullptr;
  std::array<Handle, 2> events_{};
  std::array<Address, 2> buffers_{};
  void* host_ = nullptr;
};

Error absent(std::string what) { return {Code::kUnsupported, std::move(what), {}, {}}; }

/// The devices that CUDA shows, and their addresses.
Result<std::vector<std::pair<int, std::string>>> devices_of(const Library& cuda, const char* name) {
  if (!cuda.opened()) return absent(fmt::format("there is no {}", name == nullptr ? "" : name));
  const int code = cuda.init == nullptr ? -1 : call(cuda.init, 0U);
  if (code != 0) return absent(fmt::format("CUDA refuses with error {}", code));
  int count = 0;
  if (!ask(cuda.count, &count)) return absent("CUDA does not say how many GPUs there are");
  std::vector<std::pair<int, std::string>> devices;
  for (int i = 0; i < std::min(count, kMostGpus); ++i) {
    int device = 0;
    std::array<char, 64> bus{};
    if (!ask(cuda.device, &device, i) ||
        !ask(cuda.bus, bus.data(), static_cast<int>(bus.size()), device))
      continue;
    bus.back() = '\0';
    devices.emplace_back(device, topology::parse_bus(bus.data()));
  }
  return devices;
}

}  // namespace

Result<GpuRates> measure_copies(const GpuCopyOptions& options) {
  const Library cuda(options.library);
  TUTTI_TRY(const auto devices, devices_of(cuda, options.library));
  GpuRates rates;
  std::vector<std::unique_ptr<Gpu>> gpus;
  for (const auto& [device, bus] : devices) {
    options.progress(rates.gpus.size(), 2 * devices.size());
    auto gpu = std::make_unique<Gpu>(cuda, device);
    GpuRates::Gpu& one = rates.gpus.emplace_back(GpuRates::Gpu{bus});
    TUTTI_RETURN_IF_ERROR(options.near(bus, [&] {
      one.why_not = gpu->open();
      if (!one.why_not.empty()) return;
      one.in = gpu->in();
      one.out = gpu->out();
      one.inside = gpu->inside();
    }));
    if (!one.why_not.empty()) gpu.reset();
    gpus.push_back(std::move(gpu));
  }
  for (std::size_t from = 0; from < gpus.size(); ++from) {
    options.progress(gpus.size() + from, 2 * gpus.size());
    for (std::size_t to = 0; to < gpus.size(); ++to) {
      if (from == to || gpus[from] == nullptr || gpus[to] == nullptr) continue;
      const auto [rate, staged] = gpus[from]->to(*gpus[to]);
      rates.pairs.push_back({from, to, rate, staged});
    }
  }
  return rates;
}

}  // namespace tutti::tools
