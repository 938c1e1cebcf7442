// File: tutti/device.cuh: a program's own kernels communicate: they write to peers' memory, signal,
// wait, and reduce over ranks. For nvcc, with --expt-relaxed-constexpr. The guide is
// docs/device-api.md.
//
//   __global__ void exchange(const __grid_constant__ tutti::DeviceHandle handle, const float* from)
//   {
//     tutti::device::Channel channel(handle);         // That of the block's number.
//     const unsigned next = (channel.rank() + 1) % channel.ranks();
//     channel.put(next, 0, from, 4096);               // All threads copy.
//     if (!channel.barrier()) return;                 // Now all ranks have their data.
//     use(channel.peer<float>(channel.rank(), 0));
//   }
//
// Model. A window is memory of each rank that all ranks map (DeviceCommunicator::device_handle). A
// kernel stores into peers' windows and loads from them. Signals order that: a channel has two
// counters for each pair of ranks, one in each direction. The n-th wait for a rank returns after
// that rank's n-th signal to this one, whichever kernels do it.
//
// Memory order. A signal is a release of system scope, a wait an acquire. So what a thread wrote
// before its signal is seen after the peer's wait; and likewise what other threads of the block
// wrote before a barrier of the block (`sync`, __syncthreads) that the signal follows. Data are
// plain loads and stores: never by the read-only cache (__ldg, const __restrict__). `put` needs no
// flush: its source may be changed once the threads have met.
//
// Failures. A wait lasts up to Settings::timeout, and ends early if any rank fails or aborts. Then
// it returns false, and so do all later ones of the thread. The kernel has to end then;
// DeviceCommunicator::check says which rank was waited for. Nothing else has to be reported.
//
// Blocks that wait for other ranks must run at a time with those that these wait for: a kernel has
// no more blocks than the device runs at once.
#pragma once
#if defined(__CUDACC__) && !defined(__CUDACC_RELAXED_CONSTEXPR__)
#error "tutti/device.cuh takes nvcc's flag --expt-relaxed-constexpr"
#endif
#include "tutti/detail/prim.h"
// Primitives come first.
#include "tutti/detail/tell.h"
#include "tutti/detail/unit_arithmetic.h"
#include "tutti/device_handle.h"

namespace tutti::device {

/// Threads that share work: the calling one's number, and how many there are. All of them call.
struct Threads {
  unsigned index, count;

  TUTTI_DEVICE static Threads of_block() {
    return {threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z),
            blockDim.x * blockDim.y * blockDim.z};
  }
  /// The calling thread's warp; blocks have whole warps.
  TUTTI_DEVICE static Threads of_warp() {
    return {of_block().index % cuda::kWarpLanes, cuda::kWarpLanes};
  }
};

namespace detail {

/// Reports to the host and to all ranks why this thread gives up, unless another one did. A
/// function of its own: kernels are not to have it behind each wait.
TUTTI_DEVICE_COLD void report_failure(const DeviceHandle& handle, unsigned channel, cuda::Why why,
                                      unsigned peer, std::uint64_t offset) {
  std::byte* const board = handle.boards[handle.rank];
  if (cuda::exchange(cuda::claimed_on(board), 1) != 0) return;
  // A Report: why, the kernel, and nothing of the peer's.
  cuda::detail::ReportWords report = {cuda::report_word(why, handle.rank, peer),
                                      (channel + 1) | std::uint64_t{cuda::kProgramKernel} << 32,
                                      offset};
  // acquire: pairs with the release of the rank that told.
  if (why == cuda::Why::kTold)
    cuda::detail::read_report(board, cuda::load_acquire(cuda::told_on(board)), report);
  if (cuda::load_relaxed(&handle.report->why) == 0)
    cuda::detail::write_report(handle.report, report);
  // If the host has ended the kernel, the host tells the peers where they are to know.
  if (why == cuda::Why::kTold || why == cuda::Why::kAborted) return;
  cuda::detail::post_report(handle.boards, handle.ranks, handle.rank, report);
}

/// All loads of several before the first store.
template <class T>
TUTTI_DEVICE void copy(std::byte* to, const std::byte* from, std::uint64_t bytes, Threads by) {
  constexpr unsigned kAtOnce = 4;
  const std::uint64_t count = bytes / sizeof(T);
#pragma unroll 1
  for (std::uint64_t first = by.index; first < count; first += kAtOnce * by.count) {
    T values[kAtOnce] = {};
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const std::uint64_t at = first + i * by.count;
      if (at < count) values[i] = reinterpret_cast<const T*>(from)[at];
    }
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const std::uint64_t at = first + i * by.count;
      if (at < count) cuda::store(to + at * sizeof(T), values[i]);
    }
  }
}

