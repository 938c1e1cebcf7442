// File: simt/runtime_stream.cc: streams, events, graphs.
//
// Capture. A captured operation is a closure, kept in the order of the calls. Streams that wait for
// an event of a capture join it. That order respects all dependencies, so a graph is replayed in
// just that order, by one stream; branches that could run side by side don't.
#include <sys/mman.h>
#include <unistd.h>

#include <map>
#include <set>
#include <thread>
#include <utility>

#include "simt/runtime.h"

namespace tutti::simt {
namespace {

using Lock = std::unique_lock<std::mutex>;

double clock_s() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(since).count();
}

/// Never destroyed: workers that are asleep at the process's end refer to it.
struct Streams {
  std::mutex mutex;
  std::map<cudaStream_t, StreamPtr> by_handle;
  std::set<StreamPtr> all;
  StreamPtr defaults[kMostDevices];
  std::uint64_t next_id = 1;
};
Streams& streams() {
  static auto& one = *new Streams;
  return one;
}

/// With streams().mutex held.
StreamPtr make_stream(int device, unsigned flags, bool legacy) {
  auto stream = std::make_shared<CUstream_st>();
  stream->device = device;
  stream->flags = flags;
  stream->legacy = legacy;
  stream->id = streams().next_id++;
  streams().all.insert(stream);
  return stream;
}

void work(const StreamPtr& stream) {
  std::uint64_t random = stream->id * 0x9E3779B97F4A7C15ull + settings().seed;
  for (;;) {
    Operation operation;
    {
      Lock lock(stream->mutex);
      stream->changed.wait(lock, [&] { return !stream->queue.empty() || stream->closing; });
      if (stream->queue.empty()) return;
      operation = std::move(stream->queue.front());
      stream->queue.pop_front();
    }
    if (settings().jitter) {
      random = random * 6364136223846793005ull + 1442695040888963407ull;
      usleep(static_cast<useconds_t>((random >> 33) % 2000));
    }
    operation();
  }
}

bool blocking(const CUstream_st& stream) {
  return !stream.legacy && (stream.flags & cudaStreamNonBlocking) == 0;
}

/// What the default stream waits for, or what waits for it.
std::vector<TicketPtr> implicit_dependencies(const StreamPtr& stream) {
  std::vector<TicketPtr> tickets;
  if (!stream->legacy && !blocking(*stream)) return tickets;
  const Lock lock(streams().mutex);
  for (const StreamPtr& other : streams().all) {
    if (other == stream || other->device != stream->device) continue;
    if (stream->legacy ? !blocking(*other) : !other->legacy) continue;
    const Lock other_lock(other->mutex);
    if (other->last != nullptr) tickets.push_back(other->last);
  }
  return tickets;
}

}  // namespace

void Ticket::fire() {
  {
    const Lock lock(mutex_);
    fired_ = true;
    time_s_ = clock_s();
  }
  changed_.notify_all();
}

bool Ticket::fired() {
  const Lock lock(mutex_);
  return fired_;
}

void Ticket::wait() {
  Lock lock(mutex_);
  changed_.wait(lock, [this] { return fired_; });
}

StreamPtr find_stream(cudaStream_t handle) {
  const Lock lock(streams().mutex);
  if (handle == nullptr || handle == cudaStreamLegacy) {
    StreamPtr& stream = streams().defaults[this_device()];
    if (stream == nullptr) stream = make_stream(this_device(), 0, true);
    return stream;
  }
  const auto found = streams().by_handle.find(handle);
  return found == streams().by_handle.end() ? nullptr : found->second;
}

cudaError_t enqueue(cudaStream_t handle, Operation operation, TicketPtr* ticket) {
  const StreamPtr stream = find_stream(handle);
  if (stream == nullptr) return failed(cudaErrorInvalidResourceHandle);
  {
    const Lock lock(stream->mutex);
    if (stream->capture != nullptr) {
      stream->capture->operations.push_back(std::move(operation));
      return cudaSuccess;
    }
  }
  auto done = std::make_shared<Ticket>();
  if (ticket != nullptr) *ticket = done;
  auto run = [before = implicit_dependencies(stream), run_it = std::move(operation), done] {
    for (const TicketPtr& other : before) other->wait();
    run_it();
    done->fire();
  };
  const Lock lock(stream->mutex);
  if (!stream->started) {
    stream->started = true;
    std::thread(work, stream).detach();
  }
  stream->last = done;
  stream->queue.emplace_back(std::move(run));
  stream->changed.notify_one();
  return cudaSuccess;
}

