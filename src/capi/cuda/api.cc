// The C API of communicators of devices, over the C++ one.
#include "tutti/cuda.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "capi/handles.h"
#include "comm/state.h"
#include "tutti/device_communicator.h"

struct tutti_device_comm {
  explicit tutti_device_comm(tutti::DeviceCommunicator made) : comm(std::move(made)) {}
  tutti::DeviceCommunicator comm;
};

namespace tutti::c_api {
namespace {

template <class Body>
tutti_result_t on_device_comm(const char* function, tutti_device_comm_t comm,
                              Body&& body) noexcept {
  return guard(function, [&]() -> Status {
    if (comm == nullptr) return invalid(function, "the communicator is NULL");
    return body(comm->comm);
  });
}

template <class Make>
tutti_result_t make_device_comm(const char* function, tutti_device_comm_t* comm,
                                Make&& make) noexcept {
  if (comm != nullptr) *comm = nullptr;
  return guard(function, [&]() -> Status {
    if (comm == nullptr) return invalid(function, "`comm`, where the handle goes, is NULL");
    TUTTI_TRY(auto made, make());
    *comm = std::make_unique<tutti_device_comm>(std::move(made)).release();
    return ok();
  });
}

/// A getter: writes to `value` what `get` returns.
template <class Value, class Get>
tutti_result_t give(const char* function, tutti_device_comm_t comm, Value* value,
                    Get&& get) noexcept {
  return on_device_comm(function, comm, [&](const DeviceCommunicator& communicator) -> Status {
    if (value == nullptr) return invalid(function, "where the answer goes is NULL");
    *value = get(communicator);
    return ok();
  });
}

struct Arguments {
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  tutti_data_type_t type = 0;
  int root = 0;
  void* stream = nullptr;
  // For blocks of different sizes: a number for each rank; null where there are none.
  const std::size_t* input_counts = nullptr;
  const std::size_t* input_offsets = nullptr;
  const std::size_t* output_counts = nullptr;
  const std::size_t* output_offsets = nullptr;
};

Blocks blocks(const std::size_t* counts, const std::size_t* offsets, int ranks) {
  const auto list = [ranks](const std::size_t* from) {
    return std::span(from, from == nullptr ? 0 : static_cast<std::size_t>(ranks));
  };
  return {list(counts), list(offsets)};
}

tutti_result_t call(const char* function, tutti_device_comm_t comm, Collective collective,
                    const Arguments& from, Result<Reduction> reduction = Reduction{}) noexcept {
  return on_device_comm(function, comm, [&](DeviceCommunicator& communicator) -> Status {
    Request request;
    request.collective = collective;
    request.input = from.input;
    request.output = from.output;
    request.count = from.count;
    request.root = Rank{from.root};
    TUTTI_TRY(request.type, checked_type(function, from.type));
    TUTTI_TRY(request.reduction, std::move(reduction));
    return communicator.call(request, from.stream);
  });
}

/// A call with blocks of different sizes.
tutti_result_t call_vector(const char* function, tutti_device_comm_t comm, Collective collective,
                           const Arguments& from) noexcept {
  return on_device_comm(function, comm, [&](DeviceCommunicator& communicator) -> Status {
    const int ranks = communicator.rank_count();
    Request request;
    request.collective = collective;
    request.input = from.input;
    request.output = from.output;
    request.vector_variant = true;
    request.input_blocks = blocks(from.input_counts, from.input_offsets, ranks);
    request.output_blocks = blocks(from.output_counts, from.output_offsets, ranks);
    if (collective == Collective::kAllGather && from.output_counts != nullptr)
      request.count = from.output_counts[communicator.rank().value];
    TUTTI_TRY(request.type, checked_type(function, from.type));
    return communicator.call(request, from.stream);
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
  UniqueId copy;
  std::memcpy(copy.bytes.data(), id->bytes, sizeof(id->bytes));
  return DeviceCommunicator::create(copy, Rank{how.rank}, how.rank_count, how.device, settings);
}

Reduction scaled(double scale) { return Reduction::pre_mul_sum(scale); }

/// The call that the caller asks about: it has no buffers, and is a sum if it reduces.
Result<Request> asked_about(const char* name, const char* collective, size_t count,
                            tutti_data_type_t type, int root) {
  if (collective == nullptr) return invalid(name, "`collective` is NULL");
  const auto which = parse_collective(collective);
  if (!which) {
    return invalid(name, std::string("'") + collective + "' is no collective; there are " +
                             collective_names());
  }
  Request request;
  request.collective = *which;
  request.count = count;
  request.root = Rank{root};
  TUTTI_TRY(request.type, checked_type(name, type));
  return request;
}

}  // namespace
}  // namespace tutti::c_api

using tutti::Collective;
using tutti::DeviceCommunicator;
using tutti::ok;
using tutti::Rank;
using tutti::Settings;
using tutti::Status;
using tutti::c_api::asked_about;
using tutti::c_api::call;
using tutti::c_api::call_vector;
using tutti::c_api::checked_op;
using tutti::c_api::checked_type;
using tutti::c_api::give;
using tutti::c_api::guard;
using tutti::c_api::invalid;
using tutti::c_api::join;
using tutti::c_api::make_device_comm;
using tutti::c_api::on_device_comm;
using tutti::c_api::scaled;

extern "C" {

// ---- Communicators ----

tutti_result_t tutti_device_comm_init_rank(tutti_device_comm_t* comm, const tutti_unique_id_t* id,
                                           int rank, int rank_count, int device) {
  return make_device_comm(__func__, comm, [&, name = __func__] {
    return join(name, id, {rank, rank_count, device, std::nullopt});
  });
}

tutti_result_t tutti_device_comm_init_rank_within(tutti_device_comm_t* comm,
                                                  const tutti_unique_id_t* id, int rank,
                                                  int rank_count, int device, int timeout_ms) {
  return make_device_comm(__func__, comm, [&, name = __func__] {
    return join(name, id, {rank, rank_count, device, timeout_ms});
  });
}

tutti_result_t tutti_device_comm_init_env(tutti_device_comm_t* comm) {
  return make_device_comm(__func__, comm, [] { return DeviceCommunicator::from_environment(); });
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
    std::vector<std::unique_ptr<tutti_device_comm>> handles;
    for (auto& one : made) handles.push_back(std::make_unique<tutti_device_comm>(std::move(one)));
    std::transform(handles.begin(), handles.end(), comms,
                   [](auto& handle) { return handle.release(); });
    return ok();
  });
}

tutti_result_t tutti_device_comm_split(tutti_device_comm_t comm, int color, int key,
                                       tutti_device_comm_t* part) {
  if (part != nullptr) *part = nullptr;
  return on_device_comm(__func__, comm, [&, name = __func__](DeviceCommunicator& whole) -> Status {
    if (part == nullptr) return invalid(name, "`part`, where the handle goes, is NULL");
    auto made = whole.split(color, key);
    // To C, belonging to none is an answer, not an error.
    if (!made && color < 0 && made.error().code == tutti::Code::kInvalidArgument &&
        !tutti::in_group())
      return ok();
    if (!made) return std::move(made.error());
    *part = std::make_unique<tutti_device_comm>(*std::move(made)).release();
    return ok();
  });
}

tutti_result_t tutti_device_comm_destroy(tutti_device_comm_t comm) {
  return guard(__func__, [comm] {
    delete comm;
    return ok();
  });
}

tutti_result_t tutti_device_comm_abort(tutti_device_comm_t comm, const char* reason) {
  return on_device_comm(__func__, comm, [reason](DeviceCommunicator& communicator) {
    communicator.abort(reason != nullptr ? reason : "the caller gave no reason");
    return ok();
  });
}

tutti_result_t tutti_device_comm_check(tutti_device_comm_t comm) {
  return on_device_comm(
      __func__, comm, [](const DeviceCommunicator& communicator) { return communicator.check(); });
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
  return on_device_comm(
      __func__, comm, [&, name = __func__](const DeviceCommunicator& communicator) -> Status {
        return tutti::c_api::hand_out(name, communicator.describe(), text, size, needed);
      });
}

tutti_result_t tutti_device_comm_prepare(tutti_device_comm_t comm, const char* collective,
                                         size_t count, tutti_data_type_t type, tutti_op_t op,
                                         int root) {
  return on_device_comm(__func__, comm,
                        [&, name = __func__](DeviceCommunicator& communicator) -> Status {
                          TUTTI_TRY(auto request, asked_about(name, collective, count, type, root));
                          if (op == TUTTI_PRE_MUL_SUM) {  // Its scale does not matter here.
                            request.reduction = scaled(1);
                          } else {
                            TUTTI_TRY(request.reduction, checked_op(name, op));
                          }
                          return communicator.prepare(request);
                        });
}

tutti_result_t tutti_device_comm_explain(tutti_device_comm_t comm, const char* collective,
                                         size_t count, tutti_data_type_t type, int root, char* text,
                                         size_t size, size_t* needed) {
  return on_device_comm(
      __func__, comm, [&, name = __func__](const DeviceCommunicator& communicator) -> Status {
        TUTTI_TRY(const auto request, asked_about(name, collective, count, type, root));
        TUTTI_TRY(const std::string all, communicator.explain(request));
        return tutti::c_api::hand_out(name, all, text, size, needed);
      });
}

// ---- Collectives ----

tutti_result_t tutti_all_reduce_on_stream(tutti_device_comm_t comm, const void* input, void* output,
                                          size_t count, tutti_data_type_t type, tutti_op_t op,
                                          void* stream) {
  return call(__func__, comm, Collective::kAllReduce, {input, output, count, type, 0, stream},
              checked_op(__func__, op));
}

tutti_result_t tutti_all_reduce_pre_mul_sum_on_stream(tutti_device_comm_t comm, const void* input,
                                                      void* output, size_t count,
                                                      tutti_data_type_t type, double scale,
                                                      void* stream) {
  return call(__func__, comm, Collective::kAllReduce, {input, output, count, type, 0, stream},
              scaled(scale));
}

tutti_result_t tutti_reduce_scatter_on_stream(tutti_device_comm_t comm, const void* input,
                                              void* output, size_t count, tutti_data_type_t type,
                                              tutti_op_t op, void* stream) {
  return call(__func__, comm, Collective::kReduceScatter, {input, output, count, type, 0, stream},
              checked_op(__func__, op));
}

tutti_result_t tutti_reduce_scatter_pre_mul_sum_on_stream(tutti_device_comm_t comm,
                                                          const void* input, void* output,
                                                          size_t count, tutti_data_type_t type,
                                                          double scale, void* stream) {
  return call(__func__, comm, Collective::kReduceScatter, {input, output, count, type, 0, stream},
              scaled(scale));
}

tutti_result_t tutti_all_gather_on_stream(tutti_device_comm_t comm, const void* input, void* output,
                                          size_t count, tutti_data_type_t type, void* stream) {
  return call(__func__, comm, Collective::kAllGather, {input, output, count, type, 0, stream});
}

tutti_result_t tutti_broadcast_on_stream(tutti_device_comm_t comm, const void* input, void* output,
                                         size_t count, tutti_data_type_t type, int root,
                                         void* stream) {
  return call(__func__, comm, Collective::kBroadcast, {input, output, count, type, root, stream});
}

tutti_result_t tutti_reduce_on_stream(tutti_device_comm_t comm, const void* input, void* output,
                                      size_t count, tutti_data_type_t type, tutti_op_t op, int root,
                                      void* stream) {
  return call(__func__, comm, Collective::kReduce, {input, output, count, type, root, stream},
              checked_op(__func__, op));
}

tutti_result_t tutti_reduce_pre_mul_sum_on_stream(tutti_device_comm_t comm, const void* input,
                                                  void* output, size_t count,
                                                  tutti_data_type_t type, double scale, int root,
                                                  void* stream) {
  return call(__func__, comm, Collective::kReduce, {input, output, count, type, root, stream},
              scaled(scale));
}

tutti_result_t tutti_gather_on_stream(tutti_device_comm_t comm, const void* input, void* output,
                                      size_t count, tutti_data_type_t type, int root,
                                      void* stream) {
  return call(__func__, comm, Collective::kGather, {input, output, count, type, root, stream});
}

tutti_result_t tutti_scatter_on_stream(tutti_device_comm_t comm, const void* input, void* output,
                                       size_t count, tutti_data_type_t type, int root,
                                       void* stream) {
  return call(__func__, comm, Collective::kScatter, {input, output, count, type, root, stream});
}

tutti_result_t tutti_all_to_all_on_stream(tutti_device_comm_t comm, const void* input, void* output,
                                          size_t count, tutti_data_type_t type, void* stream) {
  return call(__func__, comm, Collective::kAllToAll, {input, output, count, type, 0, stream});
}

tutti_result_t tutti_all_gather_v_on_stream(tutti_device_comm_t comm, const void* input,
                                            void* output, const size_t* counts,
                                            const size_t* offsets, tutti_data_type_t type,
                                            void* stream) {
  return call_vector(__func__, comm, Collective::kAllGather,
                     {.input = input,
                      .output = output,
                      .type = type,
                      .stream = stream,
                      .output_counts = counts,
                      .output_offsets = offsets});
}

tutti_result_t tutti_all_to_all_v_on_stream(tutti_device_comm_t comm, const void* input,
                                            const size_t* input_counts, const size_t* input_offsets,
                                            void* output, const size_t* output_counts,
                                            const size_t* output_offsets, tutti_data_type_t type,
                                            void* stream) {
  return call_vector(__func__, comm, Collective::kAllToAll,
                     {.input = input,
                      .output = output,
                      .type = type,
                      .stream = stream,
                      .input_counts = input_counts,
                      .input_offsets = input_offsets,
                      .output_counts = output_counts,
                      .output_offsets = output_offsets});
}

// ---- Registered memory, and what follows a sum ----

tutti_result_t tutti_device_register_memory(tutti_device_comm_t comm, void* data, size_t bytes) {
  return on_device_comm(__func__, comm,
                        [&](DeviceCommunicator& one) { return one.register_memory(data, bytes); });
}

tutti_result_t tutti_device_deregister_memory(tutti_device_comm_t comm, void* data) {
  return on_device_comm(__func__, comm,
                        [&](DeviceCommunicator& one) { return one.deregister_memory(data); });
}

tutti_result_t tutti_device_open_window(tutti_device_comm_t comm, void* data, size_t bytes) {
  return on_device_comm(__func__, comm,
                        [&](DeviceCommunicator& one) { return one.open_window(data, bytes); });
}

tutti_result_t tutti_device_close_window(tutti_device_comm_t comm, void* data) {
  return on_device_comm(__func__, comm,
                        [&](DeviceCommunicator& one) { return one.close_window(data); });
}

tutti_result_t tutti_device_mem_alloc(int device, void** data, size_t bytes) {
  if (data != nullptr) *data = nullptr;
  return guard(__func__, [=, name = __func__]() -> Status {
    if (data == nullptr) return invalid(name, "`data`, where the address goes, is NULL");
    TUTTI_TRY(*data, tutti::device_mem_alloc(device, bytes));
    return ok();
  });
}

tutti_result_t tutti_device_mem_free(void* data) {
  return guard(__func__, [data] { return tutti::device_mem_free(data); });
}

tutti_result_t tutti_all_reduce_rms_norm_on_stream(tutti_device_comm_t comm, const void* input,
                                                   void* residual, void* output, const void* weight,
                                                   size_t rows, size_t columns,
                                                   tutti_data_type_t type, float epsilon,
                                                   void* stream) {
  return on_device_comm(__func__, comm, [&, name = __func__](DeviceCommunicator& one) -> Status {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return one.all_reduce_rms_norm(
        {input, residual, output, weight, rows, columns, checked, epsilon}, stream);
  });
}

tutti_result_t tutti_sgd_step_on_stream(tutti_device_comm_t comm, const void* gradients,
                                        void* parameters, size_t count, tutti_data_type_t type,
                                        float* master, float* momentum, float learning_rate,
                                        float momentum_factor, float weight_decay, void* stream) {
  return on_device_comm(__func__, comm, [&, name = __func__](DeviceCommunicator& one) -> Status {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    return one.sgd_step({gradients, parameters, count, checked, master, momentum, learning_rate,
                         momentum_factor, weight_decay},
                        stream);
  });
}

tutti_result_t tutti_device_sgd_piece(tutti_device_comm_t comm, size_t count,
                                      tutti_data_type_t type, size_t* piece_first,
                                      size_t* piece_count) {
  return on_device_comm(__func__, comm,
                        [&, name = __func__](const DeviceCommunicator& one) -> Status {
                          if (piece_first == nullptr || piece_count == nullptr)
                            return invalid(name, "a place for the answer is NULL");
                          TUTTI_TRY(const auto checked, checked_type(name, type));
                          if (count > std::size_t{1} << 46)
                            return invalid(name, "more than 2^46 parameters");
                          const auto piece = one.sgd_piece(count, checked);
                          *piece_first = piece.first;
                          *piece_count = piece.count;
                          return ok();
                        });
}

// ---- Messages ----

tutti_result_t tutti_send_on_stream(tutti_device_comm_t comm, const void* data, size_t count,
                                    tutti_data_type_t type, int to, void* stream) {
  return on_device_comm(__func__, comm,
                        [&, name = __func__](DeviceCommunicator& communicator) -> Status {
                          TUTTI_TRY(const auto checked, checked_type(name, type));
                          return communicator.send(data, count, checked, Rank{to}, stream);
                        });
}

tutti_result_t tutti_recv_on_stream(tutti_device_comm_t comm, void* data, size_t count,
                                    tutti_data_type_t type, int from, void* stream) {
  return on_device_comm(__func__, comm,
                        [&, name = __func__](DeviceCommunicator& communicator) -> Status {
                          TUTTI_TRY(const auto checked, checked_type(name, type));
                          return communicator.recv(data, count, checked, Rank{from}, stream);
                        });
}

}  // extern "C"