/// The first `valid` elements of a unit.
template <DataType type>
TUTTI_DEVICE auto load_unit(const std::byte* at, unsigned valid) {
  using Traits = cuda::TypeTraits<type>;
  if (valid == Traits::kElements && reinterpret_cast<std::uintptr_t>(at) % 16 == 0)
    return cuda::load_whole<Traits::kBytes>(at);
  auto bits = cuda::zero_bits<Traits::kBytes>();
#pragma unroll
  for (unsigned e = 0; e < Traits::kElements; ++e) {
    if (e < valid) cuda::load_element<size_of(type)>(at + e * size_of(type), e, bits);
  }
  return bits;
}
template <DataType type, std::size_t kBytes>
TUTTI_DEVICE void store_unit(std::byte* at, const cuda::Bits<kBytes>& bits, unsigned valid) {
  using Traits = cuda::TypeTraits<type>;
  if (valid == Traits::kElements && reinterpret_cast<std::uintptr_t>(at) % 16 == 0)
    return cuda::store_whole(at, bits);
#pragma unroll
  for (unsigned e = 0; e < Traits::kElements; ++e) {
    if (e < valid) cuda::store_element<size_of(type)>(at + e * size_of(type), e, bits);
  }
}

}  // namespace detail

/// One channel, as a thread sees it: each makes its own, which costs nothing. A channel's signals
/// to a rank are one thread's at a time, and so are its waits for a rank.
class Channel {
 public:
  TUTTI_DEVICE explicit Channel(const DeviceHandle& handle) : Channel(handle, blockIdx.x) {}
  TUTTI_DEVICE Channel(const DeviceHandle& handle, unsigned number)
      : handle_(handle), number_(number) {}

  TUTTI_DEVICE unsigned rank() const { return handle_.rank; }
  TUTTI_DEVICE unsigned ranks() const { return handle_.ranks; }

  /// Any thread: `count` elements at `offset`, in bytes, of a rank's window; of the own one too.
  /// For plain loads and stores. Null, and the kernel has failed: not in the window.
  template <class T>
  TUTTI_DEVICE T* peer(unsigned rank, std::uint64_t offset, std::uint64_t count = 1) {
    if (!has_window(rank, offset, count, sizeof(T))) return nullptr;
    return reinterpret_cast<T*>(handle_.windows[rank] + offset);
  }

