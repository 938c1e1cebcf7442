// File: compat/nccl/comm.h: what an ncclComm_t and an ncclWindow_t are, and how errors leave
// the library.
//
// Model. A handle exists from the call that makes it; the communicator behind it may come later, on
// a thread of its own, when the user asked not to be blocked, or when a group makes several. Until
// then its state is ncclInProgress. Every exported function ends in `finish`, so that the text of
// the last error and the result always belong together.
//
// Threads. As with NCCL, one thread at a time uses a communicator, except for ncclCommAbort,
// ncclCommGetAsyncError and ncclGetLastError. Every function enters the communicator by a `Use`.
// The thread that gives a communicator back first makes the handle useless and then waits until all
// others have left; an abort makes them leave soon. The memory of a returned handle stays readable
// for a while, so that later uses of the handle are noticed.
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
#include "tutti/settings.h"

namespace tutti::nccl {

/// The environment's settings, but with a deadline of a day unless one is set: NCCL has none.
Result<Settings> settings_of_environment();

/// The fields of an ncclConfig_t that have an effect here.
struct Config {
  bool blocking = true;            // Whether calls wait until a communicator is made.
  int min_ctas = 0, max_ctas = 0;  // Limits of its lanes; 0: not set.
  int traffic_class = -1;          // Settings::rdma_traffic_class; -1: not set.
  std::string transport;           // Settings::transport by `netName`; empty: not set.
  std::string comm_name;           // For people, in one line; empty: not set.
};

/// Takes an ncclConfig_t of any version. NULL, or what is not set: `inherited`. kInvalidArgument:
/// not initialised, or values that no version knows; kUnsupported: a network that is not here.
Result<Config> read_config(const ncclConfig_t* config, const Config& inherited);

/// The environment's settings, and what `config` has where the environment sets nothing.
Result<Settings> settings_for(const Config& config);

/// Whether a CTAPolicy is not set or has only flags that NCCL knows.
bool is_cta_policy(int policy);

/// Null: no such type.
std::optional<DataType> type_of(ncclDataType_t type);

/// A reduction that a user made: factors of the communicator's own.
struct Premultiplied {
  ncclDataType_t type;
  double scale = 1;
  /// In memory of a device: kernels read it.
  const void* scale_at = nullptr;
};

/// The result that rank `rank` returns for `error`. NCCL has separate results for what another rank
/// did.
ncclResult_t result_of(const Error& error, int rank);
/// Keeps the error's line for ncclGetLastError: as the process's last error, and as that of `comm`
/// if it is not NULL. `function` is the function that the user called.
ncclResult_t finish(ncclComm* comm, const char* function, const Error& error);
inline ncclResult_t finish(ncclComm* comm, const char* function, const Status& status) {
  return status ? ncclSuccess : finish(comm, function, status.error());
}
/// Makes the communicator's last error the last error of the process.
void remember(ncclComm& comm);
/// Keeps a failure as a line that names the function.
ncclResult_t fail_as(ncclResult_t result, ncclComm* comm, const char* function,
                     const std::string& what);
inline ncclResult_t bad_argument(ncclComm* comm, const char* function, const std::string& what) {
  return fail_as(ncclInvalidArgument, comm, function, what);
}
inline ncclResult_t bad_usage(ncclComm* comm, const char* function, const std::string& what) {
  return fail_as(ncclInvalidUsage, comm, function, what);
}

}  // namespace tutti::nccl

/// It has more than 15 fields: all that NCCL's functions ask of a handle is kept behind it.
struct ncclComm : std::enable_shared_from_this<ncclComm> {
  static constexpr std::uint64_t kMagic = 0x7475747469636f6d;  // "tutticom"
  // Shows whether a handle is valid: it may have been given back, or never been one. seq_cst, with
  // `users`: either the thread that enters sees that the handle was given back, or the thread that
  // gives it back sees the other one inside.
  std::atomic<std::uint64_t> magic{kMagic};
  std::atomic<int> users{0};        // Threads inside.
  std::shared_ptr<ncclComm> owned;  // The handle owns itself until it is given back.
  int rank = -1;
  int size = 0;
  int device = -1;
  tutti::nccl::Config config;
  // Shared with calls that make another communicator of it; they may outlive the handle.
  std::shared_ptr<tutti::DeviceCommunicator> device_communicator;
  bool finalized = false;
  std::atomic<bool> revoked{false};  // relaxed: no other memory depends on it.
  bool suspended = false;            // Takes no calls until it is resumed.
  bool leaves = false;               // It goes at the end of its thread's group.
  // Where its ranks have met, or its parent's if it was split off or shrunk. With the name it tells
  // communicators apart.
  tutti::UniqueId id;
  std::shared_ptr<tutti::Rendezvous> kept_place;  // Served if the id is an address (NCCL_COMM_ID).
  std::string name = "world";
  std::map<std::string, int> children;  // How many each call has made; see next_name.
  // A thread that gives it up calls end_meeting: threads that make it, on any rank, stop waiting.
  std::mutex meeting_lock;  // For the two below.
  std::function<void()> end_meeting;
  bool given_up = false;
  // Written by the thread that makes the communicator (release), read by the others (acquire).
  std::atomic<ncclResult_t> state{ncclInProgress};
  // As `state`: device_communicator is set and stays until the handle is given back.
  std::atomic<bool> made{false};
  // Makes the communicator, or waits for its calls. give_back joins it.
  std::thread worker;
  std::vector<std::optional<tutti::nccl::Premultiplied>> operations;
  std::mutex error_lock;  // For `last_error`.
  std::string last_error;

  ncclComm() = default;
  ~ncclComm() {
    if (worker.joinable()) worker.join();
  }
  ncclComm(const ncclComm&) = delete;
  ncclComm& operator=(const ncclComm&) = delete;
};

/// A buffer that the user registered. Kernels use buffers where they are in any case. Peers read
/// and write the buffers of a symmetric window directly, so that nothing is copied.
struct ncclWindow_vidmem {
  std::shared_ptr<ncclComm> comm;  // The user may give it back before its windows.
  void* data;
  std::size_t bytes;
  bool open = false;    // Whether peers map it: known once the group has ended;
  std::string why_not;  // and why not, if they were asked to.
};

namespace tutti::nccl {

/// Gives the handle to the user; it owns itself from here on.
ncclComm* hand_out(std::shared_ptr<ncclComm> comm);

/// Keeps the calling thread inside a communicator, which is not freed meanwhile. Any thread; does
/// not wait.
class Use {
 public:
  explicit Use(ncclComm* comm);
  ~Use();
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
  /// Whether it is a communicator.
  explicit operator bool() const { return comm_ != nullptr; }
  /// The communicator; NULL if it is none, or was given back.
  ncclComm* get() const { return comm_; }

 private:
  ncclComm* comm_;
};

/// Ends what waits in the communicator, or for it to be made, on all ranks.
void end_calls(ncclComm& comm);
/// Makes the handle useless, ends what waits in it if `abort`, and frees what it holds once no
/// thread is inside; the calling thread must not be. False: the handle was not valid any more.
bool give_back(ncclComm* comm, bool abort);

}  // namespace tutti::nccl
