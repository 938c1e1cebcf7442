// The C API over the C++ one: vocabulary, communicators, groups and memory.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <string>

#include "base/fork.h"
#include "base/nearest.h"
#include "capi/handles.h"

namespace tutti::c_api {
namespace {

// Each type, operation and code has its name in tutti.h.
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, kind, accumulator, name) \
  static_assert(name == value, "tutti.h has another value for " text);
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
#define TUTTI_REDUCE_OP(enumerator, text, value, name) \
  static_assert(name == value, "tutti.h has another value for " text);
#include "tutti/reduce_ops.def"
#undef TUTTI_REDUCE_OP
constexpr bool match_codes(std::initializer_list<int> codes) {
  int next = 0;
  return std::ranges::all_of(codes, [&](int code) { return code == next++; });
}
static_assert(static_cast<int>(kLastCode) == TUTTI_REVOKED &&
                  match_codes({TUTTI_OK, TUTTI_INVALID_ARGUMENT, TUTTI_MISMATCH, TUTTI_TIMEOUT,
                               TUTTI_PEER_FAILED, TUTTI_ABORTED, TUTTI_SYSTEM, TUTTI_UNSUPPORTED,
                               TUTTI_INVALID_PLAN, TUTTI_INTERNAL, TUTTI_REVOKED}),
              "tutti.h and result.h have other codes");
static_assert(sizeof(tutti_unique_id_t) == sizeof(UniqueId));

constinit std::mutex names_mutex;  // Guards the texts that tutti_comm_use_algorithm keeps.
const HeldAcrossFork names_held(ForkOrder::kNames, []() -> std::mutex& { return names_mutex; });

thread_local std::string last_error;
thread_local int last_error_peer = Rank{}.value;
thread_local std::optional<Group> open_group;

double milliseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double, std::milli>(time).count();
}

tutti_counters_t c_counters(const Counters& counters) {
  static_assert(kCollectiveCount == 10, "tutti_counters_t has no number for a collective");
  unsigned long long bytes = 0;
  for (const Counters::Calls& one : counters.collectives) bytes += one.bytes;
  const auto calls = [&](Collective which) { return counters.of(which).calls; };
  const Rank slowest = counters.slowest();
  const auto index = static_cast<std::size_t>(slowest.value);
  const Counters::Wait wait = slowest.value < 0 ? Counters::Wait{} : counters.waits[index];
  return {.all_reduces = calls(Collective::kAllReduce),
          .reduce_scatters = calls(Collective::kReduceScatter),
          .all_gathers = calls(Collective::kAllGather),
          .broadcasts = calls(Collective::kBroadcast),
          .reduces = calls(Collective::kReduce),
          .gathers = calls(Collective::kGather),
          .scatters = calls(Collective::kScatter),
          .all_to_alls = calls(Collective::kAllToAll),
          .scans = calls(Collective::kScan),
          .exclusive_scans = calls(Collective::kExclusiveScan),
          .barriers = counters.barriers,
          .messages = counters.messages.calls,
          .collective_bytes = bytes,
          .message_bytes = counters.messages.bytes,
          .age_ms = milliseconds(counters.age),
          .calls_ms = milliseconds(counters.in_calls),
          .waits_ms = milliseconds(counters.waited()),
          .slowest_rank = slowest.value,
          .slowest_calls = wait.calls,
          .slowest_ms = milliseconds(wait.time)};
}

}  // namespace

Status hand_out(const char* function, const std::string& all, char* text, std::size_t size,
                std::size_t* needed) {
  if (text == nullptr && size != 0) return invalid(function, "`text` is NULL, but `size` is not 0");
  if (needed != nullptr) *needed = all.size() + 1;
  if (size == 0) return ok();
  const std::size_t fits = std::min(all.size(), size - 1);
  std::memcpy(text, all.data(), fits);
  text[fits] = 0;
  return ok();
}

tutti_result_t report(const Status& outcome) {
  if (outcome) return TUTTI_OK;
  last_error_peer = outcome.error().peer.value;
  last_error = outcome.error().to_string();
  return static_cast<tutti_result_t>(outcome.error().code);
}

Error invalid(const char* function, const std::string& what) {
  return {Code::kInvalidArgument, std::string(function) + ": " + what, {}, {}};
}

Result<DataType> checked_type(const char* function, tutti_data_type_t type) {
  if (!is_type(type)) return invalid(function, "there is no data type " + std::to_string(type));
  return static_cast<DataType>(type);
}

Result<Reduction> checked_op(const char* function, tutti_op_t op) {
  if (!is_op(op)) return invalid(function, "there is no operation " + std::to_string(op));
  if (op == TUTTI_PRE_MUL_SUM) {
    return invalid(function,
                   "premulsum needs a scale; call " + std::string(function) + "_pre_mul_sum");
  }
  return Reduction(static_cast<ReduceOp>(op));
}

