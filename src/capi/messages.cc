// The C API over the C++ one: messages, and what was started.
#include <chrono>

#include "capi/handles.h"

using tutti::Communicator;
using tutti::ok;
using tutti::Rank;
using tutti::Result;
using tutti::Status;
using tutti::Work;
using tutti::c_api::checked_type;
using tutti::c_api::guard;
using tutti::c_api::guard_start;
using tutti::c_api::invalid;

extern "C" {

tutti_result_t tutti_send(tutti_comm_t comm, const void* data, size_t count, tutti_data_type_t type,
                          int to) {
  return guard(__func__, comm, [&, name = __func__](Communicator& communicator) -> Status {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return communicator.send(data, count, checked, Rank{to});
  });
}

tutti_result_t tutti_recv(tutti_comm_t comm, void* data, size_t count, tutti_data_type_t type,
                          int from) {
  return guard(__func__, comm, [&, name = __func__](Communicator& communicator) -> Status {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return communicator.recv(data, count, checked, Rank{from});
  });
}

tutti_result_t tutti_start_send(tutti_comm_t comm, const void* data, size_t count,
                                tutti_data_type_t type, int to, tutti_work_t* work) {
  const char* name = __func__;
  return guard_start(name, comm, work, [&](Communicator& communicator) -> Result<Work> {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return communicator.start_send(data, count, checked, Rank{to});
  });
}

tutti_result_t tutti_start_recv(tutti_comm_t comm, void* data, size_t count, tutti_data_type_t type,
                                int from, tutti_work_t* work) {
  const char* name = __func__;
  return guard_start(name, comm, work, [&](Communicator& communicator) -> Result<Work> {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return communicator.start_recv(data, count, checked, Rank{from});
  });
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
