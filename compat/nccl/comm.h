// File: compat/nccl/comm.h: what an ncclComm_t is, and how errors leave the library.
//
// Model. A handle exists from the call that makes it; the communicator behind it may come later, on
// a thread of its own, when the user asked not to be blocked, or when a group makes several. Until
// then its state is ncclInProgress. Every exported function ends in `finish`, so that the text of
// the last error and the result always belong together.
//
// Threads. As with NCCL, one thread at a time uses a communicator, except for ncclCommAbort,
// ncclCommGetAsyncError and ncclGetLastError.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "nccl.h"
#include "tutti/device_communicator.h"
#include "tutti/rendezvous.h"
#include "tutti/result.h"

namespace tutti::nccl {

/// Whether calls wait until a communicator is made, of an ncclConfig_t of any version: nothing else
/// in it has a meaning here. NULL, or not set: `inherited`. kInvalidArgument: not initialised, or
/// values that no version knows.
Result<bool> read_blocking(const ncclConfig_t* config, bool inherited);

/// Whether a CTAPolicy is one of NCCL's, several of them, or not set.
bool is_cta_policy(int policy);

/// Alike on all ranks.
std::uint64_t hash_of(std::string_view text);

/// A reduction that a user made: factors of the communicator's own.
struct Premultiplied {
  ncclDataType_t type;
  double scale = 1;
  /// In memory of a device: read when a call is made, in the order of its stream.
  const void* scale_at = nullptr;
};

ncclResult_t result_of(const Error& error);
/// Keeps the error's line for ncclGetLastError, in the calling thread and in `comm` if there is
/// one.
ncclResult_t finish(ncclComm* comm, const Error& error);
inline ncclResult_t finish(ncclComm* comm, const Status& status) {
  return status ? ncclSuccess : finish(comm, status.error());
}
/// What `comm`'s thread said last is what the calling thread says last.
void remember(ncclComm& comm);
/// The caller's mistake, in a line that names the function.
ncclResult_t bad_argument(ncclComm* comm, const char* function, const std::string& what);
ncclResult_t bad_usage(ncclComm* comm, const char* function, const std::string& what);

}  // namespace tutti::nccl

struct ncclComm {
  static constexpr std::uint64_t kMagic = 0x7475747469636f6d;  // "tutticom"
  std::uint64_t magic = kMagic;  // A handle that was given back, or never was one, is noticed.
  int rank = -1;
  int size = 0;
  int device = -1;
  bool blocking = true;
  // Shared with who makes another one of it, which may outlive the handle.
  std::shared_ptr<tutti::DeviceCommunicator> device_communicator;
  bool finalized = false;
  // Where its ranks have met, or its parent's for a part that was split off, and its name there.
  // What is made of it finds its own place by way of that one.
  tutti::UniqueId id;
  std::string name = "world";
  std::map<std::string, int> children;  // How many each call has made; see next_name.
  // Ends the wait of its maker, and of the other ranks' makers, for who gives it up meanwhile.
  std::mutex meeting_lock;  // Of the two below.
  std::function<void()> end_meeting;
  bool given_up = false;
  // Written by the thread that makes the communicator (release), read by the others (acquire).
  std::atomic<ncclResult_t> state{ncclInProgress};
  std::thread maker;
  std::vector<std::optional<tutti::nccl::Premultiplied>> operations;
  std::mutex error_lock;  // Of `last_error`.
  std::string last_error;

  ncclComm() = default;
  ~ncclComm() {
    if (maker.joinable()) maker.join();
    magic = 0;
  }
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;
};