cudaError_t drain(const StreamPtr& stream) {
  TicketPtr last;
  {
    const Lock lock(stream->mutex);
    if (stream->capture != nullptr) return failed(cudaErrorStreamCaptureUnsupported);
    last = stream->last;
  }
  if (last != nullptr) last->wait();
  return cudaSuccess;
}

void drain_device(int device) {
  std::vector<TicketPtr> busy;
  {
    const Lock lock(streams().mutex);
    for (const StreamPtr& stream : streams().all) {
      const Lock stream_lock(stream->mutex);
      if (stream->device == device && stream->last != nullptr) busy.push_back(stream->last);
    }
  }
  for (const TicketPtr& last : busy) last->wait();
}

namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
std::atomic<unsigned long long> captures{0};
std::atomic<int> forbidding{0};  // Captures under way that keep all threads from what is not safe.

bool reached(const CUevent_st::Shared* shared, std::uint64_t count) {
  // acquire: pairs with the exchange in cudaEventRecord's operation.
  return shared->done.load(std::memory_order_acquire) >= count;
}

void wait_until(const CUevent_st::Shared* shared, std::uint64_t count) {
  while (!reached(shared, count)) usleep(20);
}

/// Those of the device's streams; false: there are none.
bool spoil_captures(int device) {
  const Lock lock(streams().mutex);
  bool any = false;
  for (const StreamPtr& stream : streams().all) {
    const Lock stream_lock(stream->mutex);
    if (stream->device != device || stream->capture == nullptr) continue;
    stream->capture->spoiled = any = true;
  }
  return any;
}

TicketPtr last_of(CUevent_st& event) {
  const Lock lock(event.mutex);
  return event.last;
}

}  // namespace

bool capture_forbids() { return thread_mode != cudaStreamCaptureModeRelaxed && forbidding > 0; }

}  // namespace tutti::simt

