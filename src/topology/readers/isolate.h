// File: topology/readers/isolate.h: work that may crash, in a process of its own.
//
// libhwloc 2.9 trusts the files that it reads: one renamed attribute makes it follow a null
// pointer. A file that a user was sent must not end the user's program, so it is read in a child,
// which says what it found in text.
#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "tutti/result.h"

namespace tutti::topology {

/// Runs `work` in a forked child and returns the text that it returned: at most 256 MiB, within 10
/// seconds. An Error, which begins with `what`, if the child crashed, was slow or said too much.
Result<std::string> in_child(const std::function<std::string()>& work, std::string_view what);

}  // namespace tutti::topology
