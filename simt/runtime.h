// File: simt/runtime.h: the simulated CUDA runtime's own state.
//
// It is linked in place of libcudart and defines its functions, with the toolkit's own prototypes,
// so that host code is compiled and tested as it is. Devices are pretended, as many as
// Settings::devices. A stream is a thread with a queue. Device memory is a memfd, so that an IPC
// handle, opened in another process, maps the same memory. A function that is not simulated does
// not link with tests; in programs that load the runtime it says so when it is called
// (runtime_nvcc.cc).
//
// Like on a GPU: launches return before the kernel runs, fresh memory is not zero, an IPC handle
// can't be opened where it was made, cudaFree waits for the device, the legacy default stream waits
// for all others that are not non-blocking, a device has room for so many blocks.
#pragma once
#include <cuda_runtime_api.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <type_traits>
#include <vector>

#include "simt/engine.h"

namespace tutti::simt {

inline constexpr int kMostDevices = 64;
inline constexpr int kHighestPriority = -5;  // A stream has at most this; the lowest is 0.
inline bool exists(int device) { return device >= 0 && device < settings().devices; }

/// The device of this thread's context; of the one that it has chosen, or 0, if it has none: for
/// what takes a context there.
int this_device();
/// That device, or -1: this thread has no context; and makes one current, or none (-1).
int current_context();
void set_current_context(int device);
void make_context(int device);
/// Devices that this process has contexts on, a bit for each; on a GPU that is memory.
std::uint64_t contexts();
/// Keeps an error for cudaGetLastError, and returns it.
cudaError_t failed(cudaError_t error);
template <class T>
cudaError_t answer(T* to, std::type_identity_t<T> value) {
  *to = value;
  return cudaSuccess;
}
/// Says on stderr, once for each, that a program's own kernel is not run.
void say_foreign_kernel(const void* function);

/// Something that happens once.
class Ticket {
 public:
  void fire();
  bool fired();
  void wait();
  /// The time of the monotonic clock when it fired.
  double time_s() const { return time_s_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool fired_ = false;
  double time_s_ = 0;
};
using TicketPtr = std::shared_ptr<Ticket>;

using Operation = std::function<void()>;

/// A queue from the host to a device, to which several streams are dealt: a command waits for that
/// of another stream in front of it.
class HardwareQueue {
 public:
  explicit HardwareQueue(int number) : number_(number) {}
  int number() const { return number_; }
  /// Adds a stream's command; `in_front` is what that waits for, null if its own stream's is.
  struct InFront {
    TicketPtr done;
    std::uint64_t stream = 0;
  };
  InFront add(std::uint64_t stream, const TicketPtr& done);

