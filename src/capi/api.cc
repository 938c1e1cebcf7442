// The C API over the C++ one: vocabulary, communicators, groups and memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/fork.h"
#include "capi/handles.h"
#include "comm/state.h"

namespace tutti::c_api {
namespace {

// The .def lists are the vocabulary, tutti.h repeats them for C. A type or an operation that is
// added to one and not to the other does not compile.
struct Name {
  int value;
  std::string_view text;
};
constexpr std::array kTypes{
    Name{TUTTI_INT8, "int8"},
    Name{TUTTI_UINT8, "uint8"},
    Name{TUTTI_INT32, "int32"},
    Name{TUTTI_UINT32, "uint32"},
    Name{TUTTI_INT64, "int64"},
    Name{TUTTI_UINT64, "uint64"},
    Name{TUTTI_FLOAT16, "float16"},
    Name{TUTTI_FLOAT32, "float32"},
    Name{TUTTI_FLOAT64, "float64"},
    Name{TUTTI_BFLOAT16, "bfloat16"},
    Name{TUTTI_FLOAT8E4M3, "float8e4m3"},
    Name{TUTTI_FLOAT8E5M2, "float8e5m2"},
    Name{TUTTI_INT16, "int16"},
};
constexpr std::array kOps{
    Name{TUTTI_SUM, "sum"}, Name{TUTTI_PROD, "prod"}, Name{TUTTI_MAX, "max"},
    Name{TUTTI_MIN, "min"}, Name{TUTTI_AVG, "avg"},   Name{TUTTI_PRE_MUL_SUM, "premulsum"},
    Name{TUTTI_AND, "and"}, Name{TUTTI_OR, "or"},     Name{TUTTI_XOR, "xor"},
};
template <std::size_t n>
constexpr const Name* find(const std::array<Name, n>& names, int value) {
  for (const Name& name : names) {
    if (name.value == value) return &name;
  }
  return nullptr;
}

template <std::size_t n>
constexpr bool has(const std::array<Name, n>& names, int value, std::string_view text) {
  const Name* name = find(names, value);
  return name != nullptr && name->text == text;
}

#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, ...) \
  static_assert(has(kTypes, value, text), "tutti.h lacks the data type " text);
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, ...) +1
static_assert(0
#include "tutti/data_types.def"
                  == kTypes.size(),
              "tutti.h has a data type that data_types.def has not");
#undef TUTTI_DATA_TYPE
#define TUTTI_REDUCE_OP(enumerator, text, value) \
  static_assert(has(kOps, value, text), "tutti.h lacks the operation " text);
#include "tutti/reduce_ops.def"
#undef TUTTI_REDUCE_OP
#define TUTTI_REDUCE_OP(enumerator, text, value) +1
static_assert(0
#include "tutti/reduce_ops.def"
                  == kOps.size(),
              "tutti.h has an operation that reduce_ops.def has not");
#undef TUTTI_REDUCE_OP
template <class... Results>
constexpr bool match_codes(Results... results) {
  int code = 0;
  return ((results == code++) && ...);
}
static_assert(static_cast<int>(Code::kInternal) == TUTTI_INTERNAL &&
                  match_codes(TUTTI_OK, TUTTI_INVALID_ARGUMENT, TUTTI_MISMATCH, TUTTI_TIMEOUT,
                              TUTTI_PEER_FAILED, TUTTI_ABORTED, TUTTI_SYSTEM, TUTTI_UNSUPPORTED,
                              TUTTI_INVALID_PLAN, TUTTI_INTERNAL),
              "tutti.h's results are the codes of result.h, in their order");
static_assert(sizeof(tutti_unique_id_t) == sizeof(UniqueId));

constinit std::mutex names_mutex;  // Guards the texts that tutti_comm_use_algorithm keeps.
const HeldAcrossFork names_held(ForkOrder::kNames, []() -> std::mutex& { return names_mutex; });

thread_local std::string last_error;
thread_local std::optional<Group> open_group;

/// The same for what makes a communicator.
template <class Make>
tutti_result_t guard_make(const char* function, tutti_comm_t* comm, Make&& make) noexcept {
  if (comm != nullptr) *comm = nullptr;
  return guard(function, [&]() -> Status {
    if (comm == nullptr) return invalid(function, "`comm`, where the handle goes, is NULL");
    TUTTI_TRY(auto made, make());
    *comm = std::make_unique<tutti_comm>(std::move(made)).release();
    return ok();
  });
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
  last_error = outcome.error().to_string();
  return static_cast<tutti_result_t>(outcome.error().code);
}

Error invalid(const char* function, const std::string& what) {
  return {Code::kInvalidArgument, std::string(function) + ": " + what, {}, {}};
}

Result<DataType> checked_type(const char* function, tutti_data_type_t type) {
  if (find(kTypes, type) == nullptr) {
    return invalid(function, "there is no data type " + std::to_string(type));
  }
  return static_cast<DataType>(type);
}

Result<Reduction> checked_op(const char* function, tutti_op_t op) {
  if (find(kOps, op) == nullptr) {
    return invalid(function, "there is no operation " + std::to_string(op));
  }
  if (op == TUTTI_PRE_MUL_SUM) {
    return invalid(function,
                   "premulsum needs a scale; call " + std::string(function) + "_pre_mul_sum");
  }
  return Reduction(static_cast<ReduceOp>(op));
}

}  // namespace tutti::c_api

