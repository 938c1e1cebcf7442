// The collectives, messages, and reductions with factors.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "base/cuda_refusal.h"
#include "group.h"
#include "tutti/detail/reduce_op.h"

namespace tutti::nccl {
namespace {

/// By their numbers in NCCL.
constexpr std::array kTypes{DataType::kInt8,     DataType::kUint8,      DataType::kInt32,
                            DataType::kUint32,   DataType::kInt64,      DataType::kUint64,
                            DataType::kFloat16,  DataType::kFloat32,    DataType::kFloat64,
                            DataType::kBfloat16, DataType::kFloat8E4M3, DataType::kFloat8E5M2};
static_assert(kTypes.size() == ncclNumTypes);
constexpr std::array kOps{ReduceOp::kSum, ReduceOp::kProd, ReduceOp::kMax, ReduceOp::kMin,
                          ReduceOp::kAvg};
static_assert(kOps.size() == ncclNumOps);

}  // namespace

std::optional<DataType> type_of(ncclDataType_t type) {
  const auto number = static_cast<std::size_t>(type);
  return number < kTypes.size() ? std::optional(kTypes[number]) : std::nullopt;
}

namespace {

/// A factor of the host's, of this type.
double scalar_of(const void* scalar, DataType type) {
  double factor = 1;
  kernels::dispatch(type, ReduceOp::kSum, [&]<DataType which, ReduceOp>() {
    typename kernels::Element<which>::Storage value;
    std::memcpy(&value, scalar, sizeof value);
    factor = static_cast<double>(kernels::Element<which>::widen(value));
  });
  return factor;
}

struct Asked {
  Collective collective;
  const void* input;
  void* output;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op = ncclSum;
  int root = 0;
};

/// The operation of a call, in our words; an error says what is wrong with it.
struct Operation {
  Reduction reduction;
  const void* device_scale = nullptr;
};
Result<Operation> operation_of(const Asked& asked, const ncclComm& comm) {
  const auto op = static_cast<std::size_t>(asked.op);
  if (op < kOps.size()) return Operation{kOps[op]};
  const std::size_t number = op - kOps.size();
  if (number >= comm.operations.size() || !comm.operations[number]) {
    return Error{Code::kInvalidArgument,
                 "operation " + std::to_string(asked.op) + " is none, or was destroyed"};
  }
  const Premultiplied& made = *comm.operations[number];
  if (made.type != asked.type) {
    return Error{Code::kInvalidArgument, "the operation was made for another type"};
  }
  return Operation{Reduction::pre_mul_sum(made.scale), made.scale_at};
}

/// Records the event before the launch, as NCCL does with CUDA before 12.3: a stream that waits for
/// the event may run beside the call.
Status record(cudaEvent_t event, cudaStream_t stream) {
  const auto said = event == nullptr ? cudaSuccess : cudaEventRecord(event, stream);
  if (said == cudaSuccess) return ok();
  cudaGetLastError();  // Clears it: this call reports it.
  cuda_refusal = said;
  return Error{Code::kSystem,
               std::string("recording config.launchCompletionEvent: ") + cudaGetErrorString(said)};
}

/// Checks the configuration of a single call, from NCCL 2.31 or later. Only its event, which came
/// with 2.32, has a meaning here.
ncclResult_t check_config(ncclComm_t comm, const char* function, const ncclCollConfig_t& config) {
  const auto wrong = [&](const std::string& what) {
    return bad_argument(comm, function, "config" + what);
  };
  if (config.size < offsetof(ncclCollConfig_t, launchCompletionEvent) || config.magic != 0xcafebeef)
    return wrong(" was not initialised; start from NCCL_COLLCONFIG_INITIALIZER");
  if (config.forceAlgSelection != 0 && config.forceAlgSelection != 1)
    return wrong(".forceAlgSelection is " + std::to_string(config.forceAlgSelection) +
                 "; it is 0 or 1");
  if (!is_cta_policy(config.CTAPolicy))
    return wrong(".CTAPolicy is " + std::to_string(config.CTAPolicy) + ", no NCCL_CTA_POLICY_...");
  return ncclSuccess;
}

/// `config` is for this call alone, or NULL. The call is refused if it is wrong; the group goes on
/// without the call.
ncclResult_t start(const char* function, const Asked& asked, ncclComm_t comm, cudaStream_t stream,
                   const ncclCollConfig_t* config = nullptr) {
  const Use use(comm);
  if (config != nullptr) {
    const ncclResult_t failed = check_config(use.get(), function, *config);
    if (failed != ncclSuccess) return failed;
  }
  Group& group = Group::current();
  if (const ncclResult_t failed = check_ready(use.get(), function)) return group.fail(failed);
  const auto type = type_of(asked.type);
  if (!type) {
    return group.fail(bad_argument(comm, function, "type " + std::to_string(asked.type)));
  }
  if (asked.root < 0 || asked.root >= comm->size) {
    return group.fail(bad_argument(
        comm, function,
        "root " + std::to_string(asked.root) + " of " + std::to_string(comm->size) + " ranks"));
  }
  const auto operation = operation_of(asked, *comm);
  if (!operation) return group.fail(bad_argument(comm, function, operation.error().what));
  const Request request{.collective = asked.collective,
                        .input = asked.input,
                        .output = asked.output,
                        .count = asked.count,
                        .type = *type,
                        .reduction = operation->reduction,
                        .root = Rank{asked.root},
                        .device_scale = operation->device_scale};
  const bool has_event = config != nullptr && config->size >= sizeof *config;
  const cudaEvent_t launched = has_event ? config->launchCompletionEvent : nullptr;
  return group.fail(group.add(function, comm,
                              [request, stream, launched](DeviceCommunicator& device) -> Status {
                                TUTTI_RETURN_IF_ERROR(record(launched, stream));
                                return device.call(request, stream);
                              },
                              {.collective = request}));
}

/// A message to a peer or from it.
struct Message {
  bool sends;
  int peer;
  std::size_t count;
  ncclDataType_t type;
};

/// Does `call`, which is the message.
ncclResult_t start(const char* function, const Message& message, ncclComm_t comm,
                   std::function<Status(DeviceCommunicator&)> call) {
  Group& group = Group::current();
  const Use use(comm);
  if (const ncclResult_t failed = check_ready(use.get(), function)) return group.fail(failed);
  const auto type = type_of(message.type);
  if (!type)
    return group.fail(bad_argument(comm, function, "type " + std::to_string(message.type)));
  if (message.peer < 0 || message.peer >= comm->size) {
    return group.fail(bad_argument(
        comm, function,
        "peer " + std::to_string(message.peer) + " of " + std::to_string(comm->size) + " ranks"));
  }
  Work work{.bytes = message.count * size_of(*type)};
  (message.sends ? work.to : work.from) = message.peer;
  return group.fail(group.add(function, comm, std::move(call), work));
}

}  // namespace
}  // namespace tutti::nccl

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.
using tutti::Collective;

