// File: capi/handles.h: what the C functions have in common: handles, codes, a text per thread.
//
// No exception gets out of a C function, because a C caller could not catch it, and nothing from a
// caller is used before it was checked, here or in Communicator.
#pragma once
#include <atomic>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "tutti/communicator.h"
#include "tutti/tutti.h"

struct tutti_comm {
  explicit tutti_comm(tutti::Communicator made) : comm(std::move(made)) {}
  tutti::Communicator comm;
  /// What tutti_comm_use_algorithm said last; null: nothing. The texts are never freed, as a call
  /// of another thread may be reading one.
  std::atomic<const std::string*> algorithm{nullptr};
};

struct tutti_work {
  tutti::Work work;
};

namespace tutti::c_api {

/// The code of an outcome; notes its text for tutti_last_error.
tutti_result_t report(const Status& outcome);

Error invalid(const char* function, const std::string& what);

/// The meaning of a number from C; kInvalidArgument if it has none.
Result<DataType> checked_type(const char* function, tutti_data_type_t type);
Result<Reduction> checked_op(const char* function, tutti_op_t op);

/// A text into a caller's buffer, cut to the room there is; `needed` holds all of it.
Status hand_out(const char* function, const std::string& all, char* text, std::size_t size,
                std::size_t* needed);

/// Sets a request's algorithm, if tutti_comm_use_algorithm named one.
inline void take_algorithm(tutti_comm_t comm, Request& asked) {
  // acquire: the text that the pointer leads to is there.
  if (const std::string* name = comm->algorithm.load(std::memory_order_acquire); name != nullptr)
    asked.algorithm = *name;
}

/// Runs the body of a C function. Memory can run out and a thread can fail to start: that is an
/// error of the system to a C caller, not an exception.
template <class Body>
tutti_result_t guard(const char* function, Body&& body) noexcept {
  try {
    return report(body());
  } catch (const std::exception& thrown) {
    try {
      return report(Error{Code::kSystem, std::string(function) + ": " + thrown.what(), {}, {}});
    } catch (...) {  // Not even the text could be had.
    }
  }
  return TUTTI_SYSTEM;
}

/// The same on a communicator.
template <class Body>
tutti_result_t guard(const char* function, tutti_comm_t comm, Body&& body) noexcept {
  return guard(function, [&]() -> Status {
    if (comm == nullptr) return invalid(function, "the communicator is NULL");
    return body(comm->comm);
  });
}

/// Runs `start`, which starts something on a communicator, and hands out the work that it returns.
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

}  // namespace tutti::c_api
