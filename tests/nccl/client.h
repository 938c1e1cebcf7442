// File: nccl/client.h: what a program that uses NCCL does first, for tests of our libnccl.
#pragma once
#include <cuda_runtime_api.h>

#include <functional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "compat/nccl/nccl.h"
#include "support/catch.h"

namespace tutti::test {

/// For what has to work, in any thread: Catch's own checks are for one at a time.
inline void must(bool works, const char* what) {
  if (!works) throw std::runtime_error(what);
}

/// Memory of a device that holds `values`. Any thread.
template <class T>
class OnDevice {
 public:
  explicit OnDevice(const std::vector<T>& values) : count_(values.size()) {
    must(ncclMemAlloc(&data_, count_ * sizeof(T) + 16) == ncclSuccess, "ncclMemAlloc");
    must(
        cudaMemcpy(data_, values.data(), count_ * sizeof(T), cudaMemcpyHostToDevice) == cudaSuccess,
        "cudaMemcpy to a device");
  }
  ~OnDevice() { static_cast<void>(ncclMemFree(data_)); }
  OnDevice(OnDevice&& from) noexcept
      : data_(std::exchange(from.data_, nullptr)), count_(from.count_) {}
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  OnDevice& operator=(OnDevice&& from) noexcept {
    std::swap(data_, from.data_);
    std::swap(count_, from.count_);
    return *this;
  }

  T* data() { return static_cast<T*>(data_); }
  std::vector<T> values() const {
    std::vector<T> found(count_);
    must(cudaMemcpy(found.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost) == cudaSuccess,
         "cudaMemcpy from a device");
    return found;
  }

 private:
  void* data_ = nullptr;
  std::size_t count_;
};

/// One communicator and one stream for each of `devices`, made by ncclCommInitAll in this thread.
class AllRanks {
 public:
  explicit AllRanks(std::vector<int> devices) : devices_(std::move(devices)) {
    comms_.resize(devices_.size());
    streams_.resize(devices_.size());
    REQUIRE(ncclCommInitAll(comms_.data(), size(), devices_.data()) == ncclSuccess);
    for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
      REQUIRE(cudaSetDevice(devices_[rank]) == cudaSuccess);
      REQUIRE(cudaStreamCreateWithFlags(&streams_[rank], cudaStreamNonBlocking) == cudaSuccess);
    }
  }
  ~AllRanks() {
    for (std::size_t rank = 0; rank < devices_.size(); ++rank) {
      static_cast<void>(ncclCommDestroy(comms_[rank]));
      static_cast<void>(cudaStreamDestroy(streams_[rank]));
    }
  }
  AllRanks(const AllRanks&) = delete;
  AllRanks& operator=(const AllRanks&) = delete;

  int size() const { return static_cast<int>(devices_.size()); }
  ncclComm_t comm(int rank) const { return comms_[static_cast<std::size_t>(rank)]; }
  cudaStream_t stream(int rank) const { return streams_[static_cast<std::size_t>(rank)]; }
  void use(int rank) const {
    REQUIRE(cudaSetDevice(devices_[static_cast<std::size_t>(rank)]) == 0);
  }
  /// `call` for each rank, in one group; then all that was started is done.
  void together(const std::function<ncclResult_t(int rank)>& call) const {
    REQUIRE(ncclGroupStart() == ncclSuccess);
    for (int rank = 0; rank < size(); ++rank) {
      use(rank);
      REQUIRE(call(rank) == ncclSuccess);
    }
    const ncclResult_t ended = ncclGroupEnd();
    INFO(ncclGetLastError(nullptr));
    REQUIRE(ended == ncclSuccess);
    for (int rank = 0; rank < size(); ++rank) {
      REQUIRE(cudaStreamSynchronize(stream(rank)) == cudaSuccess);
    }
  }

 private:
  std::vector<int> devices_;
  std::vector<ncclComm_t> comms_;
  std::vector<cudaStream_t> streams_;
};

/// The handle of rank 0 of two, without blocking. It stays in the making, as rank 1 never comes.
inline ncclComm_t in_the_making() {
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t comm = nullptr;
  REQUIRE(ncclCommInitRankConfig(&comm, 2, id, 0, &config) == ncclInProgress);
  return comm;
}

}  // namespace tutti::test
