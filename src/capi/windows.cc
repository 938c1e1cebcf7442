// The C API over the C++ one: windows.
#include <memory>
#include <utility>

#include "capi/handles.h"
#include "tutti/window.h"

struct tutti_window {
  tutti::Window window;
};

using namespace tutti;         // NOLINT(google-build-using-namespace): the API has no namespace.
using namespace tutti::c_api;  // NOLINT(google-build-using-namespace)

namespace {

/// Runs the body of a C function on a window.
template <class Body>
tutti_result_t guard_window(const char* function, tutti_window_t window, Body&& body) noexcept {
  return guard(function, [&]() -> Status {
    if (window == nullptr) [[unlikely]]
      return invalid(function, "the window is NULL");
    return body(window->window);
  });
}

/// A getter: writes to `value` what `get` returns.
template <class Value, class Get>
tutti_result_t give_of(const char* function, tutti_window_t window, Value* value,
                       Get&& get) noexcept {
  return guard_window(function, window, [&](const Window& one) -> Status {
    if (value == nullptr) return invalid(function, "where the answer goes is NULL");
    *value = get(one);
    return ok();
  });
}

}  // namespace

extern "C" {

tutti_result_t tutti_window_create(tutti_comm_t comm, size_t bytes, tutti_window_t* window) {
  if (window != nullptr) *window = nullptr;
  return guard(__func__, comm, [&, name = __func__](Communicator& communicator) -> Status {
    if (window == nullptr) return invalid(name, "`window`, where the handle goes, is NULL");
    TUTTI_TRY(auto made, Window::create(communicator, bytes));
    *window = new tutti_window{std::move(made)};
    return ok();
  });
}

tutti_result_t tutti_window_close(tutti_window_t window) {
  const std::unique_ptr<tutti_window> mine(window);  // It goes, however this ends.
  return guard_window(__func__, window, [](Window& one) { return one.close(); });
}

tutti_result_t tutti_window_destroy(tutti_window_t window) { return destroy(__func__, window); }

tutti_result_t tutti_window_data(tutti_window_t window, void** data) {
  return give_of(__func__, window, data, [](const Window& one) { return one.data(); });
}

tutti_result_t tutti_window_bytes(tutti_window_t window, int rank, size_t* bytes) {
  return give_of(__func__, window, bytes,
                 [rank](const Window& one) { return one.bytes(Rank{rank}); });
}

tutti_result_t tutti_window_address_of(tutti_window_t window, int rank, void** address) {
  return give_of(__func__, window, address,
                 [rank](const Window& one) { return one.address_of(Rank{rank}); });
}

tutti_result_t tutti_put(tutti_window_t window, const void* data, size_t bytes, int to,
                         size_t offset) {
  return guard_window(__func__, window,
                      [=](Window& one) { return one.put(data, bytes, Rank{to}, offset); });
}

tutti_result_t tutti_get(tutti_window_t window, void* data, size_t bytes, int from, size_t offset) {
  return guard_window(__func__, window,
                      [=](Window& one) { return one.get(data, bytes, Rank{from}, offset); });
}

tutti_result_t tutti_accumulate(tutti_window_t window, const void* data, size_t count,
                                tutti_data_type_t type, tutti_op_t op, int to, size_t offset) {
  return guard_window(__func__, window, [=, name = __func__](Window& one) -> Status {
    TUTTI_TRY(const auto checked, checked_type(name, type));
    // The window refuses premulsum itself; checked_op would name a function that does not exist.
    if (op != TUTTI_PRE_MUL_SUM) TUTTI_RETURN_IF_ERROR(checked_op(name, op));
    return one.accumulate(data, count, checked, static_cast<ReduceOp>(op), Rank{to}, offset);
  });
}

tutti_result_t tutti_fetch_add(tutti_window_t window, int64_t value, int to, size_t offset,
                               int64_t* before) {
  return guard_window(__func__, window, [=, name = __func__](Window& one) -> Status {
    if (before == nullptr) return invalid(name, "`before`, where the answer goes, is NULL");
    TUTTI_TRY(*before, one.fetch_add(value, Rank{to}, offset));
    return ok();
  });
}

tutti_result_t tutti_compare_swap(tutti_window_t window, int64_t expected, int64_t value, int to,
                                  size_t offset, int64_t* before) {
  return guard_window(__func__, window, [=, name = __func__](Window& one) -> Status {
    if (before == nullptr) return invalid(name, "`before`, where the answer goes, is NULL");
    TUTTI_TRY(*before, one.compare_swap(expected, value, Rank{to}, offset));
    return ok();
  });
}

tutti_result_t tutti_flush(tutti_window_t window, int to) {
  return guard_window(__func__, window, [to](Window& one) { return one.flush(Rank{to}); });
}

tutti_result_t tutti_signal(tutti_window_t window, int to, int number) {
  return guard_window(__func__, window, [=](Window& one) { return one.signal(Rank{to}, number); });
}

tutti_result_t tutti_wait_signal(tutti_window_t window, int from, int number, uint64_t count) {
  return guard_window(__func__, window,
                      [=](Window& one) { return one.wait_signal(Rank{from}, number, count); });
}

}  // extern "C"
