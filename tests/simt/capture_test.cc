// The simulated runtime's rules of capture (cudaThreadExchangeStreamCaptureMode, external events),
// and the parts of the library that keep to them.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "tutti/cuda.h"

namespace tutti {
namespace {

using test::new_stream;

#define OK(...) REQUIRE((__VA_ARGS__) == cudaSuccess)

/// Runs `body` in this thread while another one captures a stream; returns how the capture ends.
cudaError_t capture_beside(cudaStreamCaptureMode mode, const std::function<void()>& body) {
  std::promise<void> begun, done;
  cudaError_t end = cudaSuccess;
  std::thread other([&] {
    const cudaStream_t stream = new_stream(0);
    end = cudaStreamBeginCapture(stream, mode);
    begun.set_value();
    done.get_future().wait();
    cudaGraph_t graph = nullptr;
    if (end == cudaSuccess) end = cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  });
  begun.get_future().wait();
  body();
  done.set_value();
  other.join();
  return end;
}

struct Unsafe {
  const char* name;
  std::function<cudaError_t(cudaStream_t, cudaEvent_t)> call;
};
const std::vector<Unsafe> kUnsafe = {
    {"cudaEventQuery", [](cudaStream_t, cudaEvent_t event) { return cudaEventQuery(event); }},
    {"cudaEventSynchronize",
     [](cudaStream_t, cudaEvent_t event) { return cudaEventSynchronize(event); }},
    {"cudaStreamQuery", [](cudaStream_t stream, cudaEvent_t) { return cudaStreamQuery(stream); }},
    {"cudaStreamSynchronize",
     [](cudaStream_t stream, cudaEvent_t) { return cudaStreamSynchronize(stream); }},
    {"cudaMalloc",
     [](cudaStream_t, cudaEvent_t) {
       void* at = nullptr;
       const cudaError_t error = cudaMalloc(&at, 64);
       if (at != nullptr) cudaFree(at);
       return error;
     }},
    {"cudaHostRegister",
     [](cudaStream_t, cudaEvent_t) {
       static char page[64];
       const cudaError_t error = cudaHostRegister(page, sizeof page, 0);
       return error == cudaSuccess ? cudaHostUnregister(page) : error;
     }},
    {"cudaMemset",
     [](cudaStream_t, cudaEvent_t) {
       char bytes[8];
       return cudaMemset(bytes, 0, sizeof bytes);
     }},
    {"cudaMemcpy2D",
     [](cudaStream_t, cudaEvent_t) {
       char from[8] = {}, to[8];
       return cudaMemcpy2D(to, 8, from, 8, 8, 1, cudaMemcpyDefault);
     }},
};

TEST_CASE("another thread's global capture forbids queries and waits, and is invalidated by them") {
  const cudaStream_t stream = new_stream(0);
  cudaEvent_t event = nullptr;
  OK(cudaEventCreate(&event));
  OK(cudaEventRecord(event, stream));
  OK(cudaStreamSynchronize(stream));
  const cudaStreamCaptureMode modes[] = {
      cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed};
  for (const Unsafe& unsafe : kUnsafe) {
    for (const auto capture : modes) {
      for (const auto thread : modes) {
        CAPTURE(unsafe.name, static_cast<int>(capture), static_cast<int>(thread));
        const bool forbidden =
            capture == cudaStreamCaptureModeGlobal && thread == cudaStreamCaptureModeGlobal;
        cudaError_t said = cudaSuccess;
        const cudaError_t end = capture_beside(capture, [&] {
          auto mode = thread;
          cudaThreadExchangeStreamCaptureMode(&mode);
          said = unsafe.call(stream, event);
          cudaThreadExchangeStreamCaptureMode(&mode);
        });
        CHECK(said == (forbidden ? cudaErrorStreamCaptureUnsupported : cudaSuccess));
        CHECK(end == (forbidden ? cudaErrorStreamCaptureInvalidated : cudaSuccess));
      }
    }
  }
  cudaGetLastError();
  OK(cudaEventDestroy(event));
  OK(cudaStreamDestroy(stream));
}

TEST_CASE("a thread's own capture forbids queries unless it is relaxed") {
  const cudaStream_t stream = new_stream(0), other = new_stream(0);
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                          cudaStreamCaptureModeRelaxed}) {
    const bool forbidden = mode != cudaStreamCaptureModeRelaxed;
    OK(cudaStreamBeginCapture(stream, mode));
    CHECK(cudaStreamQuery(other) == (forbidden ? cudaErrorStreamCaptureUnsupported : cudaSuccess));
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    OK(cudaStreamIsCapturing(stream, &status));
    CHECK(status ==
          (forbidden ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive));
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph) ==
          (forbidden ? cudaErrorStreamCaptureInvalidated : cudaSuccess));
    if (graph != nullptr) OK(cudaGraphDestroy(graph));
  }
  // What is captured can't be asked for at all.
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  cudaEvent_t event = nullptr;
  OK(cudaEventCreate(&event));
  OK(cudaEventRecord(event, stream));
  CHECK(cudaEventQuery(event) == cudaErrorCapturedEvent);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
  OK(cudaEventDestroy(event));
  for (const cudaStream_t one : {stream, other}) OK(cudaStreamDestroy(one));
}

