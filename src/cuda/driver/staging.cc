#include "cuda/driver/staging.h"

namespace tutti::exec {

void CudaStaging::Unpin::operator()(std::byte* data) const {
  cudaHostUnregister(data);
  if (own) static_cast<void>(segments::free(data));
}

Status CudaStaging::pin(std::byte* data, std::size_t bytes, bool own) {
  TUTTI_RETURN_IF_ERROR(
      cuda_status(cudaHostRegister(data, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped),
                  "pinning " + std::to_string(bytes) + " bytes of memory that processes share"));
  data_ = {data, Unpin{own}};
  return ok();
}

Result<CudaStaging> CudaStaging::allocate(std::size_t bytes) {
  CudaStaging staging;
  TUTTI_TRY(void* const data, segments::allocate(bytes));
  if (Status pinned = staging.pin(static_cast<std::byte*>(data), bytes, true); !pinned) {
    static_cast<void>(segments::free(data));
    return std::move(pinned.error());
  }
  return staging;
}

Result<CudaStaging::Name> CudaStaging::name() const {
  Name name;
  TUTTI_TRY(name.address, segments::serve());
  name.id = segments::id_of(data());
  name.data = data();
  return name;
}

Result<CudaStaging> CudaStaging::open(const Name& name, Deadline deadline) {
  CudaStaging staging;
  TUTTI_TRY(staging.mapping_, segments::fetch({name.address}, name.id, deadline));
  staging.mapping_.close_fd();
  TUTTI_RETURN_IF_ERROR(staging.pin(staging.mapping_.data(), staging.mapping_.bytes(), false));
  return staging;
}

}  // namespace tutti::exec
