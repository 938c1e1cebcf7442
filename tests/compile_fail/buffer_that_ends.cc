// Started work does not take a buffer that ends with the line.
// expect: (no matching function|constraints not satisfied)
#include <vector>

#include "tutti/typed.h"

tutti::Result<tutti::Work> use(tutti::Communicator& comm, std::vector<float>& data) {
#ifdef TUTTI_MISUSE
  return tutti::start_all_reduce(comm, std::vector<float>(data), tutti::ReduceOp::kSum);
#else
  return tutti::start_all_reduce(comm, data, tutti::ReduceOp::kSum);
#endif
}
