// The C API over the C++ one: collectives, messages, and what was started.
#include <chrono>

#include "capi/handles.h"

struct tutti_prepared {
  tutti::Prepared call;
};

using namespace tutti;         // NOLINT(google-build-using-namespace): the API has no namespace.
using namespace tutti::c_api;  // NOLINT(google-build-using-namespace)

namespace {

tutti_result_t call(const char* function, tutti_comm_t comm, const Arguments& from) noexcept {
  return guard(function, comm, [&](Communicator& communicator) -> Status {
    Request request;
    TUTTI_RETURN_IF_ERROR(fill_request(function, communicator, from, request));
    take_choices(comm, request);
    return communicator.call(request);
  });
}

tutti_result_t start(const char* function, tutti_comm_t comm, tutti_work_t* work,
                     const Arguments& from) noexcept {
  return guard_start(function, comm, work, [&](Communicator& communicator) -> Result<Work> {
    Request request;
    TUTTI_RETURN_IF_ERROR(fill_request(function, communicator, from, request));
    take_choices(comm, request);
    return communicator.start(request);
  });
}

/// The members of `call` that are parameters of its collective's own function.
Result<Arguments> arguments_of(const char* function, const tutti_call_t& call) {
  if (call.collective < 0 || call.collective >= kCollectiveCount)
    return invalid(function, "there is no collective " + std::to_string(call.collective));
  Arguments made{.collective = static_cast<Collective>(call.collective),
                 .input = call.input,
                 .output = call.output,
                 .count = call.count,
                 .type = call.type,
                 .op = call.op,
                 .root = call.root,
                 .vector_variant = call.vector_variant != 0,
                 .input_counts = call.input_counts,
                 .input_offsets = call.input_offsets,
                 .output_counts = call.output_counts,
                 .output_offsets = call.output_offsets};
  if (call.scale == nullptr) return made;
  if (call.op != TUTTI_SUM)
    return invalid(function, "`scale` is for a sum, and `op` is another operation");
  made.scale = *call.scale;
  return made;
}

/// The request of `options`, which goes before what was said for all calls.
Status fill_request(const char* function, tutti_comm_t comm, const tutti_call_t* options,
                    Request& request) {
  TUTTI_TRY(const tutti_call_t all, read_options(function, "call", options));
  TUTTI_TRY(const Arguments from, arguments_of(function, all));
  TUTTI_RETURN_IF_ERROR(c_api::fill_request(function, comm->comm, from, request));
  take_choices(comm, request);
  if (all.algorithm != nullptr) request.algorithm = all.algorithm;
  if (all.wire == nullptr) return ok();
  const auto named = parse_wire(all.wire);
  if (!named) return invalid(function, "there is no wire of that name");
  request.wire = *named;
  return ok();
}

/// Where a message goes.
struct Room {
  void* data;
  std::size_t count;
  tutti_data_type_t type;
};
Result<Work> recv_any(const char* function, Communicator& communicator, const Room& room, int* from,
                      Tag tag) {
  TUTTI_TRY(const auto checked, checked_type(function, room.type));
  if (from == nullptr) return invalid(function, "`from` is NULL");
  *from = -1;
  // A Rank is an int32 and nothing else, so that the caller's int can be one.
  static_assert(sizeof(Rank) == sizeof(int) && alignof(Rank) == alignof(int));
  return communicator.start_recv_any(room.data, room.count, checked, *reinterpret_cast<Rank*>(from),
                                     tag);
}

tutti_result_t wait_for_any(const char* function, tutti_comm_t comm, const Room& room, int* from,
                            Tag tag) {
  return guard(function, comm, [&](Communicator& communicator) -> Status {
    // A call that this thread can't wait for must not begin: it would use the caller's memory.
    if (!in_group()) TUTTI_RETURN_IF_ERROR(Progress::may_wait(function));
    TUTTI_TRY(Work work, recv_any(function, communicator, room, from, tag));
    return in_group() ? ok() : work.wait();
  });
}

tutti_result_t start_any(const char* function, tutti_comm_t comm, const Room& room, int* from,
                         Tag tag, tutti_work_t* work) {
  return guard_start(function, comm, work, [&](Communicator& communicator) {
    return recv_any(function, communicator, room, from, tag);
  });
}

}  // namespace

