// A buffer of doubles does not pass for one of floats.
// expect: (no matching function|constraints not satisfied)
#include "tutti/typed.h"

tutti::Status use(tutti::Communicator& comm, std::span<const double> input) {
#ifdef TUTTI_MISUSE
  float output[8];
#else
  double output[8];
#endif
  return tutti::all_reduce(comm, input, output, tutti::ReduceOp::kSum);
}
