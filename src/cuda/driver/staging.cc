#include "cuda/driver/staging.h"

#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

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

namespace {

/// What is kept. Never destroyed: devices may be gone when the process ends.
struct Kept {
  std::mutex mutex;
  std::multimap<std::size_t, std::unique_ptr<CudaStaging>> spare;  // By bytes.
  std::vector<std::unique_ptr<CudaStaging>> retired;
  /// What other processes have, by their tokens and ids.
  std::map<std::pair<std::array<std::byte, 16>, std::uint64_t>, CudaStaging> opened;
};
Kept& kept() {
  static auto* const one = new Kept();
  return *one;
}

}  // namespace

void CudaSharedWords::Keep::operator()(CudaStaging* staging) const {
  std::unique_ptr<CudaStaging> own(staging);
  const std::lock_guard lock(kept().mutex);
  if (reuse) {
    kept().spare.emplace(bytes, std::move(own));
  } else {
    kept().retired.push_back(std::move(own));
  }
}

Result<CudaSharedWords> CudaSharedWords::allocate(std::size_t bytes) {
  CudaSharedWords words;
  const std::lock_guard lock(kept().mutex);
  if (const auto found = kept().spare.find(bytes); found != kept().spare.end()) {
    words.staging_ = {found->second.release(), Keep{bytes, true}};
    kept().spare.erase(found);
    std::memset(words.data(), 0, bytes);
  } else {
    TUTTI_TRY(CudaStaging fresh, CudaStaging::allocate(bytes));
    words.staging_ = {std::make_unique<CudaStaging>(std::move(fresh)).release(), Keep{bytes, true}};
  }
  return words;
}

Result<std::byte*> CudaSharedWords::open(const CudaStaging::Name& name, Deadline deadline) {
  const std::lock_guard lock(kept().mutex);
  const std::pair key(name.address.token, name.id);
  auto found = kept().opened.find(key);
  if (found == kept().opened.end()) {
    TUTTI_TRY(CudaStaging fresh, CudaStaging::open(name, deadline));
    found = kept().opened.emplace(key, std::move(fresh)).first;
  }
  return found->second.data();
}

}  // namespace tutti::exec
