// all_reduce_perf and its siblings, one for each collective.
#include "perf/sweep/options.h"

int main(int argc, char** argv) {
  return tutti::perf::sweep_main(*tutti::parse_collective(TUTTI_SWEEP_COLLECTIVE), argc, argv);
}
