// File: simt/runtime_graph.cc: capture, graphs, and events, which join captures.
//
// Capture. A captured operation is a node; nodes are kept in the order of the calls. Streams that
// wait for an event of a capture join it. The order of the calls respects all dependencies, so one
// stream replays a graph in that order; branches do not run in parallel.
//
// Events. To record or wait for an external event is a node, too. Each launch records the event
// anew. It waits for the record that was the latest when the graph was launched, or for that of an
// earlier node.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "simt/handles.h"
#include "simt/runtime.h"

namespace tutti::simt {
namespace {

using Lock = std::unique_lock<std::mutex>;

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;
// relaxed: a thread that must see another thread's capture synchronises with it by other means.
std::atomic<unsigned long long> captures_begun{0};
std::atomic<int> captures_open{0};

bool reached(const CUevent_st::Shared* shared, std::uint64_t count) {
  // acquire: pairs with the exchange in cudaEventRecord's operation.
  return shared->done.load(std::memory_order_acquire) >= count;
}

void wait_until(const CUevent_st::Shared* shared, std::uint64_t count) {
  while (!reached(shared, count)) usleep(20);
}

TicketPtr last_of(CUevent_st& event) {
  const Lock lock(event.mutex);
  return event.last;
}

/// The error for a host that asks for the event; cudaSuccess: it may ask.
cudaError_t forbids(CUevent_st& event) {
  if (capture_forbids()) return failed(cudaErrorStreamCaptureUnsupported);
  const Lock lock(event.mutex);
  if (event.capture == nullptr) return cudaSuccess;
  invalidate(*event.capture);
  return failed(cudaErrorCapturedEvent);
}

/// Whether a capture keeps this thread from what is not safe meanwhile, as
/// cudaThreadExchangeStreamCaptureMode says.
bool keeps_this_thread(const CaptureRules& rules) {
  if (rules.mode == cudaStreamCaptureModeRelaxed) return false;
  if (rules.thread == std::this_thread::get_id()) return true;
  return rules.mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
}

}  // namespace

void invalidate(CUgraph_st& capture) { capture.invalidated.store(true, std::memory_order_relaxed); }

cudaError_t add_node(CUstream_st& stream, Node node) {
  if (stream.capture->invalidated.load(std::memory_order_relaxed))
    return failed(cudaErrorStreamCaptureInvalidated);
  CUgraph_st& graph = *stream.capture;
  graph.nodes.push_back(std::move(node));
  stream.before[stream.id] = graph.latest[stream.id] = graph.nodes.size();
  return cudaSuccess;
}

bool capture_forbids() {
  if (thread_mode == cudaStreamCaptureModeRelaxed ||
      captures_open.load(std::memory_order_relaxed) == 0) {
    return false;
  }
  bool any = false;
  for_each_stream([&any](CUstream_st& stream) {
    if (!stream.began_capture || !keeps_this_thread(stream.capture->rules)) return;
    invalidate(*stream.capture);
    any = true;
  });
  return any;
}

bool invalidate_captures_of(int device) {
  bool any = false;
  for_each_stream([&any, device](CUstream_st& stream) {
    if (stream.device != device || stream.capture == nullptr) return;
    invalidate(*stream.capture);
    any = true;
  });
  return any;
}

namespace {

/// The captures that the legacy stream would wait for: those of its device's blocking streams.
bool for_each_implicit(const CUstream_st& legacy, const std::function<void(CUgraph_st&)>& body) {
  if (!legacy.legacy || captures_open.load(std::memory_order_relaxed) == 0) return false;
  bool any = false;
  for_each_stream([&](CUstream_st& stream) {
    const bool blocking = (stream.flags & cudaStreamNonBlocking) == 0;
    if (stream.device != legacy.device || stream.capture == nullptr || !blocking) return;
    body(*stream.capture);
    any = true;
  });
  return any;
}

}  // namespace

bool waits_for_capture(const CUstream_st& stream) {
  return for_each_implicit(stream, [](CUgraph_st&) {});
}
bool spoils_capture(const CUstream_st& stream) { return for_each_implicit(stream, invalidate); }

}  // namespace tutti::simt

using namespace tutti::simt;

namespace {

Handles<CUevent_st>& events() {
  static auto& one = *new Handles<CUevent_st>;
  return one;
}
Handles<CUgraphExec_st>& executables() {
  static auto& one = *new Handles<CUgraphExec_st>;
  return one;
}

/// The operations that a graph's launch makes of its nodes.
std::vector<Operation> operations_of(const std::vector<Node>& nodes) {
  std::vector<Operation> operations;
  operations.reserve(nodes.size());
  for (const Node& node : nodes) operations.push_back(node());
  return operations;
}

cudaError_t tell_capture(cudaStream_t handle, cudaStreamCaptureStatus* status,
                         unsigned long long* id) {
  TUTTI_SIMT_FIND(stream, handle);
  if (waits_for_capture(*stream)) return failed(cudaErrorStreamCaptureImplicit);
  const std::unique_lock lock(stream->mutex);
  *status = cudaStreamCaptureStatusNone;
  if (stream->capture == nullptr) return cudaSuccess;
  *status = stream->capture->invalidated.load(std::memory_order_relaxed)
                ? cudaStreamCaptureStatusInvalidated
                : cudaStreamCaptureStatusActive;
  if (id != nullptr) *id = stream->capture->id;
  return cudaSuccess;
}

/// Each launch of the graph records it.
Operation record_at_launch(const EventPtr& event) {
  auto done = std::make_shared<Ticket>();
  const std::unique_lock lock(event->mutex);
  event->last = done;
  return [done] { done->fire(); };
}

}  // namespace

