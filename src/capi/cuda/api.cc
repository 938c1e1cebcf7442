// The C API of communicators of devices, over the C++ one.
#include "tutti/cuda.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <vector>

#include "capi/handles.h"
#include "tutti/device_communicator.h"

struct tutti_device_comm {
  explicit tutti_device_comm(tutti::DeviceCommunicator made) : comm(std::move(made)) {}
  tutti::DeviceCommunicator comm;
  tutti::c_api::KeptWire wire{};  // What tutti_device_comm_use_wire said last.
};

namespace tutti::c_api {
namespace {

tutti_result_t call(const char* function, tutti_device_comm_t comm, const Arguments& from,
                    void* stream) noexcept {
  return guard(function, comm, [&](DeviceCommunicator& communicator) -> Status {
    Request request;
    TUTTI_RETURN_IF_ERROR(fill_request(function, communicator, from, request));
    take_wire(comm->wire, request);
    return communicator.call(request, stream);
  });
}

struct Joining {
  int rank, rank_count, device;
  std::optional<int> timeout_ms;  // Empty: the environment's.
};
Result<DeviceCommunicator> join(const char* function, const tutti_unique_id_t* id,
                                const Joining& how) {
  if (id == nullptr) return invalid(function, "`id` is NULL");
  TUTTI_TRY(auto settings, Settings::from_environment());
  if (how.timeout_ms && *how.timeout_ms <= 0)
    return invalid(function, "`timeout_ms` has to be more than 0");
  if (how.timeout_ms) settings.timeout = std::chrono::milliseconds(*how.timeout_ms);
  return DeviceCommunicator::create(id_of(*id), Rank{how.rank}, how.rank_count, how.device,
                                    settings);
}

}  // namespace
}  // namespace tutti::c_api

using namespace tutti;         // NOLINT(google-build-using-namespace): the API has no namespace.
using namespace tutti::c_api;  // NOLINT(google-build-using-namespace)

