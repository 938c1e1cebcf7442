// Making communicators, asking them, and giving them back.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <optional>
#include <set>
#include <stop_token>

#include "base/hash.h"
#include "debug.h"
#include "group.h"
#include "meeting.h"
#include "tutti/rendezvous.h"

namespace tutti::nccl {
namespace {

constexpr int kMostNcclRanks = 1 << 20;

/// The ncclUniqueId is ours, byte for byte.
UniqueId to_id(const ncclUniqueId& id) {
  static_assert(sizeof(UniqueId) == sizeof(ncclUniqueId));
  UniqueId made;
  std::memcpy(made.bytes.data(), &id, sizeof id);
  return made;
}

ncclResult_t current_device(const char* function, int* device) {
  if (const auto said = cudaGetDevice(device)) {
    return fail_as(ncclUnhandledCudaError, nullptr, function,
                   std::string("no CUDA device: ") + cudaGetErrorString(said));
  }
  return ncclSuccess;
}

/// Has `wait` wait for the other ranks. If the communicator is given up, before or meanwhile, `end`
/// ends that for all of them.
template <class Awaited>
Result<Awaited> while_wanted(ncclComm& self, std::function<void()> end,
                             const std::function<Result<Awaited>()>& wait) {
  {
    const std::lock_guard lock(self.meeting_lock);
    if (self.given_up) end();  // Then `wait` fails at once.
    self.end_meeting = std::move(end);
  }
  auto found = wait();
  const std::lock_guard lock(self.meeting_lock);
  self.end_meeting = nullptr;
  return found;
}

/// Meets the others at the place that the id names; self has its rank and size.
Status meet(ncclComm& self, const char* function, const UniqueId& id) {
  self.id = id;
  tell(self, function, "Init START");
  TUTTI_TRY(const Settings settings, settings_for(self.config));
  TUTTI_TRY(const auto place, enter_place(self, id, settings));
  TUTTI_TRY(auto found,
            while_wanted<DeviceCommunicator>(
                self,
                [&place, rank = self.rank] {
                  static_cast<void>(place->fail(gave_up("rank " + std::to_string(rank))));
                },
                [&] {
                  return DeviceCommunicator::create(*place, Rank{self.rank}, self.size, self.device,
                                                    settings, self.name);
                }));
  self.device_communicator = std::make_shared<DeviceCommunicator>(std::move(found));
  return ok();
}

/// The name of what the call named `call` makes of `comm`, alike on all ranks that make that call,
/// as none makes it without the others. A number, so that names of names don't get longer.
std::string next_name(ncclComm& comm, const std::string& call) {
  const std::string text = comm.name + "/" + call + "." + std::to_string(comm.children[call]++);
  return std::to_string(hash_text(text));
}

/// The ranks of a parent that are left, as `self`, which has its rank and size.
struct Shrinking {
  std::shared_ptr<DeviceCommunicator> parent;
  std::vector<Rank> excluded;

  Status operator()(ncclComm& self) {
    tell(self, "ncclCommShrink", "Init START");
    TUTTI_TRY(const Settings settings, settings_for(self.config));
    std::stop_source stop;
    TUTTI_TRY(auto found, while_wanted<DeviceShrunk>(
                              self, [&stop] { stop.request_stop(); },
                              [&] {
                                return parent->shrink(excluded, {&settings, stop.get_token()});
                              }));
    parent.reset();
    if (found.members.size() != static_cast<std::size_t>(self.size))
      return more_lost(found.members);
    self.device_communicator = std::make_shared<DeviceCommunicator>(std::move(found.communicator));
    return ok();
  }

 private:
  /// The program counts on ranks that have been lost.
  Error more_lost(const std::vector<Rank>& members) const {
    std::set<int> out;
    for (const Rank rank : excluded) out.insert(rank.value);
    int lost = 0;
    while (out.contains(lost) || std::ranges::find(members, Rank{lost}) != members.end()) ++lost;
    return {Code::kPeerFailed,
            "rank " + std::to_string(lost) +
                " has been lost too: call ncclCommShrink again with this rank in the list",
            {},
            Rank{lost}};
  }
};

/// A parent's ranks and new ones, as `self`.
struct Growing {
  std::shared_ptr<DeviceCommunicator> parent;
  std::optional<UniqueId> given;  // By the program, to one rank.