namespace tutti::simt {
EventPtr find_event(cudaEvent_t handle) { return events().find(handle); }
cudaEvent_t event_handle(EventPtr event) { return events().add(std::move(event)); }
}  // namespace tutti::simt

CUevent_st::~CUevent_st() {
  if (shared == nullptr) return;
  munmap(shared, sizeof(Shared));
  close(fd);
}

bool CUevent_st::share(int descriptor) {
  void* memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) {
    if (descriptor >= 0) close(descriptor);
    return false;
  }
  fd = descriptor;
  shared = static_cast<Shared*>(memory);
  return true;
}

extern "C" {

// Graphs.
cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  TUTTI_SIMT_FIND(stream, handle);
  if (stream->legacy) return failed(cudaErrorStreamCaptureUnsupported);
  const std::unique_lock lock(stream->mutex);
  if (stream->capture != nullptr) return failed(cudaErrorIllegalState);
  stream->capture = std::make_shared<CUgraph_st>();
  stream->capture->id = captures_begun.fetch_add(1, std::memory_order_relaxed) + 1;
  stream->capture->rules = {mode, std::this_thread::get_id()};
  stream->began_capture = true;
  stream->before.clear();
  captures_open.fetch_add(1, std::memory_order_relaxed);
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  TUTTI_SIMT_FIND(stream, handle);
  std::shared_ptr<CUgraph_st> captured;
  bool joined = true;
  {
    const std::unique_lock lock(stream->mutex);
    if (!stream->began_capture) return failed(cudaErrorIllegalState);
    const CaptureRules& rules = stream->capture->rules;
    if (rules.mode != cudaStreamCaptureModeRelaxed && rules.thread != std::this_thread::get_id())
      return failed(cudaErrorStreamCaptureWrongThread);
    for (const auto& [id, latest] : stream->capture->latest) joined &= stream->before[id] >= latest;
    captured = std::exchange(stream->capture, nullptr);
    stream->began_capture = false;
    captures_open.fetch_sub(1, std::memory_order_relaxed);
  }
  for_each_stream([&captured](CUstream_st& other) {
    if (other.capture == captured) other.capture = nullptr;
  });
  *graph = nullptr;
  const bool invalidated = captured->invalidated.load(std::memory_order_relaxed);
  invalidate(*captured);  // Some events may still refer to it.
  if (invalidated) return failed(cudaErrorStreamCaptureInvalidated);
  if (!joined) return failed(cudaErrorStreamCaptureUnjoined);
  auto made = std::make_unique<CUgraph_st>();
  made->nodes = captured->nodes;
  *graph = made.release();
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return tell_capture(handle, status, nullptr);
}
#if CUDART_VERSION >= 13000
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t*, const cudaGraphNode_t**,
                                     const cudaGraphEdgeData**, std::size_t*) {
#else
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id) {
#endif
  return tell_capture(handle, status, id);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, thread_mode);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long) {
  auto made = std::make_shared<CUgraphExec_st>();
  made->nodes = graph->nodes;
  *executable = executables().add(std::move(made));
  return cudaSuccess;
}
/// Runs after the stream's earlier work and after the graph's earlier launch on any stream.
cudaError_t cudaGraphLaunch(cudaGraphExec_t of, cudaStream_t handle) {
  TUTTI_SIMT_FIND(stream, handle);
  const auto executable = executables().find(of);
  if (executable == nullptr) return failed(cudaErrorInvalidValue);
  {
    const std::unique_lock lock(stream->mutex);
    if (stream->capture != nullptr) {  // It becomes a part of the graph that is captured there.
      for (const Node& node : executable->nodes) {
        if (const cudaError_t error = add_node(*stream, node); error != cudaSuccess) return error;
      }
      return cudaSuccess;
    }
  }
  const std::unique_lock lock(executable->mutex);
  const auto run = [before = executable->last, operations = operations_of(executable->nodes)] {
    if (before != nullptr) before->wait();
    for (const Operation& operation : operations) operation();
  };
  return enqueue(handle, run, {.commands = executable->nodes.size(), .ticket = &executable->last});
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  return executables().take(executable) != nullptr ? cudaSuccess : failed(cudaErrorInvalidValue);
}

