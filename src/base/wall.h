// File: base/wall.h: no exception leaves the library: it becomes an error.
#pragma once
#include <exception>
#include <string_view>
#include <type_traits>
#include <utility>

#include "tutti/result.h"

namespace tutti {

/// The error that stands for an exception: kSystem, "FUNCTION: out of memory", in one line. If
/// there is no memory for this text, it leaves out the function and allocates nothing.
Error thrown_error(std::string_view function, const std::exception& thrown) noexcept;

/// A copy. Without memory for its text, that is "out of memory".
Error copy_of(const Error& error) noexcept;

/// Calls `body`. Returns its Status or Result, or the error that stands for what it threw.
template <class Body>
std::invoke_result_t<Body> walled(std::string_view function, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (const std::exception& thrown) {
    return thrown_error(function, thrown);
  }
}

}  // namespace tutti