  Status operator()(ncclComm& self) {
    std::stop_source stop;
    TUTTI_TRY(const UniqueId id,
              while_wanted<UniqueId>(
                  self, [&stop] { stop.request_stop(); },
                  [&] { return parent->share_id(given ? &*given : nullptr, stop.get_token()); }));
    parent.reset();
    return meet(self, "ncclCommGrow", id);
  }
};

/// A handle with the parent's device, and with the parent's configuration where `config` sets none.
Result<std::shared_ptr<ncclComm>> child_of(const ncclComm& comm, const ncclConfig_t* config) {
  auto made = std::make_shared<ncclComm>();
  TUTTI_TRY(made->config, read_config(config, comm.config));
  made->device = comm.device;
  return made;
}

/// Makes a communicator of `device`, or else of the thread's device.
ncclResult_t init(const char* function, ncclComm_t* comm, int size, const ncclUniqueId& id,
                  int rank, const ncclConfig_t* config, std::optional<int> device = {}) {
  Group& group = Group::current();
  if (comm == nullptr) return group.fail(bad_argument(nullptr, function, "comm is NULL"));
  // Another thread may abort what this one waits for. Release: it sees the fields of the handle.
  const std::atomic_ref<ncclComm_t> place(*comm);
  place.store(nullptr, std::memory_order_release);
  if (size < 1 || size > kMostNcclRanks || rank < 0 || rank >= size) {
    return group.fail(bad_argument(nullptr, function,
                                   "rank " + std::to_string(rank) + " of " + std::to_string(size) +
                                       " ranks; it is from 0 to ranks - 1"));
  }
  auto wanted = read_config(config, {});
  if (!wanted) return group.fail(finish(nullptr, function, wanted.error()));
  auto made = std::make_shared<ncclComm>();
  if (device) {
    made->device = *device;
  } else if (const ncclResult_t failed = current_device(function, &made->device)) {
    return group.fail(failed);
  }
  made->rank = rank;
  made->size = size;
  made->config = *wanted;
  place.store(hand_out(made), std::memory_order_release);
  return group.make(function, std::move(made), [id = to_id(id), function](ncclComm& self) {
    return meet(self, function, id);
  });
}

/// Checks a communicator from which others are to be made. It may be revoked.
ncclResult_t check_parent(ncclComm_t comm, const char* function) {
  if (const ncclResult_t failed = check_made(comm, function)) return failed;
  return comm->finalized ? bad_usage(comm, function, "the communicator was finalized")
                         : ncclSuccess;
}

/// The parent's ranks of that colour, as `self`. The parent ends if that is given up: its ranks are
/// in the middle of a call then.
Status split_off(ncclComm& self, std::shared_ptr<DeviceCommunicator> parent, int color, int key) {
  auto found = while_wanted<DeviceCommunicator>(
      self,
      [&parent] { parent->abort(gave_up("rank " + std::to_string(parent->rank().value)).what); },
      [&] { return parent->split(color, key); });
  // To take part without a colour is no mistake here.
  const bool none = color < 0 && !found && found.error().code == Code::kInvalidArgument;
  if (none) return ok();
  if (!found) return std::move(found.error());
  self.rank = found->rank().value;
  self.size = found->rank_count();
  self.device_communicator = std::make_shared<DeviceCommunicator>(*std::move(found));
  return ok();
}

/// Returns a number of a communicator that is made.
ncclResult_t number(const char* function, ncclComm_t comm, int ncclComm::*which, int* out) {
  const Use use(comm);
  if (const ncclResult_t failed = check_made(use.get(), function)) return failed;
  if (out == nullptr) return bad_argument(comm, function, "the place for the answer is NULL");
  *out = comm->*which;
  return ncclSuccess;
}

}  // namespace

}  // namespace tutti::nccl

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.
using tutti::UniqueId;