UniqueId id_of(const tutti_unique_id_t& id) {
  UniqueId copy;
  std::memcpy(copy.bytes.data(), id.bytes, sizeof(id.bytes));
  return copy;
}

Result<Request> asked_about(const char* function, const char* collective, std::size_t count,
                            tutti_data_type_t type, int root) {
  if (collective == nullptr) return invalid(function, "`collective` is NULL");
  const auto which = parse_collective(collective);
  if (!which) return invalid(function, unknown_collective(collective));
  Request request{.collective = *which, .count = count, .root = Rank{root}};
  TUTTI_TRY(request.type, checked_type(function, type));
  return request;
}

}  // namespace tutti::c_api

using namespace tutti;         // NOLINT(google-build-using-namespace): the API has no namespace.
using namespace tutti::c_api;  // NOLINT(google-build-using-namespace)

extern "C" {

// ---- Vocabulary ----

int tutti_get_version(void) { return TUTTI_VERSION_NUMBER; }

const char* tutti_last_error(void) { return last_error.c_str(); }

int tutti_last_error_peer(void) { return last_error_peer; }

const char* tutti_result_name(tutti_result_t result) {
  if (result < 0 || result > TUTTI_REVOKED) return "unknown";
  return to_string(static_cast<Code>(result)).data();  // A literal: it ends in 0.
}

size_t tutti_data_type_size(tutti_data_type_t type) {
  return is_type(type) ? size_of(static_cast<DataType>(type)) : 0;
}

// ---- Communicators ----

tutti_result_t tutti_get_unique_id(tutti_unique_id_t* id) {
  return guard(__func__, [id, name = __func__]() -> Status {
    if (id == nullptr) return invalid(name, "`id` is NULL");
    TUTTI_TRY(const auto made, make_unique_id());
    std::memcpy(id->bytes, made.bytes.data(), sizeof(id->bytes));
    return ok();
  });
}

tutti_result_t tutti_comm_init_rank(tutti_comm_t* comm, const tutti_unique_id_t* id, int rank,
                                    int rank_count) {
  return guard_make(__func__, comm, [&, name = __func__]() -> Result<Communicator> {
    if (id == nullptr) return invalid(name, "`id` is NULL");
    TUTTI_TRY(const auto settings, Settings::from_environment());
    return Communicator::create(id_of(*id), Rank{rank}, rank_count, settings);
  });
}

tutti_result_t tutti_comm_init_env(tutti_comm_t* comm) {
  return guard_make(__func__, comm, [] { return Communicator::from_environment(); });
}

tutti_result_t tutti_comm_init_all(tutti_comm_t* comms, int rank_count) {
  return guard(__func__, [&, name = __func__]() -> Status {
    if (comms == nullptr) return invalid(name, "`comms`, where the handles go, is NULL");
    if (rank_count > 0) std::fill_n(comms, rank_count, nullptr);
    TUTTI_TRY(const auto settings, Settings::from_environment());
    TUTTI_TRY(auto made, Communicator::in_process(rank_count, settings));
    hand_out_all(std::move(made), comms);
    return ok();
  });
}

tutti_result_t tutti_comm_split(tutti_comm_t comm, int color, int key, tutti_comm_t* part) {
  return split(__func__, comm, color, key, part);
}

tutti_result_t tutti_comm_duplicate(tutti_comm_t comm, tutti_comm_t* copy) {
  if (copy != nullptr) *copy = nullptr;
  return guard(__func__, comm, [&, name = __func__](Communicator& whole) -> Status {
    if (copy == nullptr) return invalid(name, "`copy`, where the handle goes, is NULL");
    TUTTI_TRY(auto made, whole.duplicate());
    *copy = std::make_unique<tutti_comm>(std::move(made)).release();
    return ok();
  });
}

tutti_result_t tutti_comm_ranks_in(tutti_comm_t comm, tutti_comm_t other, int* ranks) {
  return guard(__func__, comm, [&, name = __func__](const Communicator& mine) -> Status {
    if (other == nullptr) return invalid(name, "`other` is NULL");
    if (ranks == nullptr) return invalid(name, "`ranks`, where the answer goes, is NULL");
    TUTTI_TRY(const auto found, mine.ranks_in(other->comm));
    std::ranges::transform(found, ranks, &Rank::value);
    return ok();
  });
}

tutti_result_t tutti_comm_destroy(tutti_comm_t comm) { return destroy(__func__, comm); }

tutti_result_t tutti_comm_abort(tutti_comm_t comm, const char* reason) {
  return c_api::abort(__func__, comm, reason);
}

tutti_result_t tutti_comm_health(tutti_comm_t comm) { return health(__func__, comm); }

tutti_result_t tutti_comm_revoke(tutti_comm_t comm, const char* reason) {
  return revoke(__func__, comm, reason);
}

tutti_result_t tutti_comm_shrink(tutti_comm_t comm, const int* excluded, int excluded_count,
                                 tutti_comm_t* shrunk, int* members, uint64_t* completed) {
  const auto note = [completed](const Shrunk& made) {
    if (completed != nullptr) *completed = made.completed;
  };
  return shrink(__func__, comm, {excluded, excluded_count, members}, shrunk, note);
}

tutti_result_t tutti_comm_agree(tutti_comm_t comm, uint64_t* flags) {
  return agree(__func__, comm, flags);
}

tutti_result_t tutti_comm_grow(tutti_comm_t comm, const tutti_unique_id_t* id, int rank_count,
                               tutti_comm_t* grown) {
  return grow(__func__, comm, id, rank_count, grown);
}

tutti_result_t tutti_comm_rank(tutti_comm_t comm, int* rank) {
  return give(
      __func__, comm, rank, [](const auto& one) { return one.rank().value; }, "`rank` is NULL");
}

tutti_result_t tutti_comm_count(tutti_comm_t comm, int* rank_count) {
  return give(
      __func__, comm, rank_count, [](const auto& one) { return one.rank_count(); },
      "`rank_count` is NULL");
}

tutti_result_t tutti_comm_describe(tutti_comm_t comm, char* text, size_t size, size_t* needed) {
  return describe(__func__, comm, text, size, needed);
}

tutti_result_t tutti_comm_counters(tutti_comm_t comm, tutti_counters_t* counters) {
  return guard(__func__, comm, [&, name = __func__](const Communicator& communicator) -> Status {
    if (counters == nullptr) return invalid(name, "`counters` is NULL");
    TUTTI_TRY(const Counters all, communicator.counters());
    *counters = c_counters(all);
    return ok();
  });
}

tutti_result_t tutti_comm_flight_record(tutti_comm_t comm, char* text, size_t size,
                                        size_t* needed) {
  return guard(__func__, comm, [&, name = __func__](const Communicator& communicator) -> Status {
    TUTTI_TRY(const std::string all, communicator.flight_record());
    return hand_out(name, all, text, size, needed);
  });
}

tutti_result_t tutti_comm_explain(tutti_comm_t comm, const char* collective, const void* input,
                                  void* output, size_t count, tutti_data_type_t type, int root,
                                  char* text, size_t size, size_t* needed) {
  return guard(__func__, comm, [&, name = __func__](Communicator& communicator) -> Status {
    TUTTI_TRY(auto request, asked_about(name, collective, count, type, root));
    request.input = input;
    request.output = output;
    take_choices(comm, request);
    TUTTI_TRY(const std::string all, communicator.explain(request));
    return hand_out(name, all, text, size, needed);
  });
}

tutti_result_t tutti_comm_use_algorithm(tutti_comm_t comm, const char* name) {
  return guard(__func__, comm, [&](Communicator&) -> Status {
    static std::set<std::string> names;
    const std::string* known = nullptr;
    if (name != nullptr && *name != '\0') {
      const std::lock_guard lock(names_mutex);
      known = &*names.insert(name).first;
    }
    // release: a thread that reads the pointer sees the text.
    comm->algorithm.store(known, std::memory_order_release);
    return ok();
  });
}

tutti_result_t tutti_comm_use_wire(tutti_comm_t comm, const char* name) {
  return guard(__func__, comm, [&, function = __func__](const Communicator&) {
    return use_wire(function, name, comm->wire);
  });
}

// ---- Groups ----

tutti_result_t tutti_group_start(void) {
  return guard(__func__, [name = __func__]() -> Status {
    if (open_group) return invalid(name, "this thread has a group open; end it first");
    open_group.emplace();
    return ok();
  });
}

tutti_result_t tutti_group_end(void) {
  return guard(__func__, [name = __func__]() -> Status {
    if (!open_group) return invalid(name, "this thread has no group open");
    Status status = open_group->end();
    open_group.reset();
    return status;
  });
}

// ---- Memory ----

tutti_result_t tutti_mem_alloc(void** data, size_t bytes) {
  return guard_alloc(__func__, data, [bytes] { return mem_alloc(bytes); });
}

tutti_result_t tutti_mem_free(void* data) {
  return guard(__func__, [data] { return data == nullptr ? ok() : mem_free(data); });
}

tutti_result_t tutti_register(tutti_comm_t comm, void* data, size_t bytes, int fd, size_t offset) {
  return guard(__func__, comm, [=](Communicator& communicator) {
    return communicator.register_memory(data, bytes, fd, offset);
  });
}

tutti_result_t tutti_deregister(tutti_comm_t comm, void* data) {
  return guard(__func__, comm,
               [data](Communicator& communicator) { return communicator.deregister_memory(data); });
}

}  // extern "C"
