#include "group.h"

#include <map>

#include "base/threads.h"

namespace tutti::nccl {

Group& Group::current() {
  thread_local Group group;
  return group;
}

void Group::clear() {
  failed_ = ncclSuccess;
  makings_.clear();
  joins_.clear();
  calls_.clear();
}

ncclResult_t Group::fail(ncclResult_t result) {
  if (is_open() && failed_ == ncclSuccess) failed_ = result;
  return result;
}

ncclResult_t Group::end(const char* function) {
  if (depth_ == 0) return bad_usage(nullptr, function, "no group was started by this thread");
  if (--depth_ > 0) return ncclSuccess;
  if (failed_ != ncclSuccess) {
    const ncclResult_t failed = failed_;
    // Handles that were given out stay, so that they can be given back.
    for (const Making& making : makings_)
      making.comm->state.store(failed, std::memory_order_release);
    clear();
    return failed;
  }
  const ncclResult_t made = make_all();
  const bool goes_on = made == ncclSuccess || made == ncclInProgress;
  const ncclResult_t joined = goes_on ? join_all() : made;
  const ncclResult_t started = joined == ncclSuccess ? start_all() : joined;
  clear();
  return started == ncclSuccess ? made : started;
}

ncclResult_t Group::drop(const char* function) {
  if (depth_ == 0) return bad_usage(nullptr, function, "no group was started by this thread");
  if (--depth_ > 0) return ncclSuccess;
  for (const Making& making : makings_) {
    making.comm->state.store(ncclInvalidUsage, std::memory_order_release);
  }
  clear();
  return ncclSuccess;
}

ncclResult_t Group::make(ncclComm* comm, std::unique_ptr<ncclComm> kept,
                         std::function<Status(ncclComm&)> make) {
  makings_.push_back({comm, std::move(kept), std::move(make)});
  if (is_open()) return ncclSuccess;
  const ncclResult_t made = make_all();
  clear();
  return made;
}

ncclResult_t Group::make_all() {
  for (const Making& making : makings_) {
    making.comm->maker = start_thread([comm = making.comm, make = making.make] {
      Status made = make(*comm);
      const ncclResult_t result = finish(comm, made);
      // Release: whoever sees the state sees the communicator.
      comm->state.store(result, std::memory_order_release);
    });
  }
  ncclResult_t result = ncclSuccess;
  for (const Making& making : makings_) {
    if (!making.comm->blocking) {
      result = result == ncclSuccess ? ncclInProgress : result;
      continue;
    }
    making.comm->maker.join();
    const ncclResult_t made = making.comm->state.load(std::memory_order_relaxed);  // Joined.
    if (made != ncclSuccess && (result == ncclSuccess || result == ncclInProgress)) {
      // The maker's line is that of its own thread.
      remember(*making.comm);
      result = made;
    }
  }
  return result;
}

ncclResult_t Group::join(ncclComm* comm, std::function<Status(DeviceCommunicator&)> together) {
  if (!is_open()) return finish(comm, together(*comm->device_communicator));
  joins_.push_back({comm, std::move(together)});
  return ncclSuccess;
}

/// What one communicator does, in its order.
ncclResult_t Group::join_all() {
  std::map<ncclComm*, Status> outcomes;
  for (const Call& at : joins_) outcomes.emplace(at.comm, ok());
  std::vector<std::thread> threads;
  for (auto& [comm, outcome] : outcomes) {
    threads.push_back(start_thread([this, comm = comm, &outcome = outcome] {
      for (const Call& at : joins_) {
        if (at.comm == comm && outcome) outcome = at.start(*comm->device_communicator);
      }
    }));
  }
  for (std::thread& thread : threads) thread.join();
  ncclResult_t result = ncclSuccess;
  for (auto& [comm, outcome] : outcomes) {
    const ncclResult_t one = finish(comm, outcome);
    if (result == ncclSuccess) result = one;
  }
  return result;
}

ncclResult_t Group::add(ncclComm* comm, std::function<Status(DeviceCommunicator&)> call) {
  if (!is_open()) return finish(comm, call(*comm->device_communicator));
  calls_.push_back({comm, std::move(call)});
  return ncclSuccess;
}

ncclResult_t Group::start_all() {
  if (calls_.empty()) return ncclSuccess;
  tutti::Group group;
  ncclResult_t result = ncclSuccess;
  for (const Call& at : calls_) {
    result = finish(at.comm, at.start(*at.comm->device_communicator));
    if (result != ncclSuccess) break;
  }
  const ncclResult_t ended = finish(calls_.front().comm, group.end());
  return result != ncclSuccess ? result : ended;
}

ncclResult_t check_ready(ncclComm* comm, const char* function) {
  if (comm == nullptr) return bad_argument(nullptr, function, "the communicator is NULL");
  if (comm->magic != ncclComm::kMagic) {
    return bad_argument(nullptr, function, "this is no communicator, or it was given back");
  }
  // Acquire: see the state that its maker left.
  const ncclResult_t state = comm->state.load(std::memory_order_acquire);
  if (state == ncclInProgress) {
    return bad_argument(comm, function,
                        "the communicator is being made; ask ncclCommGetAsyncError until it says "
                        "ncclSuccess");
  }
  if (state != ncclSuccess || !comm->device_communicator) {
    return bad_usage(comm, function, "the communicator could not be made: " + comm->last_error);
  }
  if (comm->finalized) return bad_usage(comm, function, "the communicator was finalized");
  return ncclSuccess;
}

}  // namespace tutti::nccl

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.

ncclResult_t ncclGroupStart() {
  Group::current().start();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() { return Group::current().end(__func__); }
