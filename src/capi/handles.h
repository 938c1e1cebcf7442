// File: capi/handles.h: what the C functions have in common: handles, arguments, codes, a text per
// thread.
//
// No exception gets out of a C function, because a C caller could not catch it, and nothing from a
// caller is used before it was checked, here or in the communicator. Templates serve communicators
// of host memory and of devices, whose handles have a member `comm`.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/state.h"
#include "tutti/communicator.h"
#include "tutti/tutti.h"

namespace tutti::c_api {

/// A wire that threads read while another thread sets it. Aligned to its size: else Clang calls
/// libatomic.
struct alignas(sizeof(Wire)) AlignedWire : Wire {};
using KeptWire = std::atomic<AlignedWire>;
static_assert(KeptWire::is_always_lock_free);

}  // namespace tutti::c_api

struct tutti_comm {
  explicit tutti_comm(tutti::Communicator made) : comm(std::move(made)) {}
  tutti::Communicator comm;
  /// What tutti_comm_use_algorithm said last; null: nothing. The texts are never freed, as a call
  /// of another thread may be reading one.
  std::atomic<const std::string*> algorithm{nullptr};
  tutti::c_api::KeptWire wire{};  // What tutti_comm_use_wire said last.
};

struct tutti_work {
  tutti::Work work;
};

