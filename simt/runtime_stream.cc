// File: simt/runtime_stream.cc: streams.
#include <unistd.h>

#include <map>
#include <set>
#include <thread>
#include <utility>

#include "base/hash.h"
#include "simt/runtime.h"

namespace tutti::simt {
namespace {

using Lock = std::unique_lock<std::mutex>;

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
  std::uint64_t random = mix(stream->id) + settings().seed;
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

/// The streams for which the default stream waits, or that wait for it.
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
    time_s_ = now_s();
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

namespace {

void close(const StreamPtr& stream) {
  {
    const Lock lock(streams().mutex);
    streams().by_handle.erase(stream.get());
    streams().all.erase(stream);
  }
  const Lock lock(stream->mutex);
  stream->closing = true;
  stream->changed.notify_all();
}

/// The default streams of this thread, by device.
struct OwnStreams {
  std::map<int, StreamPtr> by_device;
  ~OwnStreams() {
    for (const auto& [device, stream] : by_device) close(stream);
  }
};

}  // namespace

StreamPtr find_stream(cudaStream_t handle) {
  if (handle == cudaStreamPerThread) {
    static thread_local OwnStreams own;
    StreamPtr& stream = own.by_device[this_device()];
    const Lock lock(streams().mutex);
    if (stream == nullptr) stream = make_stream(this_device(), cudaStreamDefault, false);
    return stream;
  }
  const Lock lock(streams().mutex);
  if (handle == nullptr || handle == cudaStreamLegacy) {
    StreamPtr& stream = streams().defaults[this_device()];
    if (stream == nullptr) stream = make_stream(this_device(), 0, true);
    return stream;
  }
  const auto found = streams().by_handle.find(handle);
  return found == streams().by_handle.end() ? nullptr : found->second;
}

std::mutex& launching(int device) {
  static auto* const devices = new std::mutex[kMostDevices];
  return devices[device];
}

cudaError_t enqueue(cudaStream_t handle, Operation operation, const Enqueue& how) {
  TUTTI_SIMT_FIND(stream, handle);
  if (spoils_capture(*stream)) return failed(cudaErrorStreamCaptureImplicit);
  {
    const Lock lock(stream->mutex);
    if (stream->capture != nullptr) {
      return add_node(*stream, [run_it = std::move(operation)] { return run_it; });
    }
  }
  auto done = std::make_shared<Ticket>();
  if (how.ticket != nullptr) *how.ticket = done;
  auto run = [before = implicit_dependencies(stream), run_it = std::move(operation), done] {
    for (const TicketPtr& other : before) other->wait();
    run_it();
    done->fire();
  };
  const Lock launch(launching(stream->device));
  {
    const Lock lock(stream->mutex);
    if (!stream->started) {
      stream->started = true;
      std::thread(work, stream).detach();
    }
    stream->last = done;
    stream->queue.emplace_back(std::move(run));
    stream->changed.notify_one();
  }
  if (how.waits == nullptr) return cudaSuccess;
  const Waiting waiting(how.waits);
  done->wait();
  return cudaSuccess;
}

cudaError_t drain(const StreamPtr& stream) {
  TicketPtr last;
  {
    const Lock lock(stream->mutex);
    if (stream->capture != nullptr) {
      invalidate(*stream->capture);
      return failed(cudaErrorStreamCaptureUnsupported);
    }
    last = stream->last;
  }
  if (last != nullptr) last->wait();
  return cudaSuccess;
}

cudaError_t at_once(const std::function<cudaError_t()>& enqueue_it) {
  if (capture_forbids()) return failed(cudaErrorStreamCaptureUnsupported);
  const cudaError_t error = enqueue_it();
  return error != cudaSuccess ? error : drain(find_stream(nullptr));
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

void stop_device(int device, const char* what) {
  const Waiting waiting(what);
  const Lock launch(launching(device));
  drain_device(device);
}

void for_each_stream(const std::function<void(CUstream_st&)>& body) {
  const Lock lock(streams().mutex);
  for (const StreamPtr& stream : streams().all) {
    const Lock stream_lock(stream->mutex);
    body(*stream);
  }
}

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
cudaError_t cudaStreamDestroy(cudaStream_t handle) {  // Queued work still runs.
  const StreamPtr stream = find_stream(handle);
  if (stream == nullptr || stream->legacy || handle == cudaStreamPerThread)
    return failed(cudaErrorInvalidResourceHandle);
  close(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  TUTTI_SIMT_FIND(stream, handle);
  if (capture_forbids()) return failed(cudaErrorStreamCaptureUnsupported);
  if (spoils_capture(*stream)) return failed(cudaErrorStreamCaptureImplicit);
  return drain(stream);
}
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  TUTTI_SIMT_FIND(stream, handle);
  if (capture_forbids()) return failed(cudaErrorStreamCaptureUnsupported);
  if (spoils_capture(*stream)) return failed(cudaErrorStreamCaptureImplicit);
  const Lock lock(stream->mutex);
  if (stream->capture != nullptr) {
    invalidate(*stream->capture);
    return failed(cudaErrorStreamCaptureUnsupported);
  }
  return stream->last == nullptr || stream->last->fired() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaDeviceSynchronize() {
  if (capture_forbids()) return failed(cudaErrorStreamCaptureUnsupported);
  // However relaxed the thread is: what a device does can't be waited for while that is captured.
  if (invalidate_captures_of(this_device())) return failed(cudaErrorStreamCaptureUnsupported);
  drain_device(this_device());
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
  return enqueue(handle, [=] { function(data); });
}

}  // extern "C"