using namespace tutti::simt;

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int) {
  const Lock lock(streams().mutex);
  const StreamPtr stream = make_stream(this_device(), flags, false);
  *handle = stream.get();
  streams().by_handle[*handle] = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* handle) {
  return cudaStreamCreateWithPriority(handle, cudaStreamDefault, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {  // What is queued still runs.
  const StreamPtr stream = find_stream(handle);
  if (stream == nullptr || stream->legacy) return failed(cudaErrorInvalidResourceHandle);
  {
    const Lock lock(streams().mutex);
    streams().by_handle.erase(handle);
    streams().all.erase(stream);
  }
  const Lock lock(stream->mutex);
  stream->closing = true;
  stream->changed.notify_all();
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const StreamPtr stream = find_stream(handle);
  return stream != nullptr ? drain(stream) : failed(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const StreamPtr stream = find_stream(handle);
  if (stream == nullptr) return failed(cudaErrorInvalidResourceHandle);
  const Lock lock(stream->mutex);
  return stream->last == nullptr || stream->last->fired() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaDeviceSynchronize() {
  if (capture_forbids()) return failed(cudaErrorStreamCaptureUnsupported);
  // However relaxed the thread is: what a device does can't be waited for while that is captured.
  if (spoil_captures(this_device())) return failed(cudaErrorStreamCaptureUnsupported);
  drain_device(this_device());
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return enqueue(handle, [=] { function(data); });
}

// Graphs.
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  const StreamPtr stream = find_stream(handle);
  if (stream == nullptr) return failed(cudaErrorInvalidResourceHandle);
  if (stream->legacy) return failed(cudaErrorStreamCaptureUnsupported);
  const Lock lock(stream->mutex);
  if (stream->capture != nullptr) return failed(cudaErrorIllegalState);
  stream->capture = std::make_shared<CUgraph_st>();
  stream->capture->id = ++captures;
  stream->began_capture = true;
  stream->forbids = mode == cudaStreamCaptureModeGlobal;
  if (stream->forbids) ++forbidding;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  const StreamPtr stream = find_stream(handle);
  if (stream == nullptr) return failed(cudaErrorInvalidResourceHandle);
  std::shared_ptr<CUgraph_st> captured;
  {
    const Lock lock(stream->mutex);
    if (!stream->began_capture) return failed(cudaErrorIllegalState);
    captured = std::exchange(stream->capture, nullptr);
    stream->began_capture = false;
    if (std::exchange(stream->forbids, false)) --forbidding;
  }
  const Lock lock(streams().mutex);
  for (const StreamPtr& other : streams().all) {
    const Lock other_lock(other->mutex);
    if (other->capture == captured) other->capture = nullptr;
  }
  *graph = captured->spoiled ? nullptr : new CUgraph_st(*captured);
  return *graph != nullptr ? cudaSuccess : failed(cudaErrorStreamCaptureInvalidated);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  const StreamPtr stream = find_stream(handle);
  if (stream == nullptr) return failed(cudaErrorInvalidResourceHandle);
  const Lock lock(stream->mutex);
  *status =
      stream->capture != nullptr ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, std::size_t*) {
#else
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id) {
#endif
  const StreamPtr stream = find_stream(handle);
  if (stream == nullptr) return failed(cudaErrorInvalidResourceHandle);
  const Lock lock(stream->mutex);
  const bool active = stream->capture != nullptr;
  *status = active ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  if (active && id != nullptr) *id = stream->capture->id;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  *executable = new CUgraphExec_st{graph->operations};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  return enqueue(handle, [operations = executable->operations] {
    for (const Operation& operation : operations) operation();
  });
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}

// Events.
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  auto event = std::make_unique<CUevent_st>();
  event->flags = flags;
  event->device = this_device();
  if ((flags & cudaEventInterprocess) != 0) {
    if ((flags & cudaEventDisableTiming) == 0) return failed(cudaErrorInvalidValue);
    event->fd = make_memfd("simt-event", sizeof(CUevent_st::Shared));
    void* memory =
        mmap(nullptr, sizeof(CUevent_st::Shared), PROT_READ | PROT_WRITE, MAP_SHARED, event->fd, 0);
    if (event->fd < 0 || memory == MAP_FAILED) return failed(cudaErrorMemoryAllocation);
    event->shared = static_cast<CUevent_st::Shared*>(memory);
  }
  *handle = event.release();
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* handle) {
  return cudaEventCreateWithFlags(handle, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (event->shared != nullptr) {
    munmap(event->shared, sizeof(CUevent_st::Shared));
    close(event->fd);
  }
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  const StreamPtr stream = find_stream(handle);
  if (stream == nullptr) return failed(cudaErrorInvalidResourceHandle);
  {
    const Lock lock(stream->mutex);
    const Lock event_lock(event->mutex);
    event->capture = stream->capture;
    if (stream->capture != nullptr) return cudaSuccess;
  }
  CUevent_st::Shared* shared = event->shared;
  const std::uint64_t count = shared != nullptr ? ++shared->recorded : 0;
  TicketPtr ticket;
  const cudaError_t error = enqueue(
      handle,
      [=] {
        if (shared == nullptr) return;
        std::uint64_t done = shared->done.load();
        while (done < count && !shared->done.compare_exchange_weak(done, count)) continue;
      },
      &ticket);
  if (error != cudaSuccess) return error;
  const Lock lock(event->mutex);
  event->last = ticket;
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (event->shared != nullptr) {
    return reached(event->shared, event->shared->recorded) ? cudaSuccess : cudaErrorNotReady;
  }
  const TicketPtr last = last_of(*event);
  return last == nullptr || last->fired() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (event->shared != nullptr) {
    wait_until(event->shared, event->shared->recorded);
  } else if (const TicketPtr last = last_of(*event); last != nullptr) {
    last->wait();
  }
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  const TicketPtr first = last_of(*from), second = last_of(*to);
  if (first == nullptr || second == nullptr) return failed(cudaErrorInvalidResourceHandle);
  if (!first->fired() || !second->fired()) return cudaErrorNotReady;
  *milliseconds = static_cast<float>((second->time_s() - first->time_s()) * 1e3);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
  if (CUevent_st::Shared* shared = event->shared; shared != nullptr) {
    const std::uint64_t count = shared->recorded;
    return enqueue(handle, [=] { wait_until(shared, count); });
  }
  std::shared_ptr<CUgraph_st> capture;
  TicketPtr last;
  {
    const Lock lock(event->mutex);
    capture = event->capture;
    last = event->last;
  }
  const StreamPtr stream = find_stream(handle);
  if (stream == nullptr) return failed(cudaErrorInvalidResourceHandle);
  if (capture != nullptr) {  // The stream joins; the order of the calls is the dependency.
    const Lock lock(stream->mutex);
    stream->capture = capture;
    return cudaSuccess;
  }
  return last == nullptr ? cudaSuccess : enqueue(handle, [last] { last->wait(); });
}

}  // extern "C"