using tutti::Communicator;
using tutti::ok;
using tutti::Rank;
using tutti::Result;
using tutti::Settings;
using tutti::Status;
using tutti::c_api::checked_type;
using tutti::c_api::find;
using tutti::c_api::guard;
using tutti::c_api::guard_make;
using tutti::c_api::hand_out;
using tutti::c_api::invalid;
using tutti::c_api::kTypes;
using tutti::c_api::last_error;
using tutti::c_api::names_mutex;
using tutti::c_api::open_group;

extern "C" {

// ---- Vocabulary ----

int tutti_get_version(void) { return TUTTI_VERSION_NUMBER; }

const char* tutti_last_error(void) { return last_error.c_str(); }

const char* tutti_result_name(tutti_result_t result) {
  if (result < 0 || result > TUTTI_INTERNAL) return "unknown";
  return tutti::to_string(static_cast<tutti::Code>(result)).data();  // A literal: it ends in 0.
}

size_t tutti_data_type_size(tutti_data_type_t type) {
  if (find(kTypes, type) == nullptr) return 0;
  return tutti::size_of(static_cast<tutti::DataType>(type));
}

// ---- Communicators ----

tutti_result_t tutti_get_unique_id(tutti_unique_id_t* id) {
  return guard(__func__, [id, name = __func__]() -> Status {
    if (id == nullptr) return invalid(name, "`id` is NULL");
    TUTTI_TRY(const auto made, tutti::make_unique_id());
    std::memcpy(id->bytes, made.bytes.data(), sizeof(id->bytes));
    return ok();
  });
}

tutti_result_t tutti_comm_init_rank(tutti_comm_t* comm, const tutti_unique_id_t* id, int rank,
                                    int rank_count) {
  return guard_make(__func__, comm, [&, name = __func__]() -> Result<Communicator> {
    if (id == nullptr) return invalid(name, "`id` is NULL");
    TUTTI_TRY(const auto settings, Settings::from_environment());
    tutti::UniqueId copy;
    std::memcpy(copy.bytes.data(), id->bytes, sizeof(id->bytes));
    return Communicator::create(copy, Rank{rank}, rank_count, settings);
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
    std::vector<std::unique_ptr<tutti_comm>> handles;
    for (auto& one : made) handles.push_back(std::make_unique<tutti_comm>(std::move(one)));
    std::transform(handles.begin(), handles.end(), comms,
                   [](auto& handle) { return handle.release(); });
    return ok();
  });
}

tutti_result_t tutti_comm_split(tutti_comm_t comm, int color, int key, tutti_comm_t* part) {
  if (part != nullptr) *part = nullptr;
  return guard(__func__, comm, [&, name = __func__](Communicator& parent) -> Status {
    if (part == nullptr) return invalid(name, "`part`, where the handle goes, is NULL");
    auto made = parent.split(color, key);
    // To C, belonging to none is an answer, not an error.
    if (!made && color < 0 && made.error().code == tutti::Code::kInvalidArgument &&
        !tutti::in_group())
      return ok();
    if (!made) return std::move(made.error());
    *part = std::make_unique<tutti_comm>(*std::move(made)).release();
    return ok();
  });
}

tutti_result_t tutti_comm_destroy(tutti_comm_t comm) {
  return guard(__func__, [comm] {
    delete comm;
    return ok();
  });
}

tutti_result_t tutti_comm_abort(tutti_comm_t comm, const char* reason) {
  return guard(__func__, comm, [reason](Communicator& communicator) {
    communicator.abort(reason != nullptr ? reason : "the caller gave no reason");
    return ok();
  });
}

tutti_result_t tutti_comm_rank(tutti_comm_t comm, int* rank) {
  return guard(__func__, comm, [rank, name = __func__](Communicator& communicator) -> Status {
    if (rank == nullptr) return invalid(name, "`rank` is NULL");
    *rank = communicator.rank().value;
    return ok();
  });
}

tutti_result_t tutti_comm_count(tutti_comm_t comm, int* rank_count) {
  return guard(__func__, comm, [rank_count, name = __func__](Communicator& communicator) -> Status {
    if (rank_count == nullptr) return invalid(name, "`rank_count` is NULL");
    *rank_count = communicator.rank_count();
    return ok();
  });
}

tutti_result_t tutti_comm_describe(tutti_comm_t comm, char* text, size_t size, size_t* needed) {
  return guard(__func__, comm, [&, name = __func__](Communicator& communicator) -> Status {
    return hand_out(name, communicator.describe(), text, size, needed);
  });
}

tutti_result_t tutti_comm_explain(tutti_comm_t comm, const char* collective, const void* input,
                                  void* output, size_t count, tutti_data_type_t type, int root,
                                  char* text, size_t size, size_t* needed) {
  return guard(__func__, comm, [&, name = __func__](Communicator& communicator) -> Status {
    if (collective == nullptr) return invalid(name, "`collective` is NULL");
    const auto which = tutti::parse_collective(collective);
    if (!which)
      return invalid(name, std::string("'") + collective + "' is no collective; there are " +
                               tutti::collective_names());
    TUTTI_TRY(const auto checked, checked_type(name, type));
    tutti::Request request;
    request.collective = *which;
    request.input = input;
    request.output = output;
    request.count = count;
    request.type = checked;
    request.root = tutti::Rank{root};
    tutti::c_api::take_algorithm(comm, request);
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
  if (data != nullptr) *data = nullptr;
  return guard(__func__, [=, name = __func__]() -> Status {
    if (data == nullptr) return invalid(name, "`data`, where the address goes, is NULL");
    TUTTI_TRY(*data, tutti::mem_alloc(bytes));
    return ok();
  });
}

tutti_result_t tutti_mem_free(void* data) {
  return guard(__func__, [data] { return data == nullptr ? ok() : tutti::mem_free(data); });
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