 private:
  int number_;
  std::mutex mutex_;
  InFront last_;  // Guarded by mutex_.
};

/// A captured operation. Each launch of the graph asks it, in order, for what to run, because only
/// then it is known what an event node waits for or records.
using Node = std::function<Operation()>;

/// What an operation that is captured next comes after: by stream (its id), how many of the graph's
/// nodes there were with that stream's latest.
using Before = std::map<std::uint64_t, std::size_t>;

/// The rules of a capture.
struct CaptureRules {
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;  // The thread that began it.
};

}  // namespace tutti::simt

/// The object behind a cudaGraph_t: operations in an order that their dependencies allow.
struct CUgraph_st {
  std::vector<tutti::simt::Node> nodes;
  tutti::simt::Before latest;  // Each stream's latest node.
  unsigned long long id = 0;   // The capture's.
  tutti::simt::CaptureRules rules;
  // relaxed: a thread that finds a capture invalidated reads nothing else because of it.
  std::atomic<bool> invalidated{false};
};
struct CUgraphExec_st {
  std::vector<tutti::simt::Node> nodes;
  std::mutex mutex;             // Guards what follows.
  tutti::simt::TicketPtr last;  // The launch before: launches of one graph run one after the other.
};

/// The object behind a cudaStream_t.
struct CUstream_st {
  int device = 0;
  unsigned flags = 0;
  bool legacy = false;  // The device's default stream.
  int priority = 0;
  std::uint64_t id = 0;
  tutti::simt::HardwareQueue* hardware = nullptr;
  std::mutex mutex;  // Guards what follows.
  std::condition_variable changed;
  struct Entry {
    tutti::simt::Operation run;
    std::size_t commands;
  };
  std::deque<Entry> queue;
  std::size_t commands = 0;  // In the queue, or about to be.
  bool closing = false, started = false;
  tutti::simt::TicketPtr last;
  std::shared_ptr<CUgraph_st> capture;  // Operations go there instead.
  bool began_capture = false;
  tutti::simt::Before before;  // In the capture.
};

/// The object behind a cudaEvent_t.
struct CUevent_st {
  /// In memory that processes share: how often it was recorded, and how far that has come.
  struct Shared {
    std::atomic<std::uint64_t> recorded, done;
  };
  unsigned flags = 0;
  int device = 0;
  int fd = -1;
  Shared* shared = nullptr;
  std::mutex mutex;  // Guards what follows.
  tutti::simt::TicketPtr last;
  std::shared_ptr<CUgraph_st> capture;  // It was recorded into,
  tutti::simt::Before before;           // after these.
  CUevent_st() = default;
  ~CUevent_st();
  CUevent_st(const CUevent_st&) = delete;
  CUevent_st& operator=(const CUevent_st&) = delete;
  /// Maps what processes share, and owns its descriptor then; false: it can't be.
  bool share(int descriptor);
};

namespace tutti::simt {

using StreamPtr = std::shared_ptr<CUstream_st>;
using EventPtr = std::shared_ptr<CUevent_st>;

/// The stream of a handle, a default stream of this device for the null handle: the legacy one, or
/// this thread's (per_thread.h). Null: no such.
StreamPtr find_stream(cudaStream_t handle);
/// Declares `stream` as that of a handle, or leaves the function with an error.
#define TUTTI_SIMT_FIND(stream, handle)                        \
  const ::tutti::simt::StreamPtr stream = find_stream(handle); \
  if (stream == nullptr) return failed(cudaErrorInvalidResourceHandle)
/// The same for events.
EventPtr find_event(cudaEvent_t handle);
cudaEvent_t event_handle(EventPtr event);
#define TUTTI_SIMT_FIND_EVENT(event, handle)                \
  const ::tutti::simt::EventPtr event = find_event(handle); \
  if (event == nullptr) return failed(cudaErrorInvalidResourceHandle)
/// How an operation goes into a stream that is not captured.
struct Enqueue {
  std::size_t commands = 1;  // As many as it takes of the stream's queue (Settings::launch_queue).
  TicketPtr* ticket = nullptr;  // Gets what fires when the operation is done.
  // Not null: the call waits for that, and other threads' launches on the device wait for the call.
  const char* waits = nullptr;
};
/// Runs the operation after all that the stream has to do before, or captures it.
cudaError_t enqueue(cudaStream_t handle, Operation operation, const Enqueue& how = {});
/// What a process' calls on a device have to have, one at a time: to put work into a stream, and as
/// long as calls wait that keep others from that.
std::mutex& launching(int device);
/// Whether this thread must not allocate, free, query or wait now, because streams are being
/// captured. If so, it invalidates their captures, as CUDA does.
bool capture_forbids();
/// Adds an operation to the stream's capture; the stream's mutex is held.
cudaError_t add_node(CUstream_st& stream, Node node);
void invalidate(CUgraph_st& capture);
/// Whether the stream is the legacy one, which would wait for a stream that is captured: it can't
/// be used until that capture ends.
bool waits_for_capture(const CUstream_st& stream);
/// The same, and then invalidates those captures.
bool spoils_capture(const CUstream_st& stream);
/// Invalidates the captures of the device's streams; false: there are none.
bool invalidate_captures_of(int device);
/// Calls `body` for each stream, with its mutex held.
void for_each_stream(const std::function<void(CUstream_st&)>& body);
/// Waits for what is in the stream now.
cudaError_t drain(const StreamPtr& stream);
/// What is synchronous in CUDA: `enqueue_it` puts work into the default stream, which is waited
/// for.
cudaError_t at_once(const std::function<cudaError_t()>& enqueue_it);
/// Waits for all that the device has to do now.
void drain_device(int device);
/// The same, before memory is freed (Settings::free_locks); `what` is said if it never ends.
void stop_device(int device, const char* what);

/// Whether a range that begins in an allocation ends in it, or in memory mapped right behind it.
bool within(const void* at, std::size_t bytes);

enum class MemoryKind { kDevice, kPool, kHost, kRegistered, kIpc, kMapped };
struct Allocation {
  char* base = nullptr;
  std::size_t bytes = 0;
  std::size_t mapped_bytes = 0;
  int device = 0;  // The owner of the memory; for kHost the device that asked.
  MemoryKind kind = MemoryKind::kDevice;
  int fd = -1;
  int importer = -1;            // kIpc: the device that opened it.
  std::uint64_t accessors = 0;  // kMapped: a bit for each device that may access it.
  std::uint64_t inode = 0;      // kIpc: of the memory that was opened,
  int opened = 0;               // and how often it is open.
};
bool is_of_pool(const void* at);
/// Whether it is a host's memory; and of that, the kind that cards can't get at: memory of which
/// the runtime knows nothing.
bool is_host(const void* at);
bool is_pageable(const void* at);
/// In the order of a stream, which is all that it and freeing it wait for; of one device alone.
cudaError_t allocate_of_pool(void** at, std::size_t bytes, cudaStream_t stream);
/// For a variable of a program: also while streams are captured. False: there is not so much left.
bool allocate_variable(void** at, std::size_t bytes, int device);
/// Takes it from a device's memory; false: there is not so much left.
bool take_memory(int device, std::size_t bytes);
void give_memory(int device, std::size_t bytes);
/// Device memory that the driver mapped (cuMemMap), and devices that may access it besides those
/// that could before.
void remember_mapping(void* base, std::size_t bytes, int device, std::uint64_t accessors);
void forget_mapping(void* base);
/// The allocation or the mapping of a device's memory that has the address; false: none.
bool find_memory(const void* at, void** base, std::size_t* bytes);

/// A memfd, and its number; -1 if there is no memory.
int make_memfd(const char* name, std::size_t bytes);
/// The descriptor that another process keeps open under that number; -1 if it can't be had.
int open_of_process(int process, int fd);
/// Whether handles of other processes can't be opened here, as between containers.
void refuse_handles(bool refuse);
bool handles_are_refused();
/// How often this process has freed memory that another one had open by an IPC handle, which is
/// undefined (cudaIpcCloseMemHandle).
int freed_while_open();
/// A descriptor for cards (dma-buf) of a device's memory, of whole pages of the device, 64 KiB
/// each; -1: it has none.
int export_range(const void* at, std::size_t bytes);
/// Whether streams of devices can neither write values of 64 bits nor wait for them.
void refuse_stream_values(bool refuse);
bool stream_values_are_refused();
/// For tests that pretend network cards: called with the device whose memory is flushed
/// (cudaDeviceFlushGPUDirectRDMAWrites), by the thread that flushes. Null: not called.
void set_flush(void (*flush)(int device));
/// As what devices can export memory that the driver makes (CUmemAllocationHandleType, as bits):
/// descriptors by default, as on most machines. And whether the system lets processes make any.
void share_as(unsigned types, bool permitted = true);
/// A function of the driver by its name: one of ours, which libcuda.so.1 does not show, or one of
/// its; of those that take a stream, or use the default one, the version where null is this
/// thread's. Null: there is none.
void* driver_entry(std::string_view name, bool per_thread);

}  // namespace tutti::simt