ncclResult_t ncclGetVersion(int* version) {
  if (version == nullptr) return bad_argument(nullptr, __func__, "version is NULL");
  *version = NCCL_VERSION(2, 30, 7);
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  if (id == nullptr) return bad_argument(nullptr, __func__, "uniqueId is NULL");
  static_cast<void>(environment());  // The version's line comes before all others.
  auto made = make_id();
  if (!made) return finish(nullptr, __func__, made.error());
  std::memcpy(id, made->bytes.data(), sizeof *id);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank) {
  return init(__func__, comm, nranks, id, rank, nullptr);
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return init(__func__, comm, nranks, id, rank, config);
}

// Several ids spread the work of NCCL's meeting point; ours needs one.
ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int nranks, int rank, int ids,
                                      ncclUniqueId* id, ncclConfig_t* config) {
  if (id == nullptr || ids < 1) {
    return Group::current().fail(bad_argument(nullptr, __func__, "there is no unique id"));
  }
  return init(__func__, comm, nranks, id[0], rank, config);
}

ncclResult_t ncclCommInitAll(ncclComm_t* comms, int count, const int* devices) {
  if (comms == nullptr || count < 1) {
    return bad_argument(nullptr, __func__, "there is room for no communicator");
  }
  int known = 0;
  if (cudaGetDeviceCount(&known) != cudaSuccess) static_cast<void>(cudaGetLastError());
  static_cast<void>(environment());
  auto made = tutti::make_unique_id();  // These ranks need no address.
  if (!made) return finish(nullptr, __func__, made.error());
  ncclUniqueId id;
  std::memcpy(&id, made->bytes.data(), sizeof id);
  ncclGroupStart();
  for (int rank = 0; rank < count; ++rank) {
    const int device = devices != nullptr ? devices[rank] : rank;
    if (device < 0 || device >= known) {
      comms[rank] = nullptr;
      Group::current().fail(bad_argument(nullptr, __func__,
                                         "there is no device " + std::to_string(device) +
                                             "; this process sees " + std::to_string(known)));
      break;
    }
    init(__func__, comms + rank, count, id, rank, nullptr, device);
  }
  return ncclGroupEnd();
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* newcomm,
                           ncclConfig_t* config) {
  Group& group = Group::current();
  std::optional<Use> use(std::in_place, comm);
  if (const ncclResult_t failed = check_parent(use->get(), __func__)) return group.fail(failed);
  if (newcomm == nullptr) return group.fail(bad_argument(comm, __func__, "newcomm is NULL"));
  *newcomm = nullptr;
  if (color < 0 && color != NCCL_SPLIT_NOCOLOR) {
    return group.fail(bad_argument(
        comm, __func__,
        "color " + std::to_string(color) + "; it is 0 or more, or NCCL_SPLIT_NOCOLOR"));
  }
  auto child = child_of(*comm, config);
  if (!child) return group.fail(finish(comm, __func__, child.error()));
  auto made = *std::move(child);
  made->id = comm->id;
  made->name = next_name(*comm, "split") + "." + std::to_string(color);
  // A rank of no colour takes part, and gets no handle.
  const bool joins = color != NCCL_SPLIT_NOCOLOR;
  made->config.blocking = made->config.blocking || !joins;
  if (joins) *newcomm = hand_out(made);
  auto make = [parent = comm->device_communicator, color, key](ncclComm& self) mutable {
    return split_off(self, std::move(parent), color, key);
  };
  // The parent may be given back meanwhile; the maker lets go of it before it says that it is done.
  use.reset();
  return group.make(__func__, std::move(made), std::move(make));
}

