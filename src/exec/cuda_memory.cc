#include "exec/cuda_memory.h"

#include <cstring>

namespace tutti::exec {
namespace {

/// What is put onto a stream of this thread's device, and done when this returns. The stream is its
/// own: the default one, and the device as a whole, would wait for what others run there, which may
/// be kernels that wait for this rank.
template <class Enqueue>
cudaError_t at_once(Enqueue enqueue) {
  cudaStream_t stream = nullptr;
  cudaError_t error = cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  if (error != cudaSuccess) return error;
  error = enqueue(stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(stream);
  cudaStreamDestroy(stream);
  return error;
}

cudaError_t copy_at_once(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return at_once(
      [=](cudaStream_t stream) { return cudaMemcpyAsync(to, from, bytes, kind, stream); });
}

}  // namespace

Status cuda_status(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return ok();
  cudaGetLastError();  // It is said here; the next call is not to find it again.
  return Error{Code::kSystem,
               what + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")"};
}

OnDevice::OnDevice(int device) {
  cudaGetDevice(&before_);
  cudaSetDevice(device);
}
OnDevice::~OnDevice() { cudaSetDevice(before_); }

CudaMemory& CudaMemory::operator=(CudaMemory&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

CudaMemory::~CudaMemory() {
  if (data_ == nullptr) return;
  const OnDevice on(device_);
  cudaFree(data_);
}

Result<CudaMemory> CudaMemory::allocate(int device, std::size_t bytes) {
  const OnDevice on(device);
  CudaMemory memory;
  memory.device_ = device;
  memory.bytes_ = bytes;
  if (bytes == 0) return memory;
  const std::string what =
      "allocating " + std::to_string(bytes) + " bytes on device " + std::to_string(device);
  void* data = nullptr;
  TUTTI_CHECK_OK(cuda_status(cudaMalloc(&data, bytes), what));
  memory.data_ = static_cast<std::byte*>(data);
  const auto clear = [=](cudaStream_t stream) { return cudaMemsetAsync(data, 0, bytes, stream); };
  TUTTI_CHECK_OK(cuda_status(at_once(clear), what));
  return memory;
}

Status CudaMemory::write(std::size_t offset, const void* from, std::size_t bytes) {
  if (bytes == 0) return ok();
  const OnDevice on(device_);
  return cuda_status(copy_at_once(data_ + offset, from, bytes, cudaMemcpyHostToDevice),
                     "copying to device " + std::to_string(device_));
}

Status CudaMemory::read(std::size_t offset, void* to, std::size_t bytes) const {
  if (bytes == 0) return ok();
  const OnDevice on(device_);
  return cuda_status(copy_at_once(to, data_ + offset, bytes, cudaMemcpyDeviceToHost),
                     "copying from device " + std::to_string(device_));
}

CudaHostMemory::~CudaHostMemory() {
  if (data_ != nullptr) cudaFreeHost(data_);
}

Result<CudaHostMemory> CudaHostMemory::allocate(std::size_t bytes) {
  CudaHostMemory memory;
  void* data = nullptr;
  TUTTI_CHECK_OK(
      cuda_status(cudaHostAlloc(&data, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
                  "allocating " + std::to_string(bytes) + " bytes of pinned memory"));
  std::memset(data, 0, bytes);
  memory.data_ = static_cast<std::byte*>(data);
  return memory;
}

}  // namespace tutti::exec
