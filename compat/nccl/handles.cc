// The life of handles: which threads are inside a communicator, and when it is freed.
#include <deque>

#include "base/cuda_refusal.h"
#include "comm.h"
#include "debug.h"

namespace tutti::nccl {
namespace {

/// Handles that were given back, which programs may still pass to a function.
constexpr std::size_t kMostGone = 1024;
struct Gone {
  std::mutex mutex;
  std::deque<std::shared_ptr<ncclComm>> handles;
};
Gone& gone() {
  static auto* const one = new Gone();  // Threads may ask when the process ends.
  return *one;
}

void bury(std::shared_ptr<ncclComm> comm) {
  std::shared_ptr<ncclComm> oldest;  // Freed outside of the lock.
  const std::lock_guard lock(gone().mutex);
  gone().handles.push_back(std::move(comm));
  if (gone().handles.size() <= kMostGone) return;
  oldest = std::move(gone().handles.front());
  gone().handles.pop_front();
}

void give_up(ncclComm& comm) {
  const std::lock_guard lock(comm.meeting_lock);
  comm.given_up = true;
  if (comm.end_meeting) comm.end_meeting();
}

void abort_made(ncclComm& comm) {
  comm.device_communicator->abort("rank " + std::to_string(comm.rank) + " called ncclCommAbort");
}

}  // namespace

void end_calls(ncclComm& comm) {
  give_up(comm);
  // Acquire: see the communicator. If it is not made yet, give_up has ended the thread's wait.
  if (comm.made.load(std::memory_order_acquire)) abort_made(comm);
}

ncclComm* hand_out(std::shared_ptr<ncclComm> comm) {
  ncclComm* const handle = comm.get();
  handle->owned = std::move(comm);
  return handle;
}

Use::Use(ncclComm* comm) : comm_(comm) {
  cuda_refusal = 0;  // From here on it shows what CUDA refused in this call: see result_of.
  if (comm_ == nullptr || comm_->magic.load() != ncclComm::kMagic) {
    comm_ = nullptr;
    return;
  }
  comm_->users.fetch_add(1);
  if (comm_->magic.load() == ncclComm::kMagic) return;
  if (comm_->users.fetch_sub(1) == 1) comm_->users.notify_all();
  comm_ = nullptr;
}

Use::~Use() {
  if (comm_ == nullptr) return;
  if (comm_->users.fetch_sub(1) == 1 && comm_->magic.load() != ncclComm::kMagic)
    comm_->users.notify_all();
}

bool give_back(ncclComm* comm, bool abort) {
  std::uint64_t valid = ncclComm::kMagic;
  if (comm == nullptr || !comm->magic.compare_exchange_strong(valid, 0)) return false;
  std::shared_ptr<ncclComm> owned = std::move(comm->owned);
  if (abort) end_calls(*comm);
  // Threads inside leave by their own deadlines, or at once after an abort.
  for (int inside = comm->users.load(); inside != 0; inside = comm->users.load())
    comm->users.wait(inside);
  if (comm->worker.joinable()) comm->worker.join();
  // The communicator may have been made meanwhile.
  if (abort && comm->device_communicator) abort_made(*comm);
  const bool was_made = comm->device_communicator != nullptr;
  if (was_made) tell_plans(*comm);
  comm->device_communicator.reset();
  comm->kept_place.reset();
  if (was_made)
    tell(*comm, abort ? "ncclCommAbort" : "ncclCommDestroy",
         abort ? "Abort COMPLETE" : "Destroy COMPLETE");
  comm->operations.clear();
  comm->children.clear();
  bury(std::move(owned));
  return true;
}

}  // namespace tutti::nccl