  /// Threads `by`: copies `bytes` from this device's memory to `offset` of the rank's window. It
  /// does not wait for the threads to meet. Fastest if all three are multiples of 16. False: not in
  /// the window.
  TUTTI_DEVICE bool put(unsigned rank, std::uint64_t offset, const void* from, std::uint64_t bytes,
                        Threads by = Threads::of_block()) {
    if (!has_window(rank, offset, bytes)) return false;
    std::byte* const to = handle_.windows[rank] + offset;
    const auto* source = static_cast<const std::byte*>(from);
    std::uint64_t done = 0;
    if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % 16 == 0) {
      done = bytes / 16 * 16;
      detail::copy<cuda::Vector16>(to, source, done, by);
    }
    detail::copy<std::uint8_t>(to + done, source + done, bytes - done, by);
    return true;
  }

  /// One thread: tells the rank that what this thread has done, and has seen, is done. Release.
  TUTTI_DEVICE void signal(unsigned rank) {
    if (why_ != cuda::Why::kNothing || !has_line(rank)) return;
    cuda::SignalLine& own = line(handle_.rank, rank);
    const auto sent = cuda::load<std::uint64_t>(&own.sent) + 1;
    cuda::store(&own.sent, sent);
    // release: what the threads wrote is there before the signal is.
    cuda::store_release(&line(rank, handle_.rank).incoming, sent);
  }

  /// One thread: waits for the rank's next signal to this one. Acquire. False: it gave up.
  TUTTI_DEVICE bool wait(unsigned rank) {
    if (why_ != cuda::Why::kNothing || !has_line(rank)) return false;
    if (!cuda::waits()) return true;
    cuda::SignalLine& own = line(handle_.rank, rank);
    const auto taken = cuda::load<std::uint64_t>(&own.taken);
    unsigned polls = 0;
    std::uint64_t begin_ns = 0;
    // acquire: pairs with the release in signal.
    while (cuda::load_acquire(&own.incoming) <= taken) {
      if (++polls % kPollsPerLook == 0 && gives_up(rank, begin_ns)) return false;
    }
    cuda::store(&own.taken, taken + 1);
    return true;
  }

  /// All threads of the block meet. True in all of them if none has failed, nor has `good` false.
  TUTTI_DEVICE bool sync(bool good = true) {
    return !cuda::sync_block_or(!good || why_ != cuda::Why::kNothing);
  }

  /// All threads of the block: the blocks with this channel on all ranks meet. What any of them did
  /// before is seen after. False in all threads: some have failed.
  TUTTI_DEVICE bool barrier() {
    // What the block has done comes before the signals.
    bool good = !cuda::sync_block_or(why_ != cuda::Why::kNothing);
    const Threads all = Threads::of_block();
    const unsigned stride = all.count < cuda::kWarpLanes ? all.count : cuda::kWarpLanes;
    if (good && all.index < stride) {
      for (unsigned rank = all.index; rank < handle_.ranks; rank += stride) {
        if (rank != handle_.rank) signal(rank);
      }
      for (unsigned rank = all.index; rank < handle_.ranks; rank += stride) {
        if (rank != handle_.rank) good &= wait(rank);
      }
    }
    return !cuda::sync_block_or(!good);
  }

  /// Threads `by`: reduces `count` elements at `offset` of all ranks' windows to `to`, in memory
  /// that this device can write. In canonical order, so with the bits of the library's collectives
  /// (docs/bitwise-contract.md). Offset and `to` are aligned to the type, and the sum is fastest if
  /// both are to 16 bytes. A rank may reduce into its own window in place if no other rank reads
  /// that part. False: not in the window.
  template <DataType type, ReduceOp op>
  TUTTI_DEVICE bool reduce(std::uint64_t offset, std::uint64_t count, void* to,
                           Threads by = Threads::of_block()) {
    if (!has_window(handle_.rank, offset, count, size_of(type))) return false;
    auto* const at = static_cast<std::byte*>(to);
    reduce_any<type, op>(offset, count, by, 1, [at](unsigned) { return at; });
    return true;
  }
  /// The same, to `to_offset` of all ranks' windows.
  template <DataType type, ReduceOp op>
  TUTTI_DEVICE bool reduce_to_all(std::uint64_t offset, std::uint64_t count,
                                  std::uint64_t to_offset, Threads by = Threads::of_block()) {
    if (!has_window(handle_.rank, offset, count, size_of(type)) ||
        !has_window(handle_.rank, to_offset, count, size_of(type)))
      return false;
    reduce_any<type, op>(offset, count, by, handle_.ranks, [this, to_offset](unsigned target) {
      return handle_.windows[(handle_.rank + target) % handle_.ranks] + to_offset;
    });
    return true;
  }

 private:
  static constexpr unsigned kPollsPerLook = 256;

  TUTTI_DEVICE cuda::SignalLine& line(unsigned owner, unsigned peer) const {
    return handle_.signals[owner][number_ * handle_.ranks + peer];
  }
  TUTTI_DEVICE bool has_line(unsigned rank) {
    return (rank < handle_.ranks && number_ < handle_.channels) || fail(cuda::Why::kOutside, rank);
  }
  TUTTI_DEVICE bool has_window(unsigned rank, std::uint64_t offset, std::uint64_t count,
                               std::uint64_t size = 1) {
    const bool countable = count <= ~std::uint64_t{0} / size;  // Bytes that 64 bits hold.
    return (rank < handle_.ranks && countable && handle_.contains(offset, count * size)) ||
           fail(cuda::Why::kOutside, rank, offset);
  }

  /// After polls in vain. Each wait has the whole time limit for itself.
  TUTTI_DEVICE bool gives_up(unsigned rank, std::uint64_t& begin_ns) {
    const auto refuses = [&](cuda::Why why) { return !fail(why, rank); };
    if (cuda::load_relaxed(&handle_.report->why) != 0) return refuses(cuda::Why::kAborted);
    if (cuda::load_relaxed(cuda::told_on(handle_.boards[handle_.rank])) != 0)
      return refuses(cuda::Why::kTold);
    const std::uint64_t now = cuda::now_ns();
    if (begin_ns == 0) begin_ns = now;
    return now - begin_ns >= handle_.timeout_ns && refuses(cuda::Why::kTimedOut);
  }

  /// Returns false.
  TUTTI_DEVICE bool fail(cuda::Why why, unsigned peer, std::uint64_t offset = 0) {
    why_ = why;
    detail::report_failure(handle_, number_, why, peer, offset);
    return false;
  }

  template <DataType type, ReduceOp op, class Target>
  TUTTI_DEVICE void reduce_any(std::uint64_t offset, std::uint64_t count, Threads by,
                               unsigned targets, Target target) const {
    static_assert(is_supported(type, op) && op != ReduceOp::kPreMulSum,
                  "no operation of this type, or one whose factors are not known");
    // Fewer values at a time for few ranks.
    if (handle_.ranks <= 8) {
      reduce_among<type, op, 8>(offset, count, by, targets, target);
    } else {
      reduce_among<type, op, cuda::kMostDeviceRanks>(offset, count, by, targets, target);
    }
  }
  template <DataType type, ReduceOp op, unsigned kMost, class Target>
  TUTTI_DEVICE void reduce_among(std::uint64_t offset, std::uint64_t count, Threads by,
                                 unsigned targets, Target target) const {
    using Compute = cuda::UnitArithmetic<type, op>;
    using Bits = cuda::Bits<Compute::kBytes>;
    constexpr unsigned kElements = Compute::kElements, kAtOnce = 4;
#pragma unroll 1
    for (std::uint64_t unit = by.index; unit * kElements < count; unit += by.count) {
      const std::uint64_t left = count - unit * kElements, at = offset + unit * Compute::kBytes;
      const unsigned valid = left < kElements ? static_cast<unsigned>(left) : kElements;
      typename Compute::template TreeOf<kMost> tree;
#pragma unroll 1
      for (unsigned first = 0; first < handle_.ranks; first += kAtOnce) {
        Bits bits[kAtOnce];
#pragma unroll
        for (unsigned i = 0; i < kAtOnce; ++i) {
          bits[i] = first + i < handle_.ranks
                        ? detail::load_unit<type>(handle_.windows[first + i] + at, valid)
                        : cuda::zero_bits<Compute::kBytes>();
        }
#pragma unroll
        for (unsigned i = 0; i < kAtOnce; ++i) {
          if (first + i < handle_.ranks) tree.add(first + i, Compute::widened(bits[i]));
        }
      }
      auto values = tree.root(handle_.ranks);
#pragma unroll
      for (unsigned e = 0; e < kElements; ++e)
        values.of[e] = kernels::finish<op>(values.of[e], static_cast<int>(handle_.ranks));
      const Bits sum = Compute::stored(values);
#pragma unroll 1
      for (unsigned i = 0; i < targets; ++i)
        detail::store_unit<type>(target(i) + unit * Compute::kBytes, sum, valid);
    }
  }

  const DeviceHandle& handle_;
  unsigned number_;
  cuda::Why why_ = cuda::Why::kNothing;  // Why this thread gave up.
};

}  // namespace tutti::device