TEST_CASE("a blocking stream's capture forbids the legacy stream, which would wait for it") {
  cudaStream_t blocking = nullptr;
  OK(cudaStreamCreate(&blocking));
  const cudaStream_t other = new_stream(0);
  char bytes[8];
  for (const cudaStream_t captured : {blocking, other}) {
    const bool forbidden = captured == blocking;
    const cudaError_t said = forbidden ? cudaErrorStreamCaptureImplicit : cudaSuccess;
    CAPTURE(forbidden);
    for (const bool only_asks : {true, false}) {
      OK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
      cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
      CHECK(cudaStreamIsCapturing(cudaStreamLegacy, &status) == said);
      if (!only_asks) CHECK(cudaMemsetAsync(bytes, 0, sizeof bytes, cudaStreamLegacy) == said);
      cudaGraph_t graph = nullptr;
      CHECK(cudaStreamEndCapture(captured, &graph) ==
            (forbidden && !only_asks ? cudaErrorStreamCaptureInvalidated : cudaSuccess));
      if (graph != nullptr) OK(cudaGraphDestroy(graph));
    }
    OK(cudaStreamBeginCapture(captured, cudaStreamCaptureModeRelaxed));
    CHECK(cudaStreamSynchronize(cudaStreamLegacy) == said);
    cudaGraph_t graph = nullptr;
    CHECK((cudaStreamEndCapture(captured, &graph) == cudaSuccess) != forbidden);
    if (graph != nullptr) OK(cudaGraphDestroy(graph));
  }
  OK(cudaStreamSynchronize(cudaStreamLegacy));
  cudaGetLastError();
  for (const cudaStream_t one : {blocking, other}) OK(cudaStreamDestroy(one));
}

TEST_CASE("the thread that began a capture ends it, unless it is relaxed") {
  const cudaStream_t stream = new_stream(0);
  for (const auto mode : {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                          cudaStreamCaptureModeRelaxed}) {
    const bool relaxed = mode == cudaStreamCaptureModeRelaxed;
    OK(cudaStreamBeginCapture(stream, mode));
    cudaGraph_t graph = nullptr;
    cudaError_t said = cudaSuccess;
    std::thread([&] { said = cudaStreamEndCapture(stream, &graph); }).join();
    CHECK(said == (relaxed ? cudaSuccess : cudaErrorStreamCaptureWrongThread));
    if (!relaxed) OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphDestroy(graph));
  }
  OK(cudaStreamDestroy(stream));
}

