// File: compat/nccl/meeting.h: unique ids, and the places where the ranks that have one meet.
//
// An id names a store that its maker serves, with a secret of its own. With NCCL_COMM_ID it is the
// address in that variable instead, alike in every process: rank 0 of each communicator serves the
// store there, as long as it has the communicator, and the job's secret is TUTTI_SECRET.
#pragma once
#include "comm.h"

namespace tutti::nccl {

/// A new id of this process, at the interfaces that NCCL_SOCKET_IFNAME and NCCL_SOCKET_FAMILY name.
/// kInvalidArgument: this host has none of them.
Result<UniqueId> make_own_id();
/// The same, or the id that NCCL_COMM_ID stands for. kInvalidArgument also: that is no address.
Result<UniqueId> make_id();

/// The place that the id names, for `self` as one of the ranks that meet there. It waits for rank 0
/// where that has to come first, until `self` is given up or the settings' deadline.
Result<std::shared_ptr<Rendezvous>> enter_place(ncclComm& self, const UniqueId& id,
                                                const Settings& settings);

bool is_given_up(ncclComm& self);
Error gave_up(const std::string& who);

}  // namespace tutti::nccl
