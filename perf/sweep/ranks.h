// File: sweep/ranks.h: where a sweep's ranks come from: forked here, threads here, or a launcher.
#pragma once
#include <functional>

#include "perf/sweep/options.h"
#include "tutti/communicator.h"

namespace tutti::perf {

/// A rank's work; its exit code.
using Body = std::function<int(Communicator&)>;

/// Runs `body` on every rank that lives in this process and waits for those that it forked. The
/// exit code: 0, or the first rank's that failed. A rank alone that was not asked to be is an
/// error. `adjust` may change the settings that the environment gives.
int run_ranks(const Options& options, const Body& body,
              const std::function<void(Settings&)>& adjust = {});

}  // namespace tutti::perf
