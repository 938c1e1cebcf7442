#include "exec/cuda_staging.h"

namespace tutti::exec {

CudaStaging& CudaStaging::operator=(CudaStaging&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(own_, other.own_);
  std::swap(mapping_, other.mapping_);
  return *this;
}

CudaStaging::~CudaStaging() {
  if (data_ == nullptr) return;
  cudaHostUnregister(data_);
  if (own_) static_cast<void>(segments::free(data_));
}

Status CudaStaging::pin(std::byte* data, std::size_t bytes) {
  TUTTI_CHECK_OK(
      cuda_status(cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
                  "pinning " + std::to_string(bytes) + " bytes of memory that processes share"));
  data_ = data;
  return ok();
}

Result<CudaStaging> CudaStaging::allocate(std::size_t bytes) {
  CudaStaging staging;
  TUTTI_TRY(void* const data, segments::allocate(bytes));
  if (Status pinned = staging.pin(static_cast<std::byte*>(data), bytes); !pinned) {
    static_cast<void>(segments::free(data));
    return std::move(pinned.error());
  }
  staging.own_ = true;
  return staging;
}

Result<CudaStaging::Name> CudaStaging::name() const {
  Name name;
  TUTTI_TRY(name.address, segments::serve());
  name.id = segments::id_of(data_);
  name.data = data_;
  return name;
}

Result<CudaStaging> CudaStaging::open(const Name& name, Deadline deadline) {
  CudaStaging staging;
  TUTTI_TRY(staging.mapping_, segments::fetch(name.address, name.id, deadline));
  staging.mapping_.close_fd();
  TUTTI_CHECK_OK(staging.pin(staging.mapping_.data(), staging.mapping_.bytes()));
  return staging;
}

}  // namespace tutti::exec
