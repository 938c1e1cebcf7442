// File: simt/runtime_stream.cc: streams.
//
// A stream is a thread with a queue. What streams share is as on a GPU
// (https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html):
// CUDA_DEVICE_MAX_CONNECTIONS hardware queues, to which the streams of a device are dealt in turn.
// CUDA does not say how they are dealt, nor what may overtake what. Here nothing overtakes another
// stream's command, and the streams of each priority have queues of their own.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "base/hash.h"
#include "simt/handles.h"
#include "simt/per_thread.h"
#include "simt/runtime.h"

namespace tutti::simt {
namespace {

using Lock = std::unique_lock<std::mutex>;

/// Never destroyed: workers that are asleep at the process's end refer to it.
struct Streams {
  /// The hardware queues of a device, for streams of one priority.
  struct Queues {
    std::vector<std::unique_ptr<HardwareQueue>> all;
    std::size_t dealt = 0;

    HardwareQueue* deal() {
      const std::size_t number = dealt++ % static_cast<std::size_t>(settings().connections);
      while (all.size() <= number)
        all.push_back(std::make_unique<HardwareQueue>(static_cast<int>(all.size())));
      return all[number].get();
    }
  };
  std::mutex mutex;
  Handles<CUstream_st> by_handle;
  std::set<StreamPtr> all;
  StreamPtr defaults[kMostDevices];
  std::map<std::pair<int, int>, Queues> queues;  // By device and priority.
  std::uint64_t next_id = 1;
};
Streams& streams() {
  static auto& one = *new Streams;
  return one;
}

/// With streams().mutex held.
StreamPtr make_stream(int device, unsigned flags, bool legacy, int priority = 0) {
  auto stream = std::make_shared<CUstream_st>();
  stream->device = device;
  stream->flags = flags;
  stream->legacy = legacy;
  stream->priority = priority;
  stream->id = streams().next_id++;
  stream->hardware = streams().queues[{device, priority}].deal();
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
      if (stream->queue.empty()) break;
      operation = std::move(stream->queue.front().run);
      stream->commands -= stream->queue.front().commands;
      stream->queue.pop_front();
      stream->changed.notify_all();  // The host may wait for room.
    }
    if (settings().jitter) {
      random = random * 6364136223846793005ull + 1442695040888963407ull;
      usleep(static_cast<useconds_t>((random >> 33) % 2000));
    }
    operation();
  }
  const Lock lock(streams().mutex);
  streams().all.erase(stream);
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

std::string name_of(std::uint64_t stream, int device) {
  return "stream " + std::to_string(stream) + " of device " + std::to_string(device);
}

void wait_for(const HardwareQueue::InFront& front, const CUstream_st& stream) {
  if (front.done == nullptr || front.done->fired()) return;
  const Waiting waiting(
      name_of(stream.id, stream.device) + " waits for stream " + std::to_string(front.stream) +
      ", which is in front of it in hardware queue " + std::to_string(stream.hardware->number()) +
      " of " + std::to_string(settings().connections) + " (CUDA_DEVICE_MAX_CONNECTIONS)");
  front.done->wait();
}

/// Waits until the stream's queue has room for the commands, or nothing else, and takes it.
void take_room(CUstream_st& stream, std::size_t commands) {
  Lock lock(stream.mutex);
  const auto has_room = [&] {
    return stream.commands == 0 || stream.commands + commands <= settings().launch_queue;
  };
  if (!has_room()) {
    const Waiting waiting("a launch waits for room in the queue of " +
                          name_of(stream.id, stream.device) + ", which holds " +
                          std::to_string(settings().launch_queue) +
                          " commands (SIMT_LAUNCH_QUEUE)");
    stream.changed.wait(lock, has_room);
  }
  stream.commands += commands;
}

}  // namespace

HardwareQueue::InFront HardwareQueue::add(std::uint64_t stream, const TicketPtr& done) {
  const Lock lock(mutex_);
  InFront front = std::exchange(last_, {done, stream});
  return front.stream == stream ? InFront{} : front;
}

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

/// What waits for all of a device's streams waits for this one's work, too.
void close(const StreamPtr& stream) {
  const Lock all_lock(streams().mutex);
  const Lock lock(stream->mutex);
  if (!stream->started) streams().all.erase(stream);
  stream->closing = true;
  stream->changed.notify_all();
}

thread_local bool null_is_per_thread = false;

/// The default streams of this thread, by device.
struct OwnStreams {
  std::map<int, StreamPtr> by_device;
  ~OwnStreams() {
    for (const auto& [device, stream] : by_device) close(stream);
  }
};

}  // namespace

NullIsPerThread::NullIsPerThread() : before_(std::exchange(null_is_per_thread, true)) {}
NullIsPerThread::~NullIsPerThread() { null_is_per_thread = before_; }

StreamPtr find_stream(cudaStream_t handle) {
  if (handle == cudaStreamPerThread || (handle == nullptr && null_is_per_thread)) {
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
  return streams().by_handle.find(handle);
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
  take_room(*stream, how.commands);
  const auto before = implicit_dependencies(stream);
  const Lock launch(launching(stream->device));
  {
    const Lock lock(stream->mutex);
    if (!stream->started) {
      stream->started = true;
      std::thread(work, stream).detach();
    }
    stream->last = done;
    auto run = [before, done, of = stream.get(), front = stream->hardware->add(stream->id, done),
                run_it = std::move(operation)] {
      for (const TicketPtr& other : before) other->wait();
      wait_for(front, *of);
      run_it();
      done->fire();
    };
    stream->queue.push_back({std::move(run), how.commands});
    stream->changed.notify_all();
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
  Lock launch(launching(device), std::defer_lock);
  if (settings().free_locks) launch.lock();
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

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int priority) {
  const Lock lock(streams().mutex);
  const int within_range = std::clamp(priority, kHighestPriority, 0);
  *handle = streams().by_handle.add(make_stream(this_device(), flags, false, within_range));
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
  return cudaStreamCreateWithPriority(handle, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t* handle) {
  return cudaStreamCreateWithPriority(handle, cudaStreamDefault, 0);
}
cudaError_t cudaStreamDestroy(cudaStream_t handle) {  // Queued work still runs.
  const StreamPtr stream = streams().by_handle.take(handle);
  if (stream == nullptr) return failed(cudaErrorInvalidResourceHandle);
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