extern "C" {

tutti_result_t tutti_call(tutti_comm_t comm, const tutti_call_t* call) {
  return guard(__func__, comm, [&, name = __func__](Communicator& communicator) -> Status {
    Request request;
    TUTTI_RETURN_IF_ERROR(fill_request(name, comm, call, request));
    return communicator.call(request);
  });
}

tutti_result_t tutti_start_call(tutti_comm_t comm, const tutti_call_t* call, tutti_work_t* work) {
  return guard_start(__func__, comm, work,
                     [&, name = __func__](Communicator& communicator) -> Result<Work> {
                       Request request;
                       TUTTI_RETURN_IF_ERROR(fill_request(name, comm, call, request));
                       return communicator.start(request);
                     });
}

tutti_result_t tutti_prepare(tutti_comm_t comm, const tutti_call_t* call,
                             tutti_prepared_t* prepared) {
  if (prepared != nullptr) *prepared = nullptr;
  return guard(__func__, comm, [&, name = __func__](Communicator& communicator) -> Status {
    if (prepared == nullptr) return invalid(name, "`prepared`, where the handle goes, is NULL");
    Request request;
    TUTTI_RETURN_IF_ERROR(fill_request(name, comm, call, request));
    TUTTI_TRY(auto made, communicator.prepare(request));
    *prepared = new tutti_prepared{std::move(made)};
    return ok();
  });
}

tutti_result_t tutti_prepared_run(tutti_prepared_t prepared) {
  return guard(__func__, [prepared, name = __func__]() -> Status {
    if (prepared == nullptr) [[unlikely]]
      return invalid(name, "`prepared` is NULL");
    return prepared->call.run();
  });
}

tutti_result_t tutti_prepared_start(tutti_prepared_t prepared, tutti_work_t* work) {
  if (work != nullptr) *work = nullptr;
  return guard(__func__, [&, name = __func__]() -> Status {
    if (prepared == nullptr) return invalid(name, "`prepared` is NULL");
    if (work == nullptr) return invalid(name, "`work`, where the handle goes, is NULL");
    auto handle = std::make_unique<tutti_work>();  // As guard_start.
    TUTTI_TRY(handle->work, prepared->call.start());
    *work = handle.release();
    return ok();
  });
}

tutti_result_t tutti_prepared_free(tutti_prepared_t prepared) {
  delete prepared;
  return TUTTI_OK;
}

#define TUTTI_ALL(...) __VA_ARGS__
#define TUTTI_CALL(name, request, ...)                                                    \
  tutti_result_t tutti_##name(tutti_comm_t comm, __VA_ARGS__) {                           \
    return call(__func__, comm, TUTTI_ALL request);                                       \
  }                                                                                       \
  tutti_result_t tutti_start_##name(tutti_comm_t comm, __VA_ARGS__, tutti_work_t* work) { \
    return start(__func__, comm, work, TUTTI_ALL request);                                \
  }
#include "capi/calls.def"

tutti_result_t tutti_barrier(tutti_comm_t comm) {
  return guard(__func__, comm, [](Communicator& communicator) { return communicator.barrier(); });
}

// ---- Messages ----

#define TUTTI_MESSAGE_AS(name, cpp, data_type, parameters, tag)                                   \
  tutti_result_t tutti_##name(tutti_comm_t comm, data_type data, size_t count,                    \
                              tutti_data_type_t type, TUTTI_UNPACK parameters) {                  \
    return guard(__func__, comm, [&, function = __func__](Communicator& communicator) -> Status { \
      TUTTI_TRY(const auto checked, checked_type(function, type));                                \
      return communicator.cpp(data, count, checked, Rank{peer}, Tag{tag});                        \
    });                                                                                           \
  }                                                                                               \
  tutti_result_t tutti_start_##name(tutti_comm_t comm, data_type data, size_t count,              \
                                    tutti_data_type_t type, TUTTI_UNPACK parameters,              \
                                    tutti_work_t* work) {                                         \
    const char* function = __func__;                                                              \
    return guard_start(function, comm, work, [&](Communicator& communicator) -> Result<Work> {    \
      TUTTI_TRY(const auto checked, checked_type(function, type));                                \
      return communicator.start_##cpp(data, count, checked, Rank{peer}, Tag{tag});                \
    });                                                                                           \
  }
#define TUTTI_UNPACK(...) __VA_ARGS__
#define TUTTI_MESSAGE(name, data_type)                   \
  TUTTI_MESSAGE_AS(name, name, data_type, (int peer), 0) \
  TUTTI_MESSAGE_AS(name##_tagged, name, data_type, (int peer, int tag), tag)
TUTTI_MESSAGE(send, const void*)
TUTTI_MESSAGE(recv, void*)
#undef TUTTI_MESSAGE
#undef TUTTI_MESSAGE_AS
#undef TUTTI_UNPACK

tutti_result_t tutti_recv_any(tutti_comm_t comm, void* data, size_t count, tutti_data_type_t type,
                              int* from) {
  return wait_for_any(__func__, comm, {data, count, type}, from, {});
}

tutti_result_t tutti_recv_any_tagged(tutti_comm_t comm, void* data, size_t count,
                                     tutti_data_type_t type, int* from, int tag) {
  return wait_for_any(__func__, comm, {data, count, type}, from, Tag{tag});
}

tutti_result_t tutti_start_recv_any(tutti_comm_t comm, void* data, size_t count,
                                    tutti_data_type_t type, int* from, tutti_work_t* work) {
  return start_any(__func__, comm, {data, count, type}, from, {}, work);
}

tutti_result_t tutti_start_recv_any_tagged(tutti_comm_t comm, void* data, size_t count,
                                           tutti_data_type_t type, int* from, int tag,
                                           tutti_work_t* work) {
  return start_any(__func__, comm, {data, count, type}, from, Tag{tag}, work);
}

// ---- Work ----

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
