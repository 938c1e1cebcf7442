// File: sweep/sweep.h: the main function of all_reduce_perf and its like.
#pragma once
#include "tutti/types.h"

namespace tutti::perf {

/// 0: measured, and all values right. 1: something failed or was wrong. 2: the command line is.
int sweep_main(Collective collective, int argc, char** argv);

}  // namespace tutti::perf