// A collective, and the same with a configuration of its own.
#define TUTTI_ALL(...) __VA_ARGS__
#define TUTTI_COLLECTIVE(name, asked, ...)                                     \
  ncclResult_t name(__VA_ARGS__, ncclComm_t comm, cudaStream_t stream) {       \
    return start(__func__, TUTTI_ALL asked, comm, stream);                     \
  }                                                                            \
  ncclResult_t name##Config(__VA_ARGS__, ncclComm_t comm, cudaStream_t stream, \
                            const ncclCollConfig_t* config) {                  \
    return start(__func__, TUTTI_ALL asked, comm, stream, config);             \
  }
TUTTI_COLLECTIVE(ncclAllReduce, ({Collective::kAllReduce, input, output, count, type, op}),
                 const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op)
TUTTI_COLLECTIVE(ncclReduce, ({Collective::kReduce, input, output, count, type, op, root}),
                 const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op,
                 int root)
TUTTI_COLLECTIVE(ncclReduceScatter, ({Collective::kReduceScatter, input, output, count, type, op}),
                 const void* input, void* output, size_t count, ncclDataType_t type, ncclRedOp_t op)
TUTTI_COLLECTIVE(ncclBroadcast,
                 ({Collective::kBroadcast, input, output, count, type, ncclSum, root}),
                 const void* input, void* output, size_t count, ncclDataType_t type, int root)
TUTTI_COLLECTIVE(ncclAllGather, ({Collective::kAllGather, input, output, count, type}),
                 const void* input, void* output, size_t count, ncclDataType_t type)
TUTTI_COLLECTIVE(ncclAlltoAll, ({Collective::kAllToAll, input, output, count, type}),
                 const void* input, void* output, size_t count, ncclDataType_t type)
TUTTI_COLLECTIVE(ncclGather, ({Collective::kGather, input, output, count, type, ncclSum, root}),
                 const void* input, void* output, size_t count, ncclDataType_t type, int root)
TUTTI_COLLECTIVE(ncclScatter, ({Collective::kScatter, input, output, count, type, ncclSum, root}),
                 const void* input, void* output, size_t count, ncclDataType_t type, int root)
#undef TUTTI_COLLECTIVE
#undef TUTTI_ALL

ncclResult_t ncclBcast(void* buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                       cudaStream_t stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t ncclSend(const void* buffer, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return start(__func__, Message{true, peer, count, type}, comm,
               [=](tutti::DeviceCommunicator& device) {
                 return device.send(buffer, count, *type_of(type), tutti::Rank{peer}, stream);
               });
}

ncclResult_t ncclRecv(void* buffer, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return start(__func__, Message{false, peer, count, type}, comm,
               [=](tutti::DeviceCommunicator& device) {
                 return device.recv(buffer, count, *type_of(type), tutti::Rank{peer}, stream);
               });
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  const Use use(comm);
  if (const ncclResult_t failed = check_ready(use.get(), __func__)) return failed;
  if (op == nullptr || scalar == nullptr || !type_of(type)) {
    return bad_argument(comm, __func__, "no such type, or a pointer is NULL");
  }
  int where = 0;  // Any number may come, which is no value of the enumeration.
  std::memcpy(&where, &residence, sizeof where);
  if (where != ncclScalarHostImmediate && where != ncclScalarDevice) {
    return bad_argument(comm, __func__, "residence " + std::to_string(where));
  }
  const Premultiplied made = where == ncclScalarDevice
                                 ? Premultiplied{type, 1, scalar}
                                 : Premultiplied{type, scalar_of(scalar, *type_of(type))};
  const auto free = std::find(comm->operations.begin(), comm->operations.end(), std::nullopt);
  *op = static_cast<ncclRedOp_t>(ncclNumOps + (free - comm->operations.begin()));
  if (free != comm->operations.end()) {
    *free = made;
  } else {
    comm->operations.emplace_back(made);
  }
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const Use use(comm);
  if (const ncclResult_t failed = check_made(use.get(), __func__)) return failed;
  const auto number = static_cast<std::size_t>(op) - ncclNumOps;
  if (op < ncclNumOps || number >= comm->operations.size() || !comm->operations[number]) {
    return bad_argument(comm, __func__, "operation " + std::to_string(op) + " was not made here");
  }
  comm->operations[number].reset();
  return ncclSuccess;
}
