// The C API over the C++ one: collectives, blocking and started.
#include <chrono>

#include "comm/c_handles.h"

namespace tutti::c_api {
namespace {

/// Runs `start` on a communicator and hands out the work that it returns.
template <class Start>
tutti_result_t guard_start(const char* function, tutti_comm_t comm, tutti_work_t* work,
                           Start&& start) noexcept {
  if (work != nullptr) *work = nullptr;
  return guard(function, comm, [&](Communicator& communicator) -> Status {
    if (work == nullptr) return invalid(function, "`work`, where the handle goes, is NULL");
    // Made before the start: what was started must not be lost for want of memory.
    auto handle = std::make_unique<tutti_work>();
    TUTTI_TRY(handle->work, start(communicator));
    *work = handle.release();
    return ok();
  });
}

}  // namespace
}  // namespace tutti::c_api

using tutti::Communicator;
using tutti::ok;
using tutti::Rank;
using tutti::Reduction;
using tutti::Result;
using tutti::Status;
using tutti::Work;
using tutti::c_api::checked_op;
using tutti::c_api::checked_type;
using tutti::c_api::guard;
using tutti::c_api::guard_start;
using tutti::c_api::invalid;

extern "C" {

// ---- Blocking collectives ----

tutti_result_t tutti_all_reduce(tutti_comm_t comm, const void* input, void* output, size_t count,
                                tutti_data_type_t type, tutti_op_t op) {
  return guard(__func__, comm, [&, name = __func__](Communicator& communicator) -> Status {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    TUTTI_TRY(const auto reduction, checked_op(name, op));
    return communicator.all_reduce(input, output, count, checked, reduction);
  });
}

tutti_result_t tutti_all_reduce_pre_mul_sum(tutti_comm_t comm, const void* input, void* output,
                                            size_t count, tutti_data_type_t type, double scale) {
  return guard(__func__, comm, [&, name = __func__](Communicator& communicator) -> Status {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return communicator.all_reduce(input, output, count, checked, Reduction::pre_mul_sum(scale));
  });
}

tutti_result_t tutti_reduce_scatter(tutti_comm_t comm, const void* input, void* output,
                                    size_t count, tutti_data_type_t type, tutti_op_t op) {
  return guard(__func__, comm, [&, name = __func__](Communicator& communicator) -> Status {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    TUTTI_TRY(const auto reduction, checked_op(name, op));
    return communicator.reduce_scatter(input, output, count, checked, reduction);
  });
}

tutti_result_t tutti_reduce_scatter_pre_mul_sum(tutti_comm_t comm, const void* input, void* output,
                                                size_t count, tutti_data_type_t type,
                                                double scale) {
  return guard(__func__, comm, [&, name = __func__](Communicator& communicator) -> Status {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return communicator.reduce_scatter(input, output, count, checked,
                                       Reduction::pre_mul_sum(scale));
  });
}

tutti_result_t tutti_all_gather(tutti_comm_t comm, const void* input, void* output, size_t count,
                                tutti_data_type_t type) {
  return guard(__func__, comm, [&, name = __func__](Communicator& communicator) -> Status {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return communicator.all_gather(input, output, count, checked);
  });
}

tutti_result_t tutti_broadcast(tutti_comm_t comm, const void* input, void* output, size_t count,
                               tutti_data_type_t type, int root) {
  return guard(__func__, comm, [&, name = __func__](Communicator& communicator) -> Status {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return communicator.broadcast(input, output, count, checked, Rank{root});
  });
}

tutti_result_t tutti_barrier(tutti_comm_t comm) {
  return guard(__func__, comm, [](Communicator& communicator) { return communicator.barrier(); });
}

// ---- Asynchronous collectives ----

tutti_result_t tutti_start_all_reduce(tutti_comm_t comm, const void* input, void* output,
                                      size_t count, tutti_data_type_t type, tutti_op_t op,
                                      tutti_work_t* work) {
  const auto start = [&, name = __func__](Communicator& communicator) -> Result<Work> {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    TUTTI_TRY(const auto reduction, checked_op(name, op));
    return communicator.start_all_reduce(input, output, count, checked, reduction);
  };
  return guard_start(__func__, comm, work, start);
}

tutti_result_t tutti_start_all_reduce_pre_mul_sum(tutti_comm_t comm, const void* input,
                                                  void* output, size_t count,
                                                  tutti_data_type_t type, double scale,
                                                  tutti_work_t* work) {
  const auto start = [&, name = __func__](Communicator& communicator) -> Result<Work> {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return communicator.start_all_reduce(input, output, count, checked,
                                         Reduction::pre_mul_sum(scale));
  };
  return guard_start(__func__, comm, work, start);
}

tutti_result_t tutti_start_reduce_scatter(tutti_comm_t comm, const void* input, void* output,
                                          size_t count, tutti_data_type_t type, tutti_op_t op,
                                          tutti_work_t* work) {
  const auto start = [&, name = __func__](Communicator& communicator) -> Result<Work> {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    TUTTI_TRY(const auto reduction, checked_op(name, op));
    return communicator.start_reduce_scatter(input, output, count, checked, reduction);
  };
  return guard_start(__func__, comm, work, start);
}

tutti_result_t tutti_start_reduce_scatter_pre_mul_sum(tutti_comm_t comm, const void* input,
                                                      void* output, size_t count,
                                                      tutti_data_type_t type, double scale,
                                                      tutti_work_t* work) {
  const auto start = [&, name = __func__](Communicator& communicator) -> Result<Work> {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return communicator.start_reduce_scatter(input, output, count, checked,
                                             Reduction::pre_mul_sum(scale));
  };
  return guard_start(__func__, comm, work, start);
}

tutti_result_t tutti_start_all_gather(tutti_comm_t comm, const void* input, void* output,
                                      size_t count, tutti_data_type_t type, tutti_work_t* work) {
  const auto start = [&, name = __func__](Communicator& communicator) -> Result<Work> {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return communicator.start_all_gather(input, output, count, checked);
  };
  return guard_start(__func__, comm, work, start);
}

tutti_result_t tutti_start_broadcast(tutti_comm_t comm, const void* input, void* output,
                                     size_t count, tutti_data_type_t type, int root,
                                     tutti_work_t* work) {
  const auto start = [&, name = __func__](Communicator& communicator) -> Result<Work> {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return communicator.start_broadcast(input, output, count, checked, Rank{root});
  };
  return guard_start(__func__, comm, work, start);
}

tutti_result_t tutti_work_wait(tutti_work_t work, int timeout_ms) {
  return guard(__func__, [=, name = __func__]() -> Status {
    if (work == nullptr) return invalid(name, "the work is NULL");
    return timeout_ms < 0 ? work->work.wait()
                          : work->work.wait(std::chrono::milliseconds(timeout_ms));
  });
}

tutti_result_t tutti_work_test(tutti_work_t work, int* done) {
  return guard(__func__, [=, name = __func__]() -> Status {
    if (work == nullptr || done == nullptr) return invalid(name, "the work or `done` is NULL");
    *done = work->work.test() ? 1 : 0;
    return ok();
  });
}

tutti_result_t tutti_work_then(tutti_work_t work, tutti_callback_t callback, void* user) {
  return guard(__func__, [=, name = __func__]() -> Status {
    if (work == nullptr || callback == nullptr) {
      return invalid(name, "the work or the callback is NULL");
    }
    work->work.then([callback, user](const Status& outcome) {
      if (outcome) return callback(user, TUTTI_OK, "");
      callback(user, static_cast<tutti_result_t>(outcome.error().code),
               outcome.error().to_string().c_str());
    });
    return ok();
  });
}

tutti_result_t tutti_work_free(tutti_work_t work) {
  delete work;
  return TUTTI_OK;
}

}  // extern "C"
