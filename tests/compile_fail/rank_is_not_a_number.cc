// A count or an index does not pass for a rank: a root of `1` has to be said.
// expect: (could not convert|no viable conversion|no matching|cannot convert)
#include "tutti/communicator.h"

tutti::Status use(tutti::Communicator& comm, void* data) {
#ifdef TUTTI_MISUSE
  return comm.broadcast(data, data, 1, tutti::DataType::kInt8, 1);
#else
  return comm.broadcast(data, data, 1, tutti::DataType::kInt8, tutti::Rank{1});
#endif
}