// Called by the ranks that stay, and by no other. Whether the parent still works does not matter,
// nor which ranks have died.
ncclResult_t ncclCommShrink(ncclComm_t comm, int* excluded, int count, ncclComm_t* newcomm,
                            ncclConfig_t* config, int flags) {
  Group& group = Group::current();
  std::optional<Use> use(std::in_place, comm);
  if (const ncclResult_t failed = check_parent(use->get(), __func__)) return group.fail(failed);
  const bool listed = excluded != nullptr && count > 0 && count < comm->size;
  if (newcomm == nullptr || !listed || (flags & ~NCCL_SHRINK_ABORT) != 0) {
    return group.fail(bad_argument(comm, __func__,
                                   "newcomm or the list is NULL, the list has no rank or all, or "
                                   "there are unknown flags"));
  }
  *newcomm = nullptr;
  const std::set<int> out(excluded, excluded + count);
  const bool known = *out.begin() >= 0 && *out.rbegin() < comm->size;
  if (out.size() != static_cast<std::size_t>(count) || !known || out.contains(comm->rank)) {
    return group.fail(bad_argument(
        comm, __func__,
        "the ranks to be left out are to be of 0 ... " + std::to_string(comm->size - 1) +
            ", each once, and not the calling one, " + std::to_string(comm->rank)));
  }
  auto child = child_of(*comm, config);
  if (!child) return group.fail(finish(comm, __func__, child.error()));
  auto made = *std::move(child);
  made->rank =
      comm->rank - static_cast<int>(std::distance(out.begin(), out.lower_bound(comm->rank)));
  made->size = comm->size - static_cast<int>(out.size());
  made->id = comm->id;
  if (flags == NCCL_SHRINK_ABORT) {
    comm->device_communicator->abort("rank " + std::to_string(comm->rank) +
                                     " called ncclCommShrink with NCCL_SHRINK_ABORT");
  }
  // Not all of the parent's ranks make this call, but all with the same list do.
  std::string call = "shrink";
  for (const int rank : out) call += " " + std::to_string(rank);
  made->name = next_name(*comm, call);
  *newcomm = hand_out(made);
  Shrinking make{comm->device_communicator, {}};
  for (const int rank : out) make.excluded.push_back(tutti::Rank{rank});
  use.reset();
  return group.make(__func__, std::move(made), std::move(make));
}

// For one rank of the parent, which gives the id to the new ranks, and to ncclCommGrow.
ncclResult_t ncclCommGetUniqueId(ncclComm_t comm, ncclUniqueId* id) {
  const Use use(comm);
  if (const ncclResult_t failed = check_parent(use.get(), __func__)) return failed;
  if (id == nullptr) return bad_argument(comm, __func__, "uniqueId is NULL");
  auto made = make_own_id();  // The grown one has a place of its own.
  if (!made) return finish(comm, __func__, made.error());
  std::memcpy(id, made->bytes.data(), sizeof *id);
  return ncclSuccess;
}

// New ranks have no parent: they join as in ncclCommInitRank.
ncclResult_t ncclCommGrow(ncclComm_t comm, int ranks, const ncclUniqueId* id, int rank,
                          ncclComm_t* newcomm, ncclConfig_t* config) {
  Group& group = Group::current();
  if (comm == nullptr && id != nullptr) return init(__func__, newcomm, ranks, *id, rank, config);
  std::optional<Use> use(std::in_place, comm);
  if (const ncclResult_t failed = check_parent(use->get(), __func__)) return group.fail(failed);
  if (newcomm == nullptr) return group.fail(bad_argument(comm, __func__, "newcomm is NULL"));
  *newcomm = nullptr;
  if (ranks <= comm->size || ranks > kMostNcclRanks || (rank != -1 && rank != comm->rank)) {
    return group.fail(
        bad_argument(comm, __func__,
                     std::to_string(ranks) + " ranks, and this one as " + std::to_string(rank) +
                         "; it is to be more than " + std::to_string(comm->size) +
                         " ranks, of which those that there are keep their numbers (rank -1)"));
  }
  auto child = child_of(*comm, config);
  if (!child) return group.fail(finish(comm, __func__, child.error()));
  auto made = *std::move(child);
  made->rank = comm->rank;
  made->size = ranks;
  *newcomm = hand_out(made);
  Growing make{comm->device_communicator, {}};
  if (id != nullptr) make.given = to_id(*id);
  use.reset();
  return group.make(__func__, std::move(made), std::move(make));
}

ncclResult_t ncclCommCount(ncclComm_t comm, int* count) {
  return number(__func__, comm, &ncclComm::size, count);
}

ncclResult_t ncclCommCuDevice(ncclComm_t comm, int* device) {
  return number(__func__, comm, &ncclComm::device, device);
}

ncclResult_t ncclCommUserRank(ncclComm_t comm, int* rank) {
  return number(__func__, comm, &ncclComm::rank, rank);
}
