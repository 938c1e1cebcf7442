// File: virtual/recovery.h: what the ranks that are left do once a rank has died.
#pragma once
#include <string>

#include "tutti/communicator.h"
#include "virtual/kernel/world.h"

namespace tutti::virt {

/// Shrinks the communicator, agrees on flags, and adds up numbers of the ranks that are left. Only
/// the ranks of a part know that a call of the part has failed: then the others are told.
void recover(Communicator& whole, bool failed_on_part, int me, RecoveryReport& report);

/// The first promise that the recovery of a run has broken; empty: none.
std::string broken_recovery();

}  // namespace tutti::virt