extern "C" {

// ---- Communicators ----

tutti_result_t tutti_device_comm_init_rank(tutti_device_comm_t* comm, const tutti_unique_id_t* id,
                                           int rank, int rank_count, int device) {
  return guard_make(__func__, comm, [&, name = __func__] {
    return join(name, id, {rank, rank_count, device, std::nullopt});
  });
}

tutti_result_t tutti_device_comm_init_rank_within(tutti_device_comm_t* comm,
                                                  const tutti_unique_id_t* id, int rank,
                                                  int rank_count, int device, int timeout_ms) {
  return guard_make(__func__, comm, [&, name = __func__] {
    return join(name, id, {rank, rank_count, device, timeout_ms});
  });
}

tutti_result_t tutti_device_comm_init_env(tutti_device_comm_t* comm) {
  return guard_make(__func__, comm, [] { return DeviceCommunicator::from_environment(); });
}

tutti_result_t tutti_device_comm_init_all(tutti_device_comm_t* comms, const int* devices,
                                          int rank_count) {
  return guard(__func__, [&, name = __func__]() -> Status {
    if (comms == nullptr) return invalid(name, "`comms`, where the handles go, is NULL");
    if (rank_count < 1) return invalid(name, "there has to be a rank");
    std::fill_n(comms, rank_count, nullptr);
    std::vector<int> list(static_cast<std::size_t>(rank_count));
    std::iota(list.begin(), list.end(), 0);
    if (devices != nullptr) std::copy_n(devices, rank_count, list.begin());
    TUTTI_TRY(const auto settings, Settings::from_environment());
    TUTTI_TRY(auto made, DeviceCommunicator::in_process(list, settings));
    hand_out_all(std::move(made), comms);
    return ok();
  });
}

tutti_result_t tutti_device_comm_split(tutti_device_comm_t comm, int color, int key,
                                       tutti_device_comm_t* part) {
  return split(__func__, comm, color, key, part);
}

tutti_result_t tutti_device_comm_destroy(tutti_device_comm_t comm) {
  return destroy(__func__, comm);
}

tutti_result_t tutti_device_comm_abort(tutti_device_comm_t comm, const char* reason) {
  return c_api::abort(__func__, comm, reason);
}

tutti_result_t tutti_device_comm_check(tutti_device_comm_t comm) {
  return guard(__func__, comm,
               [](const DeviceCommunicator& communicator) { return communicator.check(); });
}

tutti_result_t tutti_device_comm_health(tutti_device_comm_t comm) { return health(__func__, comm); }

tutti_result_t tutti_device_comm_revoke(tutti_device_comm_t comm, const char* reason) {
  return revoke(__func__, comm, reason);
}

tutti_result_t tutti_device_comm_shrink(tutti_device_comm_t comm, const int* excluded,
                                        int excluded_count, tutti_device_comm_t* shrunk,
                                        int* members, uint64_t* completed) {
  const auto note = [completed](const DeviceShrunk& made) {
    if (completed != nullptr) *completed = made.completed;
  };
  return shrink(__func__, comm, {excluded, excluded_count, members}, shrunk, note);
}

tutti_result_t tutti_device_comm_agree(tutti_device_comm_t comm, uint64_t* flags) {
  return agree(__func__, comm, flags);
}

tutti_result_t tutti_device_comm_grow(tutti_device_comm_t comm, const tutti_unique_id_t* id,
                                      int rank_count, tutti_device_comm_t* grown) {
  return grow(__func__, comm, id, rank_count, grown);
}

tutti_result_t tutti_device_comm_rank(tutti_device_comm_t comm, int* rank) {
  return give(__func__, comm, rank, [](const auto& one) { return one.rank().value; });
}

tutti_result_t tutti_device_comm_count(tutti_device_comm_t comm, int* rank_count) {
  return give(__func__, comm, rank_count, [](const auto& one) { return one.rank_count(); });
}

tutti_result_t tutti_device_comm_device(tutti_device_comm_t comm, int* device) {
  return give(__func__, comm, device, [](const auto& one) { return one.device(); });
}

tutti_result_t tutti_device_comm_bytes(tutti_device_comm_t comm, size_t* bytes) {
  return give(__func__, comm, bytes, [](const auto& one) { return one.device_bytes(); });
}

tutti_result_t tutti_device_comm_describe(tutti_device_comm_t comm, char* text, size_t size,
                                          size_t* needed) {
  return describe(__func__, comm, text, size, needed);
}

tutti_result_t tutti_device_comm_prepare(tutti_device_comm_t comm, const char* collective,
                                         size_t count, tutti_data_type_t type, tutti_op_t op,
                                         int root) {
  return guard(__func__, comm, [&, name = __func__](DeviceCommunicator& communicator) -> Status {
    TUTTI_TRY(auto request, asked_about(name, collective, count, type, root));
    if (op == TUTTI_PRE_MUL_SUM) {  // Its scale does not matter here.
      request.reduction = Reduction::pre_mul_sum(1);
    } else {
      TUTTI_TRY(request.reduction, checked_op(name, op));
    }
    take_wire(comm->wire, request);
    return communicator.prepare(request);
  });
}

tutti_result_t tutti_device_comm_explain(tutti_device_comm_t comm, const char* collective,
                                         size_t count, tutti_data_type_t type, int root, char* text,
                                         size_t size, size_t* needed) {
  return guard(__func__, comm,
               [&, name = __func__](const DeviceCommunicator& communicator) -> Status {
                 TUTTI_TRY(auto request, asked_about(name, collective, count, type, root));
                 take_wire(comm->wire, request);
                 TUTTI_TRY(const std::string all, communicator.explain(request));
                 return hand_out(name, all, text, size, needed);
               });
}

tutti_result_t tutti_device_comm_use_wire(tutti_device_comm_t comm, const char* name) {
  return guard(__func__, comm, [&, function = __func__](const DeviceCommunicator&) {
    return use_wire(function, name, comm->wire);
  });
}

// ---- Collectives ----

#define TUTTI_ALL(...) __VA_ARGS__
#define TUTTI_CALL(name, request, ...)                                                           \
  tutti_result_t tutti_##name##_on_stream(tutti_device_comm_t comm, __VA_ARGS__, void* stream) { \
    return call(__func__, comm, TUTTI_ALL request, stream);                                      \
  }
#define TUTTI_HOST_CALL(...)
#include "capi/calls.def"

// ---- Registered memory, and what follows a sum ----

tutti_result_t tutti_device_register_memory(tutti_device_comm_t comm, void* data, size_t bytes) {
  return guard(__func__, comm,
               [&](DeviceCommunicator& one) { return one.register_memory(data, bytes); });
}