// Events.
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
  auto event = std::make_shared<CUevent_st>();
  event->flags = flags;
  event->device = this_device();
  if ((flags & cudaEventInterprocess) != 0) {
    if ((flags & cudaEventDisableTiming) == 0) return failed(cudaErrorInvalidValue);
    if (!event->share(make_memfd("simt-event", sizeof(CUevent_st::Shared))))
      return failed(cudaErrorMemoryAllocation);
  }
  *handle = event_handle(std::move(event));
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* handle) {
  return cudaEventCreateWithFlags(handle, cudaEventDefault);
}
cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  return events().take(handle) != nullptr ? cudaSuccess : failed(cudaErrorInvalidResourceHandle);
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t of, cudaStream_t handle, unsigned flags) {
  TUTTI_SIMT_FIND_EVENT(event, of);
  TUTTI_SIMT_FIND(stream, handle);
  const bool external = (flags & cudaEventRecordExternal) != 0;
  {
    const std::unique_lock lock(stream->mutex);
    if (stream->capture != nullptr && external)
      return add_node(*stream, [event] { return record_at_launch(event); });
    if (external) return failed(cudaErrorInvalidValue);
    const std::unique_lock event_lock(event->mutex);
    event->capture = stream->capture;
    event->before = stream->before;
    if (stream->capture != nullptr) return cudaSuccess;
  }
  const std::uint64_t count = event->shared != nullptr ? ++event->shared->recorded : 0;
  TicketPtr ticket;
  const cudaError_t error =
      enqueue(handle,
              [event, count] {
                if (event->shared == nullptr) return;
                auto& reached = event->shared->done;
                std::uint64_t done = reached.load();
                while (done < count && !reached.compare_exchange_weak(done, count)) continue;
              },
              {.ticket = &ticket});
  if (error != cudaSuccess) return error;
  const std::unique_lock lock(event->mutex);
  event->last = ticket;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return cudaEventRecordWithFlags(event, handle, cudaEventRecordDefault);
}
cudaError_t cudaEventQuery(cudaEvent_t handle) {
  TUTTI_SIMT_FIND_EVENT(event, handle);
  if (const cudaError_t error = forbids(*event); error != cudaSuccess) return error;
  if (event->shared != nullptr) {
    return reached(event->shared, event->shared->recorded) ? cudaSuccess : cudaErrorNotReady;
  }
  const TicketPtr last = last_of(*event);
  return last == nullptr || last->fired() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  TUTTI_SIMT_FIND_EVENT(event, handle);
  if (const cudaError_t error = forbids(*event); error != cudaSuccess) return error;
  if (event->shared != nullptr) {
    wait_until(event->shared, event->shared->recorded);
  } else if (const TicketPtr last = last_of(*event); last != nullptr) {
    last->wait();
  }
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  TUTTI_SIMT_FIND_EVENT(from, begin);
  TUTTI_SIMT_FIND_EVENT(to, end);
  const TicketPtr first = last_of(*from), second = last_of(*to);
  if (first == nullptr || second == nullptr) return failed(cudaErrorInvalidResourceHandle);
  if (!first->fired() || !second->fired()) return cudaErrorNotReady;
  *milliseconds = static_cast<float>((second->time_s() - first->time_s()) * 1e3);
  return cudaSuccess;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t of, unsigned flags) {
  TUTTI_SIMT_FIND_EVENT(event, of);
  TUTTI_SIMT_FIND(stream, handle);
  std::shared_ptr<CUgraph_st> capture;
  Before before;
  TicketPtr last;
  {
    const std::unique_lock lock(event->mutex);
    capture = event->capture;
    before = event->before;
    last = event->last;
  }
  CUevent_st::Shared* const shared = event->shared;
  if ((flags & cudaEventWaitExternal) != 0) {
    const std::unique_lock lock(stream->mutex);
    if (stream->capture == nullptr || shared != nullptr) return failed(cudaErrorInvalidValue);
    return add_node(*stream, [event]() -> Operation {
      TicketPtr recorded = last_of(*event);
      if (recorded == nullptr) return [] {};
      return [recorded = std::move(recorded)] { recorded->wait(); };
    });
  }
  if (capture != nullptr) {  // The stream joins; the order of the calls is the dependency.
    const std::unique_lock lock(stream->mutex);
    if (stream->capture != nullptr && stream->capture != capture) {
      invalidate(*stream->capture);
      return failed(cudaErrorStreamCaptureMerge);
    }
    if (capture->invalidated.load(std::memory_order_relaxed))
      return failed(cudaErrorStreamCaptureInvalidated);
    if (stream->legacy) {
      invalidate(*capture);
      return failed(cudaErrorStreamCaptureUnsupported);
    }
    if (stream->capture == nullptr) stream->before.clear();
    for (const auto& [id, latest] : before)
      stream->before[id] = std::max(stream->before[id], latest);
    stream->capture = capture;
    return cudaSuccess;
  }
  if (shared == nullptr && last == nullptr) return cudaSuccess;  // It was never recorded.
  {
    const std::unique_lock lock(stream->mutex);
    if (stream->capture != nullptr) {  // A graph can't wait for work that is not captured.
      invalidate(*stream->capture);
      return failed(cudaErrorStreamCaptureIsolation);
    }
  }
  if (shared == nullptr) return enqueue(handle, [last] { last->wait(); });
  return enqueue(handle,
                 [event, count = shared->recorded.load()] { wait_until(event->shared, count); });
}

}  // extern "C"
