// The C API over the C++ one: collectives, blocking and started.
#include "capi/handles.h"

namespace tutti::c_api {
namespace {

/// A request from the numbers that C has for it; `reduction` as checked_op or scaled made it.
Result<Request> request(const char* function, Collective collective, const void* input,
                        void* output, std::size_t count, tutti_data_type_t type,
                        Result<Reduction> reduction = Reduction{}, int root = 0) {
  Request made{.collective = collective,
               .input = input,
               .output = output,
               .count = count,
               .type = DataType::kUint8,
               .reduction = {},
               .root = Rank{root}};
  TUTTI_TRY(made.type, checked_type(function, type));
  TUTTI_TRY(made.reduction, std::move(reduction));
  return made;
}

/// The same with blocks of different sizes. What `lists` point to has a number for each rank; the
/// offsets may be null. Which lists count is known once the communicator is.
struct Lists {
  const std::size_t* input_counts = nullptr;
  const std::size_t* input_offsets = nullptr;
  const std::size_t* output_counts = nullptr;
  const std::size_t* output_offsets = nullptr;
};

Blocks blocks(const std::size_t* counts, const std::size_t* offsets, std::size_t ranks) {
  Blocks made;
  if (counts != nullptr) made.counts = {counts, ranks};
  if (offsets != nullptr) made.offsets = {offsets, ranks};
  return made;
}

Result<Request> with_blocks(const Communicator& comm, Result<Request> asked, const Lists& lists) {
  if (!asked) return asked;
  const auto ranks = static_cast<std::size_t>(comm.rank_count());
  const auto me = static_cast<std::size_t>(comm.rank().value);
  asked->vector_variant = true;
  asked->input_blocks = blocks(lists.input_counts, lists.input_offsets, ranks);
  asked->output_blocks = blocks(lists.output_counts, lists.output_offsets, ranks);
  // Where all ranks know all counts, the rank's own is one of them.
  if (asked->collective == Collective::kAllGather && lists.output_counts != nullptr)
    asked->count = lists.output_counts[me];
  if (asked->collective == Collective::kReduceScatter && lists.input_counts != nullptr)
    asked->count = lists.input_counts[me];
  return asked;
}

Reduction scaled(double scale) { return Reduction::pre_mul_sum(scale); }

/// Makes the call; with `lists`, of blocks of different sizes.
tutti_result_t call(const char* function, tutti_comm_t comm, Result<Request> asked,
                    const Lists* lists = nullptr) noexcept {
  return guard(function, comm, [&](Communicator& communicator) -> Status {
    if (!asked) return asked.error();
    take_algorithm(comm, *asked);
    if (lists == nullptr) return communicator.call(*asked);
    TUTTI_TRY(const Request vector_variant, with_blocks(communicator, asked, *lists));
    return communicator.call(vector_variant);
  });
}

/// Starts it and hands out its work.
tutti_result_t start(const char* function, tutti_comm_t comm, tutti_work_t* work,
                     Result<Request> asked, const Lists* lists = nullptr) noexcept {
  return guard_start(function, comm, work, [&](Communicator& communicator) -> Result<Work> {
    if (!asked) return asked.error();
    take_algorithm(comm, *asked);
    if (lists == nullptr) return communicator.start(*asked);
    TUTTI_TRY(const Request vector_variant, with_blocks(communicator, asked, *lists));
    return communicator.start(vector_variant);
  });
}

}  // namespace
}  // namespace tutti::c_api

using tutti::Collective;
using tutti::Communicator;
using tutti::c_api::call;
using tutti::c_api::checked_op;
using tutti::c_api::guard;
using tutti::c_api::Lists;
using tutti::c_api::request;
using tutti::c_api::scaled;
using tutti::c_api::start;

