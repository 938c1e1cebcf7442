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
  for (CudaEvent* event : {&launched_.event, &in_capture_.event, &join_})
    TUTTI_RETURN_IF_ERROR(event->make());
  return ok();
}

Status LaunchOrder::enter(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long capture_id = 0, stream_id = 0;
  TUTTI_RETURN_IF_ERROR(exec::cuda_status(cudaStreamGetCaptureInfo(stream, &status, &capture_id),
                                          "asking a stream whether it is captured"));
  TUTTI_RETURN_IF_ERROR(
      exec::cuda_status(cudaStreamGetId(stream, &stream_id), "asking for a stream's id"));
  const bool capturing = status == cudaStreamCaptureStatusActive;
  current_ = capturing ? &in_capture_ : &launched_;
  const bool same_stream = current_->there && current_->stream == stream_id;
  current_->stream = stream_id;
  if (!capturing) {
    // A replay may have come since, on another stream.
    return same_stream && !captured_ ? ok() : launched_.event.hold(stream);
  }
  const bool first = !in_capture_.there || capture_id != capture_;
  captured_ = true;
  capture_ = capture_id;
  if (first) return launched_.event.hold_by_graph(stream);
  return same_stream ? ok() : in_capture_.event.hold(stream);
}

Status LaunchOrder::leave(cudaStream_t stream) {
  calls_.fetch_add(1, std::memory_order_relaxed);
  current_->there = true;
  if (current_ == &in_capture_) TUTTI_RETURN_IF_ERROR(launched_.event.record_by_graph(stream));
  return current_->event.record(stream);
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
  for (const cudaStream_t stream : streams) TUTTI_RETURN_IF_ERROR(current_->event.hold(stream));
  return ok();
}

}  // namespace tutti
