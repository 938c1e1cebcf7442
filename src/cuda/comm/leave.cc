// Leaving: a rank's memory stays until no peer writes to it any more.
//
// Peers' kernels post into a rank's memory after its own have ended. So a rank that leaves first
// waits for its own kernels, and then tells the others (a barrier of the control communicator that
// nobody waits in). What it was made of lies here until all have told. To wait for that would make
// ranks that leave two communicators in different orders hang, so it is waited for a little only,
// and then looked at when any communicator comes or goes. Ranks of one process don't wait for each
// other at all: the last of them waits for all.
//
// Memory that peers open by IPC handles may only be freed once they have closed it. So a rank
// closes what it has opened so before it tells the others. Other memory stays while somebody maps
// it.
//
// If the barrier can't be had (after an abort, or if a peer has died) kernels still end at their
// deadline, and memory is kept until then, but not for ever.
//
// So nothing touches what is freed, and nothing is waited for then. But CUDA may do so (cudaFree,
// cuMemUnmap), and what graphs run can only be waited for with all that the device does: with
// kernels of other communicators too, which may wait for what this very thread is yet to launch. So
// another thread does both, and is waited for a little only; somewhat longer when the process ends,
// as what it calls into (CUDA, the network's library) ends then too.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <future>
#include <thread>

#include "cuda/comm/state.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPatience{500};
constexpr std::chrono::seconds kLastPatience{5};
// A deadline may be a day, as libnccl's is. A rank's memory stays as long as peers of other
// processes map it, so freeing it earlier does no harm.
constexpr std::chrono::minutes kLongestKept{10};

Result<Work> start_barrier(const DeviceRank& rank) {
  exec::Call call;
  call.barrier = true;
  return rank.host().start(call);
}

/// One communicator's ranks in this process.
struct Departing {
  std::size_t present = 0;
  std::vector<std::unique_ptr<DeviceCommunicator::State>> gone;
  std::vector<Work> barriers;
  Clock::time_point until = Clock::time_point::max();  // Kept so long, if a barrier failed.

  bool free_to_go() {
    if (present != 0) return false;
    for (Work& barrier : barriers) {
      if (!barrier.test()) return false;
      if (!barrier.wait() && until == Clock::time_point::max()) keep();
    }
    return until == Clock::time_point::max() || Clock::now() >= until;
  }
  /// Tells the others that the ranks here have ended their calls; not if that isn't known.
  void tell() {
    for (const auto& state : gone) {
      if (until != Clock::time_point::max()) return;
      auto barrier = start_barrier(state->rank);
      if (barrier) {
        barriers.push_back(*std::move(barrier));
      } else {
        keep();
      }
    }
  }
  /// Where calls of peers may not have ended, what they write is not given to another communicator.
  void retire_if_kept() {
    if (until == Clock::time_point::max()) return;
    for (const auto& state : gone) state->rank.mesh->rings().retire_counters();
  }
  void keep() {
    until =
        Clock::now() + std::min<Clock::duration>(gone.front()->rank.settings.timeout, kLongestKept);
  }
};

/// Never destroyed: devices may be gone when the process ends.
struct Departures {
  std::mutex mutex;
  std::map<std::uint64_t, std::shared_ptr<Departing>> by_token;
};
Departures& departures() {
  static auto* one = new Departures();
  return *one;
}

/// The threads that done_soon started and that are still at it. Never destroyed: one may be left
/// over.
struct Busy {
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;
};
Busy& busy() {
  static auto* one = new Busy();
  return *one;
}
void add_busy(int more) {
  const std::lock_guard lock(busy().mutex);
  busy().count += more;
  busy().changed.notify_all();
}

/// Waits for them when the process ends, or the library goes: statics go before the libraries do.
struct LastWait {
  ~LastWait() {
    std::unique_lock lock(busy().mutex);
    busy().changed.wait_for(lock, kLastPatience, [] { return busy().count == 0; });
  }
};

/// Has another thread do it, on a device of its own; false: it is still at it.
template <class Task>
bool done_soon(int device, Task task) {
  static const LastWait last;
  std::packaged_task<void()> packaged(std::move(task));
  auto done = packaged.get_future();
  add_busy(1);
  std::thread([device, work = std::move(packaged)]() mutable {
    {
      const exec::OnDevice on(device);
      work();
      work = {};  // What it has goes on the device, too.
    }
    add_busy(-1);
  }).detach();
  return done.wait_for(kPatience) == std::future_status::ready;
}

/// Whether all calls of the rank have ended. Its blocks count among those of the device until then,
/// but no longer, whatever keeps its memory.
bool await_own_calls(const DeviceCommunicator::State& state) {
  auto blocks = state.rank.mesh->take_residency();
  static_cast<void>(state.order.synchronize());
  // Graphs may run calls that no event shows.
  return !state.order.captured() ||
         done_soon(state.rank.device, [running = std::move(blocks)]() mutable {
           const RelaxedCapture relaxed;
           cudaDeviceSynchronize();
           running.clear();
         });
}

/// Closes what the rank has opened by IPC handles; its calls have ended. False: not yet.
bool close_imports(DeviceCommunicator::State& state) {
  auto opened = state.rank.mesh->rings().take_imports_by_ipc();
  for (exec::CudaImport& one : state.memory.take_imports_by_ipc()) opened.push_back(std::move(one));
  if (opened.empty()) return true;
  return done_soon(state.rank.device, [gone = std::move(opened)]() mutable {
    const RelaxedCapture relaxed;
    gone.clear();
  });
}

}  // namespace

void arrive(std::uint64_t token) {
  const std::lock_guard lock(departures().mutex);
  auto& departing = departures().by_token[token];
  if (departing == nullptr) departing = std::make_shared<Departing>();
  ++departing->present;
}

void depart(std::unique_ptr<DeviceCommunicator::State> state) {
  bool ended = false;
  {
    const RelaxedCapture relaxed;
    const exec::OnDevice on(state->rank.device);
    ended = await_own_calls(*state) && close_imports(*state);
    // What its kernels have sent to other hosts leaves this one before it may end; after an abort
    // nobody waits for it.
    if (exec::CudaNetwork* const network = state->rank.network()) {
      network->drain(network->aborted() ? Deadline::after(kPatience)
                                        : Deadline::after(state->rank.settings.timeout));
    }
  }
  std::vector<Work> barriers;
  {
    const std::lock_guard lock(departures().mutex);
    auto& departing = departures().by_token[state->rank.token];
    departing->gone.push_back(std::move(state));
    if (!ended) departing->keep();
    if (--departing->present != 0) return;
    departing->tell();
    barriers = departing->barriers;
  }
  const auto end = Clock::now() + kPatience;
  for (Work& barrier : barriers) {
    static_cast<void>(barrier.wait(std::max<std::chrono::nanoseconds>(end - Clock::now(), {})));
  }
  sweep_departed();
}

void sweep_departed() {
  std::vector<std::shared_ptr<Departing>> free;
  {
    const std::lock_guard lock(departures().mutex);
    std::erase_if(departures().by_token, [&](const auto& entry) {
      if (!entry.second->free_to_go()) return false;
      entry.second->retire_if_kept();
      free.push_back(entry.second);
      return true;
    });
  }
  if (free.empty()) return;
  const int device = free.front()->gone.front()->rank.device;
  static_cast<void>(done_soon(device, [gone = std::move(free)]() mutable {
    const RelaxedCapture relaxed;
    gone.clear();
  }));
}

}  // namespace tutti