TEST_CASE("a stream that joined a capture and worked has to be waited for before it ends") {
  const cudaStream_t stream = new_stream(0), side = new_stream(0);
  cudaEvent_t fork = nullptr, join = nullptr;
  OK(cudaEventCreate(&fork));
  OK(cudaEventCreate(&join));
  char bytes[8];
  struct {
    bool works, works_after;
    cudaError_t end;
  } const cases[] = {{false, false, cudaSuccess},
                     {true, false, cudaSuccess},
                     {true, true, cudaErrorStreamCaptureUnjoined}};
  for (const auto& one : cases) {
    CAPTURE(one.works, one.works_after);
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    OK(cudaMemsetAsync(bytes, 0, sizeof bytes, stream));
    OK(cudaEventRecord(fork, stream));
    OK(cudaStreamWaitEvent(side, fork, 0));
    if (one.works) OK(cudaMemsetAsync(bytes, 0, sizeof bytes, side));
    if (one.works) OK(cudaEventRecord(join, side));
    if (one.works) OK(cudaStreamWaitEvent(stream, join, 0));
    if (one.works_after) OK(cudaMemsetAsync(bytes, 0, sizeof bytes, side));
    cudaGraph_t graph = nullptr;
    CHECK(cudaStreamEndCapture(stream, &graph) == one.end);
    CHECK((graph != nullptr) == (one.end == cudaSuccess));
    if (graph != nullptr) OK(cudaGraphDestroy(graph));
  }
  cudaGetLastError();
  for (const cudaEvent_t event : {fork, join}) OK(cudaEventDestroy(event));
  for (const cudaStream_t one : {stream, side}) OK(cudaStreamDestroy(one));
}

