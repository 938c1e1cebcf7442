// File: compat/nccl/debug.h: the lines that NCCL_DEBUG asks for, in NCCL's form.
//
//   host:process:thread [device] NCCL INFO ncclCommInitRank comm 0x... rank 0 nranks 2 ... - Init
//   COMPLETE
//
// They are lines of the library's one log (base/log.h), which NCCL_DEBUG gives its level, its form
// and its file. With TUTTI_LOG=info alone the same lines have the log's usual form. Any thread.
#pragma once
#include <string>

#include "comm.h"
#include "environment.h"

namespace tutti::nccl {

/// Gives the log its form, and writes the version and what is wrong with the variables. Once.
void start_debug(const Environment& environment);

/// Writes a warning, once for each text, if NCCL_DEBUG or TUTTI_LOG asks for warnings.
void warn_of(const std::string& line);

/// Writes what happens to a communicator: "Init START".
void tell(const ncclComm& comm, const char* function, const char* what);
/// Writes how a communicator's ranks reach each other, and what else `describe` says of it.
void tell_links(const ncclComm& comm);
/// Writes which plans the communicator has chosen.
void tell_plans(const ncclComm& comm);

/// Lines of `describe`, before its plans if not `plans`, else those; ranks that are reached alike
/// are in one line, "to ranks 1-3: ...". Pure.
std::vector<std::string> fold_description(const std::string& description, bool plans);

}  // namespace tutti::nccl
