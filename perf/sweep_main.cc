// all_reduce_perf, all_gather_perf, reduce_scatter_perf, broadcast_perf.
#include "perf/sweep/sweep.h"

int main(int argc, char** argv) {
  return tutti::perf::sweep_main(*tutti::parse_collective(TUTTI_COLLECTIVE), argc, argv);
}
