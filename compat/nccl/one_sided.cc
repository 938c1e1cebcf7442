// One-sided operations: puts into a peer's window with a signal behind them, signals, and waits.
#include <string>
#include <vector>

#include "group.h"

using namespace tutti::nccl;  // NOLINT(google-build-using-namespace): the API has no namespace.
using tutti::DeviceCommunicator;
using tutti::Rank;

namespace {

constexpr int kIndices = 8, kContexts = 8;  // NCCL says 0 for both, or what numRmaCtx says.
static_assert(kIndices * kContexts == DeviceCommunicator::kSignals);

/// Which of a pair's signals it is.
int number_of(int index, int context) { return context * kIndices + index; }

/// What is wrong with them; empty: nothing.
std::string mistake(const ncclComm& comm, int peer, int index, int context) {
  const auto outside = [](const char* name, int value, int end) {
    return std::string(name) + " is " + std::to_string(value) + "; it is from 0 to " +
           std::to_string(end - 1);
  };
  if (peer < 0 || peer >= comm.size) return outside("peer", peer, comm.size);
  if (index < 0 || index >= kIndices) return outside("sigIdx", index, kIndices);
  if (context < 0 || context >= kContexts) return outside("ctx", context, kContexts);
  return {};
}

std::string mistake(const ncclComm& comm, int peer, int index, int context, unsigned flags) {
  std::string wrong = mistake(comm, peer, index, context);
  if (wrong.empty() && flags != 0) wrong = "flags is " + std::to_string(flags) + "; it has to be 0";
  return wrong;
}

/// A put's bytes, and where they go; or what is wrong.
struct Target {
  std::size_t bytes = 0;
  std::byte* at = nullptr;
  std::string wrong;
};
Target target_of(const ncclComm& comm, const void* data, std::size_t count, ncclDataType_t type,
                 const ncclWindow_vidmem* window, std::size_t offset) {
  const auto known = type_of(type);
  if (!known) return {.wrong = "type " + std::to_string(type)};
  if (data == nullptr && count != 0) return {.wrong = "localbuff is NULL"};
  if (window == nullptr || window->comm.get() != &comm)
    return {.wrong = "peerWin is no window of the communicator"};
  const std::size_t size = tutti::size_of(*known);
  if (offset > window->bytes || count > (window->bytes - offset) / size) {
    return {.wrong = std::to_string(count) + " elements of " + std::to_string(size) +
                     " bytes at offset " + std::to_string(offset) + " of a window of " +
                     std::to_string(window->bytes) + " bytes"};
  }
  return {count * size, static_cast<std::byte*>(window->data) + offset, {}};
}

}  // namespace

ncclResult_t ncclPutSignal(const void* data, size_t count, ncclDataType_t type, int peer,
                           ncclWindow_t window, size_t offset, int index, int context,
                           unsigned int flags, ncclComm_t comm, cudaStream_t stream) {
  Group& group = Group::current();
  const Use use(comm);
  if (const ncclResult_t failed = check_ready(use.get(), __func__)) return group.fail(failed);
  std::string wrong = mistake(*comm, peer, index, context, flags);
  const Target target = target_of(*comm, data, count, type, window, offset);
  if (wrong.empty()) wrong = target.wrong;
  if (!wrong.empty()) return group.fail(bad_argument(comm, __func__, wrong));
  return group.fail(group.add(
      __func__, comm,
      [=](DeviceCommunicator& ranks) -> tutti::Status {
        if (!window->open && target.bytes != 0) {
          const std::string why = window->why_not.empty()
                                      ? "it was registered without NCCL_WIN_COLL_SYMMETRIC"
                                      : window->why_not;
          return tutti::Error{tutti::Code::kUnsupported, "peers can't write to this window: " + why,
                              ranks.rank()};
        }
        if (target.bytes != 0)
          TUTTI_RETURN_IF_ERROR(ranks.put(data, target.at, target.bytes, Rank{peer}, stream));
        return ranks.signal(Rank{peer}, number_of(index, context), stream);
      },
      {.to = peer, .bytes = target.bytes}));
}

ncclResult_t ncclSignal(int peer, int index, int context, unsigned int flags, ncclComm_t comm,
                        cudaStream_t stream) {
  Group& group = Group::current();
  const Use use(comm);
  if (const ncclResult_t failed = check_ready(use.get(), __func__)) return group.fail(failed);
  const std::string wrong = mistake(*comm, peer, index, context, flags);
  if (!wrong.empty()) return group.fail(bad_argument(comm, __func__, wrong));
  return group.fail(group.add(__func__, comm,
                              [=](DeviceCommunicator& ranks) {
                                return ranks.signal(Rank{peer}, number_of(index, context), stream);
                              },
                              {.to = peer}));
}

ncclResult_t ncclWaitSignal(int count, ncclWaitSignalDesc_t* descriptors, ncclComm_t comm,
                            cudaStream_t stream) {
  Group& group = Group::current();
  const Use use(comm);
  if (const ncclResult_t failed = check_ready(use.get(), __func__)) return group.fail(failed);
  if (count < 0 || (count > 0 && descriptors == nullptr)) {
    return group.fail(bad_argument(
        comm, __func__, "nDesc is " + std::to_string(count) + ", or signalDescs is NULL"));
  }
  // Those of the caller may be gone when the group ends.
  std::vector<ncclWaitSignalDesc_t> list(descriptors, descriptors + count);
  for (std::size_t i = 0; i < list.size(); ++i) {
    const ncclWaitSignalDesc_t& one = list[i];
    std::string wrong = mistake(*comm, one.peer, one.sigIdx, one.ctx);
    if (wrong.empty() && one.opCnt < 0) wrong = "opCnt is " + std::to_string(one.opCnt);
    if (wrong.empty()) continue;
    return group.fail(
        bad_argument(comm, __func__, "descriptor " + std::to_string(i) + ": " + wrong));
  }
  return group.fail(group.add(
      __func__, comm,
      [list = std::move(list), stream](DeviceCommunicator& ranks) -> tutti::Status {
        for (const ncclWaitSignalDesc_t& one : list) {
          TUTTI_RETURN_IF_ERROR(ranks.wait_signal(Rank{one.peer}, number_of(one.sigIdx, one.ctx),
                                                  static_cast<std::uint64_t>(one.opCnt), stream));
        }
        return tutti::ok();
      },
      {}));
}
