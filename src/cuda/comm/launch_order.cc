#include "cuda/comm/launch_order.h"

namespace tutti {

Status CudaEvent::make() {
  cudaEvent_t event = nullptr;
  TUTTI_RETURN_IF_ERROR(exec::cuda_status(cudaEventCreateWithFlags(&event, cudaEventDisableTiming),
                                          "making an event"));
  event_.reset(event);
  return ok();
}
Status LaunchOrder::make() {
  for (CudaEvent* event : {&launched_, &in_capture_, &join_}) TUTTI_RETURN_IF_ERROR(event->make());
  return ok();
}

Status LaunchOrder::enter(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture_id = 0;
  TUTTI_RETURN_IF_ERROR(exec::cuda_status(cudaStreamGetCaptureInfo(stream, &status, &capture_id),
                                          "asking a stream whether it is captured"));
  if (status == cudaStreamCaptureStatusActive) return enter_captured(stream, capture_id);
  unsigned long long stream_id = 0;
  TUTTI_RETURN_IF_ERROR(
      exec::cuda_status(cudaStreamGetId(stream, &stream_id), "asking for a stream's id"));
  const bool same_stream = there_ && stream_ == stream_id;
  current_ = &launched_;
  stream_ = stream_id;
  // A replay may have come since, on another stream.
  return same_stream && !captured() ? ok() : launched_.hold(stream);
}

/// CUDA does not tell the id of a stream that is captured: asking ends the capture (CUDA 13 on an
/// H200). So each call waits for the one before; on the same stream the graph gets nothing by that.
Status LaunchOrder::enter_captured(cudaStream_t stream, unsigned long long capture) {
  const bool first = capture != capture_;
  current_ = &in_capture_;
  captured_.store(true, std::memory_order_relaxed);
  entered_ = capture;
  return first ? launched_.hold_by_graph(stream) : in_capture_.hold(stream);
}

Status LaunchOrder::leave(cudaStream_t stream) {
  calls_.fetch_add(1, std::memory_order_relaxed);
  if (current_ == &in_capture_) {
    capture_ = entered_;
    TUTTI_RETURN_IF_ERROR(launched_.record_by_graph(stream));
  } else {
    there_ = true;
  }
  return current_->record(stream);
}

Status LaunchOrder::join(std::span<const cudaStream_t> streams) const {
  for (std::size_t i = 1; i < streams.size(); ++i) {
    TUTTI_RETURN_IF_ERROR(join_.record(streams[i]));
    TUTTI_RETURN_IF_ERROR(join_.hold(streams.front()));
  }
  return ok();
}

Status LaunchOrder::fork(std::span<const cudaStream_t> streams) const {
  if (streams.size() < 2 || current_ == nullptr) return ok();  // Null: nothing was launched.
  for (const cudaStream_t stream : streams) TUTTI_RETURN_IF_ERROR(current_->hold(stream));
  return ok();
}

}  // namespace tutti