TEST_CASE("tutti_cuda_relaxed_capture queries an event without breaking a capture") {
  cudaEvent_t event = nullptr;
  OK(cudaEventCreate(&event));
  cudaError_t said = cudaErrorUnknown;
  struct Asked {
    cudaEvent_t event;
    cudaError_t* said;
  } asked{event, &said};
  const auto query = [](void* data) {
    const Asked& one = *static_cast<Asked*>(data);
    *one.said = cudaEventQuery(one.event);
  };
  CHECK(capture_beside(cudaStreamCaptureModeGlobal, [&] {
          CHECK(tutti_cuda_relaxed_capture(query, &asked) == TUTTI_OK);
        }) == cudaSuccess);
  CHECK(said == cudaSuccess);
  // And the thread's mode is what it was.
  CHECK(capture_beside(cudaStreamCaptureModeGlobal, [&] { query(&asked); }) ==
        cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
  CHECK(tutti_cuda_relaxed_capture(nullptr, nullptr) == TUTTI_INVALID_ARGUMENT);
  OK(cudaEventDestroy(event));
}

TEST_CASE("tutti_cuda_is_capturing tells a captured stream from others, and disturbs no capture") {
  const cudaStream_t stream = new_stream(0), other = new_stream(0);
  const auto capturing = [](cudaStream_t asked) {
    int answer = -1;
    CHECK(tutti_cuda_is_capturing(asked, &answer) == TUTTI_OK);
    return answer;
  };
  CHECK(capturing(stream) == 0);
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  CHECK(capturing(stream) == 1);
  CHECK(capturing(other) == 0);
  CHECK(capturing(nullptr) == 0);  // The legacy stream, which can't be captured.
  std::thread([&] { CHECK(capturing(stream) == 1); }).join();
  cudaGraph_t graph = nullptr;
  OK(cudaStreamEndCapture(stream, &graph));
  CHECK(capturing(stream) == 0);
  CHECK(tutti_cuda_is_capturing(stream, nullptr) == TUTTI_INVALID_ARGUMENT);
  OK(cudaGraphDestroy(graph));
  for (const cudaStream_t one : {stream, other}) OK(cudaStreamDestroy(one));
}

TEST_CASE("memory that peers can map is allocated and freed while another thread captures") {
  CHECK(capture_beside(cudaStreamCaptureModeGlobal, [] {
          void* data = nullptr;
          CHECK(tutti_device_mem_alloc(0, &data, 4096) == TUTTI_OK);
          CHECK(tutti_device_mem_free(data) == TUTTI_OK);
        }) == cudaSuccess);
}

/// A little later, appends its number to those that came before.
struct Note {
  std::atomic<int>* list;
  int number;
};
void note_slowly(void* data) {
  const Note& note = *static_cast<Note*>(data);
  usleep(5000);
  note.list->store(note.list->load() * 10 + note.number);
}

TEST_CASE("external events order graphs and streams, in the order of launches") {
  const cudaStream_t first = new_stream(0), second = new_stream(0);
  cudaEvent_t event = nullptr;
  OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  std::atomic<int> list{0};
  Note one{&list, 1}, two{&list, 2};
  OK(cudaStreamBeginCapture(first, cudaStreamCaptureModeThreadLocal));
  OK(cudaStreamWaitEvent(first, event, cudaEventWaitExternal));
  OK(cudaLaunchHostFunc(first, note_slowly, &one));
  OK(cudaEventRecordWithFlags(event, first, cudaEventRecordExternal));
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  OK(cudaStreamEndCapture(first, &graph));
  OK(cudaGraphInstantiate(&executable, graph, 0));
  OK(cudaGraphDestroy(graph));
  OK(cudaEventQuery(event));  // It was only named.
  const auto eager = [&] {
    OK(cudaStreamWaitEvent(second, event, 0));
    OK(cudaLaunchHostFunc(second, note_slowly, &two));
    OK(cudaEventRecord(event, second));
  };
  eager();
  OK(cudaGraphLaunch(executable, first));
  CHECK(cudaEventQuery(event) == cudaErrorNotReady);
  eager();
  OK(cudaGraphLaunch(executable, first));
  OK(cudaEventSynchronize(event));
  CHECK(list == 2121);
  // One graph on two streams: its launches keep their order by themselves.
  OK(cudaGraphLaunch(executable, first));
  OK(cudaGraphLaunch(executable, second));
  eager();
  OK(cudaEventSynchronize(event));
  CHECK(list == 2121112);
  OK(cudaGraphExecDestroy(executable));
  OK(cudaEventDestroy(event));
  for (const cudaStream_t stream : {first, second}) OK(cudaStreamDestroy(stream));
}

TEST_CASE("a capture waits for nothing that is not captured, and external is for captures") {
  const cudaStream_t stream = new_stream(0), other = new_stream(0);
  cudaEvent_t event = nullptr;
  OK(cudaEventCreate(&event));
  CHECK(cudaStreamWaitEvent(stream, event, cudaEventWaitExternal) == cudaErrorInvalidValue);
  CHECK(cudaEventRecordWithFlags(event, stream, cudaEventRecordExternal) == cudaErrorInvalidValue);
  OK(cudaEventRecord(event, other));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CHECK(cudaStreamWaitEvent(stream, event, 0) == cudaErrorStreamCaptureIsolation);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  cudaGetLastError();
  OK(cudaEventDestroy(event));
  for (const cudaStream_t one : {stream, other}) OK(cudaStreamDestroy(one));
}

TEST_CASE("a driver's function that is not there is no error of the question") {
  void* function = &function;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSuccess;
  OK(cudaGetDriverEntryPointByVersion("cuNoSuchThing", &function, 12010, cudaEnableDefault,
                                      &result));
  CHECK(function == nullptr);
  CHECK(result == cudaDriverEntryPointSymbolNotFound);
  CHECK(cudaGetLastError() == cudaSuccess);
  for (const char* name : {"cuDeviceGet", "cuCtxSetCurrent", "cuGetErrorString"}) {
    CAPTURE(name);
    OK(cudaGetDriverEntryPointByVersion(name, &function, 12010, cudaEnableDefault, &result));
    CHECK(function != nullptr);
    CHECK(result == cudaDriverEntryPointSuccess);
  }
}

TEST_CASE("to ask for the id of a stream that is captured ends its capture") {
  const cudaStream_t stream = new_stream(0);
  unsigned long long id = 0;
  OK(cudaStreamGetId(stream, &id));
  OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeRelaxed));
  CHECK(cudaStreamGetId(stream, &id) == cudaErrorStreamCaptureUnsupported);
  cudaGraph_t graph = nullptr;
  CHECK(cudaStreamEndCapture(stream, &graph) == cudaErrorStreamCaptureInvalidated);
  OK(cudaStreamDestroy(stream));
  cudaGetLastError();  // The next test begins without errors.
}

}  // namespace
}  // namespace tutti