namespace tutti::c_api {

/// The code of an outcome; notes its text for tutti_last_error.
tutti_result_t report(const Status& outcome);

Error invalid(const char* function, const std::string& what);

constexpr bool is_type(int number) {
  return number >= 0 && number <= UINT8_MAX && size_of(static_cast<DataType>(number)) != 0;
}
constexpr bool is_op(int number) {
  switch (number) {
#define TUTTI_REDUCE_OP(enumerator, text, value, ...) case value:
#include "tutti/reduce_ops.def"
#undef TUTTI_REDUCE_OP
    return true;
  }
  return false;
}
/// The meaning of a number from C; kInvalidArgument if it has none.
Result<DataType> checked_type(const char* function, tutti_data_type_t type);
Result<Reduction> checked_op(const char* function, tutti_op_t op);
UniqueId id_of(const tutti_unique_id_t& id);

/// A copy of a structure that begins with its size, whose members that the caller's header did not
/// have are 0. kInvalidArgument if it is NULL, or has members that this library does not know.
template <class Options>
Result<Options> read_options(const char* function, const char* parameter, const Options* options) {
  if (options == nullptr) return invalid(function, std::string("`") + parameter + "` is NULL");
  if (options->size < sizeof(options->size) || options->size > sizeof(Options))
    return invalid(function, std::string("`") + parameter + "->size` is " +
                                 std::to_string(options->size) + ", not sizeof *" + parameter +
                                 ", which is at most " + std::to_string(sizeof(Options)) +
                                 " with this library");
  Options all{};
  std::memcpy(&all, options, options->size);
  return all;
}

/// A text into a caller's buffer, cut to the room there is; `needed` holds all of it.
Status hand_out(const char* function, const std::string& all, char* text, std::size_t size,
                std::size_t* needed);

/// The call that the caller asks about: it has no buffers, and is a sum if it reduces.
Result<Request> asked_about(const char* function, const char* collective, std::size_t count,
                            tutti_data_type_t type, int root);

/// The parameters of a collective; calls.def says which are whose.
struct Arguments {
  Collective collective;
  const void* input;
  void* output;
  std::size_t count = 0;
  tutti_data_type_t type;
  tutti_op_t op = TUTTI_SUM;
  std::optional<double> scale = {};  // For a sum.
  int root = 0;
  /// Blocks of different sizes: lists with a number for each rank; null where there are none.
  bool vector_variant = false;
  const std::size_t* input_counts = nullptr;
  const std::size_t* input_offsets = nullptr;
  const std::size_t* output_counts = nullptr;
  const std::size_t* output_offsets = nullptr;
};

/// Sets a request's wire, if tutti_comm_use_wire or tutti_device_comm_use_wire named one.
inline void take_wire(const KeptWire& wire, Request& asked) {
  // relaxed: it leads to nothing.
  if (asked.type == DataType::kFloat32 && !asked.vector_variant)
    asked.wire = wire.load(std::memory_order_relaxed);
}

/// Notes the wire that a caller named; kInvalidArgument: there is none of that name.
inline Status use_wire(const char* function, const char* name, KeptWire& wire) {
  const auto named = parse_wire(name == nullptr || *name == '\0' ? "plain" : name);
  if (!named) return invalid(function, "there is no wire of that name");
  wire.store({*named}, std::memory_order_relaxed);  // relaxed: it leads to nothing.
  return ok();
}

/// Sets a request's algorithm and wire, if tutti_comm_use_algorithm and tutti_comm_use_wire named
/// some.
inline void take_choices(tutti_comm_t comm, Request& asked) {
  // acquire: the text that the pointer leads to is there.
  if (const std::string* name = comm->algorithm.load(std::memory_order_acquire); name != nullptr)
    asked.algorithm = *name;
  take_wire(comm->wire, asked);
}

/// Makes the request in its place: a copy of what was just written would wait for the stores.
template <class Comm>
Status fill_request(const char* function, const Comm& comm, const Arguments& from, Request& made) {
  made.collective = from.collective;
  made.input = from.input;
  made.output = from.output;
  made.count = from.count;
  made.root = Rank{from.root};
  if (!is_type(from.type)) [[unlikely]]
    return checked_type(function, from.type).error();
  if (!is_op(from.op) || from.op == TUTTI_PRE_MUL_SUM) [[unlikely]]
    return checked_op(function, from.op).error();
  made.type = static_cast<DataType>(from.type);
  made.reduction.op = static_cast<ReduceOp>(from.op);
  if (from.scale) made.reduction = Reduction::pre_mul_sum(*from.scale);
  made.vector_variant = from.vector_variant;
  if (!from.vector_variant) return ok();
  const auto list = [ranks = static_cast<std::size_t>(comm.rank_count())](const std::size_t* of) {
    return std::span(of, of == nullptr ? 0 : ranks);
  };
  made.input_blocks = {list(from.input_counts), list(from.input_offsets)};
  made.output_blocks = {list(from.output_counts), list(from.output_offsets)};
  // Where all ranks know all counts, the rank's own is one of them.
  const auto own = [&](const std::size_t* counts) {
    if (counts != nullptr) made.count = counts[comm.rank().value];
  };
  if (from.collective == Collective::kAllGather) own(from.output_counts);
  if (from.collective == Collective::kReduceScatter) own(from.input_counts);
  return ok();
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
template <class Handle, class Body>
tutti_result_t guard(const char* function, Handle* comm, Body&& body) noexcept {
  return guard(function, [&]() -> Status {
    if (comm == nullptr) return invalid(function, "the communicator is NULL");
    return body(comm->comm);
  });
}

/// A getter: writes to `value` what `get` returns. `missing`: what to say if `value` is NULL.
template <class Handle, class Value, class Get>
tutti_result_t give(const char* function, Handle* comm, Value* value, Get&& get,
                    const char* missing = "where the answer goes is NULL") noexcept {
  return guard(function, comm, [&](const auto& communicator) -> Status {
    if (value == nullptr) return invalid(function, missing);
    *value = get(communicator);
    return ok();
  });
}

/// Hands out what `make` makes: a Result of a communicator.
template <class Handle, class Make>
tutti_result_t guard_make(const char* function, Handle** comm, Make&& make) noexcept {
  if (comm != nullptr) *comm = nullptr;
  return guard(function, [&]() -> Status {
    if (comm == nullptr) return invalid(function, "`comm`, where the handle goes, is NULL");
    TUTTI_TRY(auto made, make());
    *comm = std::make_unique<Handle>(std::move(made)).release();
    return ok();
  });
}

/// Hands out all that were made: the handle of rank r to comms[r].
template <class Handle, class Comm>
void hand_out_all(std::vector<Comm> made, Handle** comms) {
  std::vector<std::unique_ptr<Handle>> handles;
  for (Comm& one : made) handles.push_back(std::make_unique<Handle>(std::move(one)));
  std::transform(handles.begin(), handles.end(), comms,
                 [](auto& handle) { return handle.release(); });
}

template <class Handle>
tutti_result_t split(const char* function, Handle* comm, int color, int key,
                     Handle** part) noexcept {
  if (part != nullptr) *part = nullptr;
  return guard(function, comm, [&](auto& whole) -> Status {
    if (part == nullptr) return invalid(function, "`part`, where the handle goes, is NULL");
    auto made = whole.split(color, key);
    // To C, belonging to none is an answer, not an error.
    if (!made && color < 0 && made.error().code == Code::kInvalidArgument && !in_group())
      return ok();
    if (!made) return std::move(made.error());
    *part = std::make_unique<Handle>(*std::move(made)).release();
    return ok();
  });
}

template <class Handle>
tutti_result_t destroy(const char* function, Handle* comm) noexcept {
  return guard(function, [comm] {
    delete comm;
    return ok();
  });
}

template <class Handle>
tutti_result_t abort(const char* function, Handle* comm, const char* reason) noexcept {
  return guard(function, comm, [reason](auto& communicator) {
    communicator.abort(reason != nullptr ? reason : "the caller gave no reason");
    return ok();
  });
}

// After a failure.

template <class Handle>
tutti_result_t health(const char* function, Handle* comm) noexcept {
  return guard(function, comm, [](const auto& one) { return one.health(); });
}

template <class Handle>
tutti_result_t revoke(const char* function, Handle* comm, const char* reason) noexcept {
  return guard(function, comm, [reason](auto& one) {
    one.revoke(reason != nullptr ? reason : "the caller gave no reason");
    return ok();
  });
}

/// The ranks that are excluded, and where the members go.
struct ShrinkLists {
  const int* excluded;
  int excluded_count;
  int* members;
};
/// `note` sees what `shrink` has made.
template <class Handle, class Note>
tutti_result_t shrink(const char* function, Handle* comm, const ShrinkLists& lists, Handle** shrunk,
                      Note&& note) noexcept {
  if (shrunk != nullptr) *shrunk = nullptr;
  return guard(function, comm, [&](auto& whole) -> Status {
    if (shrunk == nullptr) return invalid(function, "`shrunk`, where the handle goes, is NULL");
    if (lists.excluded_count < 0 || lists.excluded_count >= whole.rank_count())
      return invalid(function, "`excluded_count` is not from 0 to the rank count - 1");
    if (lists.excluded_count > 0 && lists.excluded == nullptr)
      return invalid(function, "`excluded` is NULL, but `excluded_count` is not 0");
    std::vector<Rank> out;
    for (int i = 0; i < lists.excluded_count; ++i) out.push_back(Rank{lists.excluded[i]});
    TUTTI_TRY(auto made, whole.shrink(out));
    for (std::size_t rank = 0; rank < made.members.size() && lists.members != nullptr; ++rank)
      lists.members[rank] = made.members[rank].value;
    note(made);
    *shrunk = std::make_unique<Handle>(std::move(made.communicator)).release();
    return ok();
  });
}

template <class Handle>
tutti_result_t agree(const char* function, Handle* comm, std::uint64_t* flags) noexcept {
  return guard(function, comm, [&](auto& one) -> Status {
    if (flags == nullptr) return invalid(function, "`flags` is NULL");
    TUTTI_TRY(*flags, one.agree(*flags));
    return ok();
  });
}

template <class Handle>
tutti_result_t grow(const char* function, Handle* comm, const tutti_unique_id_t* id, int rank_count,
                    Handle** grown) noexcept {
  if (grown != nullptr) *grown = nullptr;
  return guard(function, comm, [&](auto& whole) -> Status {
    if (grown == nullptr) return invalid(function, "`grown`, where the handle goes, is NULL");
    if (id == nullptr) return invalid(function, "`id` is NULL");
    TUTTI_TRY(auto made, whole.grow(id_of(*id), rank_count));
    *grown = std::make_unique<Handle>(std::move(made)).release();
    return ok();
  });
}

template <class Handle>
tutti_result_t describe(const char* function, Handle* comm, char* text, std::size_t size,
                        std::size_t* needed) noexcept {
  return guard(function, comm, [&](const auto& communicator) {
    return hand_out(function, communicator.describe(), text, size, needed);
  });
}

/// Hands out memory that `allocate` makes: a Result of its address.
template <class Allocate>
tutti_result_t guard_alloc(const char* function, void** data, Allocate&& allocate) noexcept {
  if (data != nullptr) *data = nullptr;
  return guard(function, [&]() -> Status {
    if (data == nullptr) return invalid(function, "`data`, where the address goes, is NULL");
    TUTTI_TRY(*data, allocate());
    return ok();
  });
}

/// Hands out the work that `start` returns, which starts something on a communicator.
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