tutti_result_t tutti_device_deregister_memory(tutti_device_comm_t comm, void* data) {
  return guard(__func__, comm,
               [&](DeviceCommunicator& one) { return one.deregister_memory(data); });
}

tutti_result_t tutti_device_open_window(tutti_device_comm_t comm, void* data, size_t bytes) {
  return guard(__func__, comm,
               [&](DeviceCommunicator& one) { return one.open_window(data, bytes); });
}

tutti_result_t tutti_device_close_window(tutti_device_comm_t comm, void* data) {
  return guard(__func__, comm, [&](DeviceCommunicator& one) { return one.close_window(data); });
}

tutti_result_t tutti_device_mem_alloc(int device, void** data, size_t bytes) {
  return guard_alloc(__func__, data, [=] { return device_mem_alloc(device, bytes); });
}

tutti_result_t tutti_device_mem_free(void* data) {
  return guard(__func__, [data] { return device_mem_free(data); });
}

tutti_result_t tutti_all_reduce_rms_norm_on_stream(tutti_device_comm_t comm, const void* input,
                                                   void* residual, void* output, const void* weight,
                                                   size_t rows, size_t columns,
                                                   tutti_data_type_t type, float epsilon,
                                                   void* stream) {
  return guard(__func__, comm, [&, name = __func__](DeviceCommunicator& one) -> Status {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return one.all_reduce_rms_norm(
        {input, residual, output, weight, rows, columns, checked, epsilon}, stream);
  });
}

tutti_result_t tutti_sgd_step_on_stream(tutti_device_comm_t comm, const void* gradients,
                                        void* parameters, size_t count, tutti_data_type_t type,
                                        float* master, float* momentum, float learning_rate,
                                        float momentum_factor, float weight_decay, void* stream) {
  return guard(__func__, comm, [&, name = __func__](DeviceCommunicator& one) -> Status {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return one.sgd_step({gradients, parameters, count, checked, master, momentum, learning_rate,
                         momentum_factor, weight_decay},
                        stream);
  });
}

tutti_result_t tutti_device_sgd_piece(tutti_device_comm_t comm, size_t count,
                                      tutti_data_type_t type, size_t* piece_first,
                                      size_t* piece_count) {
  return guard(__func__, comm, [&, name = __func__](const DeviceCommunicator& one) -> Status {
    if (piece_first == nullptr || piece_count == nullptr)
      return invalid(name, "a place for the answer is NULL");
    TUTTI_TRY(const auto checked, checked_type(name, type));
    if (count > std::size_t{1} << 46) return invalid(name, "more than 2^46 parameters");
    const auto piece = one.sgd_piece(count, checked);
    *piece_first = piece.first;
    *piece_count = piece.count;
    return ok();
  });
}

// ---- Messages ----

#define TUTTI_MESSAGE(name, data_type)                                                            \
  tutti_result_t tutti_##name##_on_stream(tutti_device_comm_t comm, data_type data, size_t count, \
                                          tutti_data_type_t type, int peer, void* stream) {       \
    return guard(__func__, comm, [&, function = __func__](DeviceCommunicator& one) -> Status {    \
      TUTTI_TRY(const auto checked, checked_type(function, type));                                \
      return one.name(data, count, checked, Rank{peer}, stream);                                  \
    });                                                                                           \
  }
TUTTI_MESSAGE(send, const void*)
TUTTI_MESSAGE(recv, void*)
#undef TUTTI_MESSAGE

// ---- One-sided operations ----

tutti_result_t tutti_put_on_stream(tutti_device_comm_t comm, const void* data, void* target,
                                   size_t bytes, int to, void* stream) {
  return guard(__func__, comm, [&](DeviceCommunicator& one) {
    return one.put(data, target, bytes, Rank{to}, stream);
  });
}

tutti_result_t tutti_signal_on_stream(tutti_device_comm_t comm, int to, int number, void* stream) {
  return guard(__func__, comm,
               [&](DeviceCommunicator& one) { return one.signal(Rank{to}, number, stream); });
}

tutti_result_t tutti_wait_signal_on_stream(tutti_device_comm_t comm, int from, int number,
                                           size_t count, void* stream) {
  return guard(__func__, comm, [&](DeviceCommunicator& one) {
    return one.wait_signal(Rank{from}, number, count, stream);
  });
}

}  // extern "C"