extern "C" {

// ---- Blocking collectives ----

tutti_result_t tutti_all_reduce(tutti_comm_t comm, const void* input, void* output, size_t count,
                                tutti_data_type_t type, tutti_op_t op) {
  return call(__func__, comm,
              request(__func__, Collective::kAllReduce, input, output, count, type,
                      checked_op(__func__, op)));
}

tutti_result_t tutti_all_reduce_pre_mul_sum(tutti_comm_t comm, const void* input, void* output,
                                            size_t count, tutti_data_type_t type, double scale) {
  return call(__func__, comm,
              request(__func__, Collective::kAllReduce, input, output, count, type, scaled(scale)));
}

tutti_result_t tutti_reduce_scatter(tutti_comm_t comm, const void* input, void* output,
                                    size_t count, tutti_data_type_t type, tutti_op_t op) {
  return call(__func__, comm,
              request(__func__, Collective::kReduceScatter, input, output, count, type,
                      checked_op(__func__, op)));
}

tutti_result_t tutti_reduce_scatter_pre_mul_sum(tutti_comm_t comm, const void* input, void* output,
                                                size_t count, tutti_data_type_t type,
                                                double scale) {
  return call(
      __func__, comm,
      request(__func__, Collective::kReduceScatter, input, output, count, type, scaled(scale)));
}

tutti_result_t tutti_all_gather(tutti_comm_t comm, const void* input, void* output, size_t count,
                                tutti_data_type_t type) {
  return call(__func__, comm,
              request(__func__, Collective::kAllGather, input, output, count, type));
}

tutti_result_t tutti_broadcast(tutti_comm_t comm, const void* input, void* output, size_t count,
                               tutti_data_type_t type, int root) {
  return call(__func__, comm,
              request(__func__, Collective::kBroadcast, input, output, count, type,
                      tutti::Reduction{}, root));
}

tutti_result_t tutti_reduce(tutti_comm_t comm, const void* input, void* output, size_t count,
                            tutti_data_type_t type, tutti_op_t op, int root) {
  return call(__func__, comm,
              request(__func__, Collective::kReduce, input, output, count, type,
                      checked_op(__func__, op), root));
}

tutti_result_t tutti_reduce_pre_mul_sum(tutti_comm_t comm, const void* input, void* output,
                                        size_t count, tutti_data_type_t type, double scale,
                                        int root) {
  return call(
      __func__, comm,
      request(__func__, Collective::kReduce, input, output, count, type, scaled(scale), root));
}

tutti_result_t tutti_gather(tutti_comm_t comm, const void* input, void* output, size_t count,
                            tutti_data_type_t type, int root) {
  return call(
      __func__, comm,
      request(__func__, Collective::kGather, input, output, count, type, tutti::Reduction{}, root));
}

tutti_result_t tutti_scatter(tutti_comm_t comm, const void* input, void* output, size_t count,
                             tutti_data_type_t type, int root) {
  return call(__func__, comm,
              request(__func__, Collective::kScatter, input, output, count, type,
                      tutti::Reduction{}, root));
}

tutti_result_t tutti_all_to_all(tutti_comm_t comm, const void* input, void* output, size_t count,
                                tutti_data_type_t type) {
  return call(__func__, comm, request(__func__, Collective::kAllToAll, input, output, count, type));
}

tutti_result_t tutti_barrier(tutti_comm_t comm) {
  return guard(__func__, comm, [](Communicator& communicator) { return communicator.barrier(); });
}

// ---- Asynchronous collectives ----

tutti_result_t tutti_start_all_reduce(tutti_comm_t comm, const void* input, void* output,
                                      size_t count, tutti_data_type_t type, tutti_op_t op,
                                      tutti_work_t* work) {
  return start(__func__, comm, work,
               request(__func__, Collective::kAllReduce, input, output, count, type,
                       checked_op(__func__, op)));
}

tutti_result_t tutti_start_all_reduce_pre_mul_sum(tutti_comm_t comm, const void* input,
                                                  void* output, size_t count,
                                                  tutti_data_type_t type, double scale,
                                                  tutti_work_t* work) {
  return start(
      __func__, comm, work,
      request(__func__, Collective::kAllReduce, input, output, count, type, scaled(scale)));
}

tutti_result_t tutti_start_reduce_scatter(tutti_comm_t comm, const void* input, void* output,
                                          size_t count, tutti_data_type_t type, tutti_op_t op,
                                          tutti_work_t* work) {
  return start(__func__, comm, work,
               request(__func__, Collective::kReduceScatter, input, output, count, type,
                       checked_op(__func__, op)));
}

tutti_result_t tutti_start_reduce_scatter_pre_mul_sum(tutti_comm_t comm, const void* input,
                                                      void* output, size_t count,
                                                      tutti_data_type_t type, double scale,
                                                      tutti_work_t* work) {
  return start(
      __func__, comm, work,
      request(__func__, Collective::kReduceScatter, input, output, count, type, scaled(scale)));
}

tutti_result_t tutti_start_all_gather(tutti_comm_t comm, const void* input, void* output,
                                      size_t count, tutti_data_type_t type, tutti_work_t* work) {
  return start(__func__, comm, work,
               request(__func__, Collective::kAllGather, input, output, count, type));
}

tutti_result_t tutti_start_broadcast(tutti_comm_t comm, const void* input, void* output,
                                     size_t count, tutti_data_type_t type, int root,
                                     tutti_work_t* work) {
  return start(__func__, comm, work,
               request(__func__, Collective::kBroadcast, input, output, count, type,
                       tutti::Reduction{}, root));
}

tutti_result_t tutti_start_reduce(tutti_comm_t comm, const void* input, void* output, size_t count,
                                  tutti_data_type_t type, tutti_op_t op, int root,
                                  tutti_work_t* work) {
  return start(__func__, comm, work,
               request(__func__, Collective::kReduce, input, output, count, type,
                       checked_op(__func__, op), root));
}

tutti_result_t tutti_start_reduce_pre_mul_sum(tutti_comm_t comm, const void* input, void* output,
                                              size_t count, tutti_data_type_t type, double scale,
                                              int root, tutti_work_t* work) {
  return start(
      __func__, comm, work,
      request(__func__, Collective::kReduce, input, output, count, type, scaled(scale), root));
}

tutti_result_t tutti_start_gather(tutti_comm_t comm, const void* input, void* output, size_t count,
                                  tutti_data_type_t type, int root, tutti_work_t* work) {
  return start(
      __func__, comm, work,
      request(__func__, Collective::kGather, input, output, count, type, tutti::Reduction{}, root));
}

tutti_result_t tutti_start_scatter(tutti_comm_t comm, const void* input, void* output, size_t count,
                                   tutti_data_type_t type, int root, tutti_work_t* work) {
  return start(__func__, comm, work,
               request(__func__, Collective::kScatter, input, output, count, type,
                       tutti::Reduction{}, root));
}

tutti_result_t tutti_start_all_to_all(tutti_comm_t comm, const void* input, void* output,
                                      size_t count, tutti_data_type_t type, tutti_work_t* work) {
  return start(__func__, comm, work,
               request(__func__, Collective::kAllToAll, input, output, count, type));
}

// ---- Blocks of different sizes ----

tutti_result_t tutti_all_gather_v(tutti_comm_t comm, const void* input, void* output,
                                  const size_t* counts, const size_t* offsets,
                                  tutti_data_type_t type) {
  const Lists lists{.output_counts = counts, .output_offsets = offsets};
  return call(__func__, comm, request(__func__, Collective::kAllGather, input, output, 0, type),
              &lists);
}

tutti_result_t tutti_start_all_gather_v(tutti_comm_t comm, const void* input, void* output,
                                        const size_t* counts, const size_t* offsets,
                                        tutti_data_type_t type, tutti_work_t* work) {
  const Lists lists{.output_counts = counts, .output_offsets = offsets};
  return start(__func__, comm, work,
               request(__func__, Collective::kAllGather, input, output, 0, type), &lists);
}

tutti_result_t tutti_reduce_scatter_v(tutti_comm_t comm, const void* input, void* output,
                                      const size_t* counts, const size_t* offsets,
                                      tutti_data_type_t type, tutti_op_t op) {
  const Lists lists{.input_counts = counts, .input_offsets = offsets};
  return call(__func__, comm,
              request(__func__, Collective::kReduceScatter, input, output, 0, type,
                      checked_op(__func__, op)),
              &lists);
}

tutti_result_t tutti_start_reduce_scatter_v(tutti_comm_t comm, const void* input, void* output,
                                            const size_t* counts, const size_t* offsets,
                                            tutti_data_type_t type, tutti_op_t op,
                                            tutti_work_t* work) {
  const Lists lists{.input_counts = counts, .input_offsets = offsets};
  return start(__func__, comm, work,
               request(__func__, Collective::kReduceScatter, input, output, 0, type,
                       checked_op(__func__, op)),
               &lists);
}

tutti_result_t tutti_all_to_all_v(tutti_comm_t comm, const void* input, const size_t* input_counts,
                                  const size_t* input_offsets, void* output,
                                  const size_t* output_counts, const size_t* output_offsets,
                                  tutti_data_type_t type) {
  const Lists lists{.input_counts = input_counts,
                    .input_offsets = input_offsets,
                    .output_counts = output_counts,
                    .output_offsets = output_offsets};
  return call(__func__, comm, request(__func__, Collective::kAllToAll, input, output, 0, type),
              &lists);
}

tutti_result_t tutti_start_all_to_all_v(tutti_comm_t comm, const void* input,
                                        const size_t* input_counts, const size_t* input_offsets,
                                        void* output, const size_t* output_counts,
                                        const size_t* output_offsets, tutti_data_type_t type,
                                        tutti_work_t* work) {
  const Lists lists{.input_counts = input_counts,
                    .input_offsets = input_offsets,
                    .output_counts = output_counts,
                    .output_offsets = output_offsets};
  return start(__func__, comm, work,
               request(__func__, Collective::kAllToAll, input, output, 0, type), &lists);
}

tutti_result_t tutti_gather_v(tutti_comm_t comm, const void* input, size_t count, void* output,
                              const size_t* counts, const size_t* offsets, tutti_data_type_t type,
                              int root) {
  const Lists lists{.output_counts = counts, .output_offsets = offsets};
  return call(
      __func__, comm,
      request(__func__, Collective::kGather, input, output, count, type, tutti::Reduction{}, root),
      &lists);
}

tutti_result_t tutti_start_gather_v(tutti_comm_t comm, const void* input, size_t count,
                                    void* output, const size_t* counts, const size_t* offsets,
                                    tutti_data_type_t type, int root, tutti_work_t* work) {
  const Lists lists{.output_counts = counts, .output_offsets = offsets};
  return start(
      __func__, comm, work,
      request(__func__, Collective::kGather, input, output, count, type, tutti::Reduction{}, root),
      &lists);
}

tutti_result_t tutti_scatter_v(tutti_comm_t comm, const void* input, const size_t* counts,
                               const size_t* offsets, void* output, size_t count,
                               tutti_data_type_t type, int root) {
  const Lists lists{.input_counts = counts, .input_offsets = offsets};
  return call(
      __func__, comm,
      request(__func__, Collective::kScatter, input, output, count, type, tutti::Reduction{}, root),
      &lists);
}

tutti_result_t tutti_start_scatter_v(tutti_comm_t comm, const void* input, const size_t* counts,
                                     const size_t* offsets, void* output, size_t count,
                                     tutti_data_type_t type, int root, tutti_work_t* work) {
  const Lists lists{.input_counts = counts, .input_offsets = offsets};
  return start(
      __func__, comm, work,
      request(__func__, Collective::kScatter, input, output, count, type, tutti::Reduction{}, root),
      &lists);
}

}  // extern "C"
