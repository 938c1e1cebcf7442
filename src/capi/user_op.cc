// The C API over the C++ one: collectives by a program's own operation.
#include "tutti/user_op.h"

#include "capi/handles.h"

using namespace tutti;         // NOLINT(google-build-using-namespace): the API has no namespace.
using namespace tutti::c_api;  // NOLINT(google-build-using-namespace)

namespace {

/// `body(communicator, op)` with the operation in C++.
template <class Body>
tutti_result_t call_by(const char* function, tutti_comm_t comm, const tutti_user_op_t* op,
                       const Body& body) {
  return guard(function, comm, [&](Communicator& communicator) -> Status {
    if (op == nullptr) return invalid(function, "`op` is NULL");
    return body(communicator, UserOp{op->element_bytes, op->combine, op->context});
  });
}

}  // namespace

extern "C" {

tutti_result_t tutti_all_reduce_by(tutti_comm_t comm, const void* input, void* output, size_t count,
                                   const tutti_user_op_t* op) {
  return call_by(__func__, comm, op, [&](Communicator& communicator, const UserOp& by) {
    return all_reduce(communicator, input, output, count, by);
  });
}

tutti_result_t tutti_reduce_scatter_by(tutti_comm_t comm, const void* input, void* output,
                                       size_t count, const tutti_user_op_t* op) {
  return call_by(__func__, comm, op, [&](Communicator& communicator, const UserOp& by) {
    return reduce_scatter(communicator, input, output, count, by);
  });
}

tutti_result_t tutti_reduce_by(tutti_comm_t comm, const void* input, void* output, size_t count,
                               const tutti_user_op_t* op, int root) {
  return call_by(__func__, comm, op, [&](Communicator& communicator, const UserOp& by) {
    return reduce(communicator, input, output, count, by, Rank{root});
  });
}

tutti_result_t tutti_scan_by(tutti_comm_t comm, const void* input, void* output, size_t count,
                             const tutti_user_op_t* op) {
  return call_by(__func__, comm, op, [&](Communicator& communicator, const UserOp& by) {
    return scan(communicator, input, output, count, by);
  });
}

tutti_result_t tutti_exclusive_scan_by(tutti_comm_t comm, const void* input, void* output,
                                       size_t count, const tutti_user_op_t* op) {
  return call_by(__func__, comm, op, [&](Communicator& communicator, const UserOp& by) {
    return exclusive_scan(communicator, input, output, count, by);
  });
}

}  // extern "C"
