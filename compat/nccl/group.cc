#include "group.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#include "base/threads.h"
#include "debug.h"

namespace tutti::nccl {
namespace {

bool goes_on(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

/// The first failure if there is one; else ncclInProgress if something is in progress.
ncclResult_t worse(ncclResult_t first, ncclResult_t second) {
  if (!goes_on(first)) return first;
  return second != ncclSuccess ? second : first;
}

}  // namespace

Group& Group::current() {
  thread_local Group group;
  return group;
}

void Group::clear() {
  failed_ = ncclSuccess;
  makings_.clear();
  joins_.clear();
  calls_.clear();
  leavings_.clear();
}

ncclResult_t Group::fail(ncclResult_t result) {
  if (is_open() && failed_ == ncclSuccess) failed_ = result;
  return result;
}

ncclResult_t Group::end(const char* function) {
  if (depth_ == 0) return bad_usage(nullptr, function, "no group was started by this thread");
  if (--depth_ > 0) return ncclSuccess;
  ncclResult_t result = failed_;
  // The user already has these handles: they stay valid until the user gives them back.
  for (const Making& making : makings_)
    if (result != ncclSuccess) making.comm->state.store(result, std::memory_order_release);
  if (result == ncclSuccess) result = make_all();
  if (goes_on(result)) result = worse(result, join_all());
  if (goes_on(result)) result = worse(result, start_all());
  result = worse(result, leave_all());
  clear();
  return result;
}

ncclResult_t Group::drop(const char* function, double* us) {
  if (depth_ == 0) return bad_usage(nullptr, function, "no group was started by this thread");
  if (--depth_ > 0) return ncclSuccess;
  const ncclResult_t result = failed_ != ncclSuccess ? failed_ : estimate_all(us);
  for (const Making& making : makings_) {
    making.comm->state.store(ncclInvalidUsage, std::memory_order_release);
  }
  for (const Leaving& leaving : leavings_) leaving.comm->leaves = false;
  clear();
  return result;
}

/// How long a communicator's calls take: its collectives one after the other, and its messages
/// together, in both directions at a time.
Result<double> Group::estimate_us(const std::vector<const Call*>& calls) {
  const DeviceCommunicator& ranks = *calls.front()->comm->device_communicator;
  double collectives_us = 0, start_us = 0, out_us = 0, in_us = 0;
  for (const Call* const call : calls) {
    const Work& work = call->work;
    if (work.collective) {
      TUTTI_TRY(const double us, ranks.estimate_us(*work.collective));
      collectives_us += us;
    }
    for (const auto& [peer, us] : {std::pair(work.to, &out_us), std::pair(work.from, &in_us)}) {
      if (peer < 0) continue;
      TUTTI_TRY(const double empty_us, ranks.estimate_us(0, Rank{peer}));
      TUTTI_TRY(const double message_us, ranks.estimate_us(work.bytes, Rank{peer}));
      start_us = std::max(start_us, empty_us);
      *us += message_us - empty_us;
    }
  }
  return collectives_us + start_us + std::max(out_us, in_us);
}

/// The calls of several communicators run side by side.
ncclResult_t Group::estimate_all(double* us) const {
  std::map<ncclComm*, std::vector<const Call*>> calls;
  for (const Call& call : calls_) calls[call.comm.get()].push_back(&call);
  *us = 0;
  for (const auto& [comm, its] : calls) {
    const Use use(comm);
    if (const ncclResult_t failed = check_ready(use.get(), its.front()->function)) return failed;
    const Result<double> found = estimate_us(its);
    if (!found) return finish(comm, "ncclGroupSimulateEnd", found.error());
    *us = std::max(*us, *found);
  }
  return ncclSuccess;
}

ncclResult_t Group::make(const char* function, std::shared_ptr<ncclComm> comm,
                         std::function<Status(ncclComm&)> make) {
  makings_.push_back({function, std::move(comm), std::move(make)});
  if (is_open()) return ncclSuccess;
  const ncclResult_t made = make_all();
  clear();
  return made;
}

ncclResult_t Group::make_all() {
  ncclResult_t result = ncclSuccess;
  // A thread that gives a communicator back meanwhile waits until this one has left it.
  std::vector<std::unique_ptr<Use>> uses;
  for (const Making& making : makings_) {
    uses.push_back(std::make_unique<Use>(making.comm.get()));
    if (!*uses.back()) {
      result = bad_argument(nullptr, making.function, "the communicator was given back already");
      continue;
    }
    auto worker =
        start_thread("the thread that makes a communicator",
                     [&comm = *making.comm, function = making.function, make = making.make] {
                       Status made = make(comm);
                       const ncclResult_t outcome = finish(&comm, function, made);
                       if (made && comm.device_communicator) {
                         tell_links(comm);
                         tell(comm, function, "Init COMPLETE");
                       }
                       // Release: a thread that sees `made` sees the communicator.
                       comm.made.store(made && comm.device_communicator, std::memory_order_release);
                       comm.state.store(outcome, std::memory_order_release);
                       comm.state.notify_all();
                     });
    if (worker) {
      making.comm->worker = std::move(*worker);  // The communicator joins it before it goes.
    } else {
      // Release: a thread that sees the state sees the line of the error.
      making.comm->state.store(finish(making.comm.get(), making.function, worker.error()),
                               std::memory_order_release);
    }
  }
  for (std::size_t i = 0; i < makings_.size(); ++i) {
    ncclComm& comm = *makings_[i].comm;
    if (!*uses[i]) continue;
    if (!comm.config.blocking) {
      result = worse(result, ncclInProgress);
      continue;
    }
    // Acquire: see the communicator that the thread has made.
    comm.state.wait(ncclInProgress, std::memory_order_acquire);
    const ncclResult_t made = comm.state.load(std::memory_order_acquire);
    if (made != ncclSuccess && goes_on(result)) {
      remember(comm);  // Another communicator's thread may have written its line later.
      result = made;
    }
  }
  return result;
}

ncclResult_t Group::run(const Call& call) {
  const Use use(call.comm.get());
  if (const ncclResult_t failed = check_ready(use.get(), call.function)) return failed;
  return finish(call.comm.get(), call.function, call.start(*call.comm->device_communicator));
}

ncclResult_t Group::join(const char* function, ncclComm* comm,
                         std::function<Status(DeviceCommunicator&)> together) {
  if (!is_open()) return finish(comm, function, together(*comm->device_communicator));
  joins_.push_back({function, comm->shared_from_this(), std::move(together)});
  return ncclSuccess;
}

/// Runs `joins_`: those of each communicator in their order, on a thread of their own.
ncclResult_t Group::join_all() {
  std::map<ncclComm*, ncclResult_t> outcomes;
  for (const Call& at : joins_) outcomes.emplace(at.comm.get(), ncclSuccess);
  std::vector<std::thread> threads;
  for (auto& [comm, outcome] : outcomes) {
    auto thread = start_thread("a thread of a group", [this, comm = comm, &outcome = outcome] {
      for (const Call& at : joins_) {
        if (at.comm.get() == comm && outcome == ncclSuccess) outcome = run(at);
      }
    });
    if (thread)
      threads.push_back(std::move(*thread));
    else
      outcome = finish(comm, "ncclGroupEnd", thread.error());
  }
  for (std::thread& thread : threads) thread.join();
  ncclResult_t result = ncclSuccess;
  for (auto& [comm, outcome] : outcomes) {
    if (result == ncclSuccess && outcome != ncclSuccess) remember(*comm);
    result = worse(result, outcome);
  }
  return result;
}

ncclResult_t Group::add(const char* function, ncclComm* comm,
                        std::function<Status(DeviceCommunicator&)> call, const Work& work) {
  if (!is_open()) return finish(comm, function, call(*comm->device_communicator));
  calls_.push_back({function, comm->shared_from_this(), std::move(call), work});
  return ncclSuccess;
}

ncclResult_t Group::start_all() {
  if (calls_.empty()) return ncclSuccess;
  std::vector<std::unique_ptr<Use>> uses;  // The end of `group` launches; none may go before.
  for (const Call& at : calls_) uses.push_back(std::make_unique<Use>(at.comm.get()));
  tutti::Group group;
  ncclResult_t result = ncclSuccess;
  for (const Call& at : calls_) {
    result = run(at);
    if (result != ncclSuccess) break;
  }
  const Call& first = calls_.front();
  return worse(result, finish(first.comm.get(), "ncclGroupEnd", group.end()));
}

ncclResult_t Group::leave(ncclComm* comm, std::function<ncclResult_t(ncclComm*)> leave) {
  if (!is_open()) return leave(comm);
  leavings_.push_back({comm->shared_from_this(), std::move(leave)});
  return ncclSuccess;
}

ncclResult_t Group::leave_all() {
  ncclResult_t result = ncclSuccess;
  for (const Leaving& at : leavings_) result = worse(result, at.leave(at.comm.get()));
  return result;
}

void Group::forget(const ncclComm* comm) {
  const auto is_its = [comm](const Call& call) { return call.comm.get() == comm; };
  std::erase_if(joins_, is_its);
  std::erase_if(calls_, is_its);
}

ncclResult_t check_handle(ncclComm* comm, const char* function) {
  if (comm != nullptr && comm->magic.load() == ncclComm::kMagic) return ncclSuccess;
  return bad_argument(nullptr, function,
                      comm == nullptr ? "the communicator is NULL, or it was given back"
                                      : "this is no communicator, or it was given back");
}

ncclResult_t check_made(ncclComm* comm, const char* function) {
  if (const ncclResult_t failed = check_handle(comm, function)) return failed;
  // Acquire: see what the thread that made it has written.
  const ncclResult_t state = comm->state.load(std::memory_order_acquire);
  if (state == ncclSuccess && comm->device_communicator) return ncclSuccess;
  if (state == ncclInProgress) {
    return bad_argument(comm, function,
                        "the communicator is being made, finalized or revoked; ask "
                        "ncclCommGetAsyncError until it says ncclSuccess");
  }
  std::string why;
  {
    const std::lock_guard lock(comm->error_lock);
    why = comm->last_error;
  }
  return fail_as(state == ncclSuccess ? ncclInvalidUsage : state, comm, function,
                 "the communicator could not be made: " + why);
}

ncclResult_t check_ready(ncclComm* comm, const char* function) {
  if (const ncclResult_t failed = check_made(comm, function)) return failed;
  if (comm->finalized) return bad_usage(comm, function, "the communicator was finalized");
  if (comm->revoked.load(std::memory_order_relaxed))
    return bad_usage(comm, function, "the communicator was revoked");
  if (comm->suspended)
    return bad_usage(comm, function, "the communicator is suspended; call ncclCommResume first");
  return ncclSuccess;
}

}  // namespace tutti::nccl

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.

ncclResult_t ncclGroupStart() {
  Group::current().start();
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() { return Group::current().end(__func__); }

ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t* info) {
  double us = 0;
  const bool outermost = Group::current().is_outermost();
  const ncclResult_t result = Group::current().drop(__func__, &us);
  if (result != ncclSuccess) return result;
  constexpr unsigned kMagic = 0x74685283;
  constexpr std::size_t kLeast = offsetof(ncclSimInfo_t, estimatedTime) + sizeof(float);
  if (info == nullptr || info->magic != kMagic || info->size < kLeast) {
    return bad_argument(nullptr, __func__,
                        "simInfo is NULL or was not initialised; start from "
                        "NCCL_SIM_INFO_INITIALIZER");
  }
  if (outermost) info->estimatedTime = static_cast<float>(us);
  return ncclSuccess;
}
