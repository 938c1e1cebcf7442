// File: transport/ucx/worker.h: a UCP worker, and all that it needs, as one owner.
//
// Threads: one at a time, but for `wake`.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "transport/ucx/forked.h"
#include "transport/ucx/library.h"
#include "tutti/rendezvous.h"

namespace tutti::ucx {

class Worker {
 public:
  /// `devices`: as UCX_NET_DEVICES, which overrides it if UCX has got that from somewhere.
  static Result<std::unique_ptr<Worker>> open(const Library& library, const std::string& devices);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  const Library& library() const { return library_; }
  ucp_worker_h get() const { return worker_; }
  /// Where others find it.
  const Bytes& address() const { return address_; }

  /// Calls back for what has happened; true if anything has. Never waits.
  bool progress() { return library_.ucp_worker_progress(worker_) != 0; }
  /// Until something may have happened, or `wake`.
  void sleep(std::chrono::nanoseconds longest);
  /// From any thread.
  void wake() { library_.ucp_worker_signal(worker_); }
  /// Drives an operation to its end, at most until then; what it came to. Frees the request.
  ucs_status_t finish(ucs_status_ptr_t request, std::chrono::steady_clock::time_point until);

 private:
  explicit Worker(const Library& library) : library_(library) {}
  ucs_status_t open_context(const std::string& devices);
  ucs_status_t open_worker();

  const Library& library_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  Bytes address_;
  int events_ = -1;  // A descriptor, UCX's own.
  std::optional<SocketsClosedInChild> closed_in_child_;
};

}  // namespace tutti::ucx
