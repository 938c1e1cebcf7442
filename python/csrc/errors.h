// File: python/csrc/errors.h: a tutti::Error as the exception that torch's users expect.
#pragma once
#include <exception>
#include <string>

#include <c10/util/Exception.h>

#include "tutti/result.h"

namespace tutti::python {

/// "tutti: all_reduce (number 7 of group '0'): rank 1: mismatch: ..."; of peers that have ended or
/// are late in the words that launchers and harnesses look for, which are gloo's.
inline std::string describe(const std::string& what, const Error& error) {
  const std::string begin = "tutti: " + what + ": ";
  switch (error.code) {
    case Code::kTimeout:
      return begin + "Timed out waiting on rank " + std::to_string(error.rank.value) + ": " +
             error.what;
    case Code::kPeerFailed: return begin + "Connection closed by peer: " + error.to_string();
    default: return begin + error.to_string();
  }
}

/// A DistBackendError: in Python a RuntimeError.
inline std::exception_ptr exception_of(const std::string& what, const Error& error) {
  return std::make_exception_ptr(c10::DistBackendError(
      {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, describe(what, error)));
}

[[noreturn]] inline void raise(const std::string& what, const Error& error) {
  C10_THROW_ERROR(DistBackendError, describe(what, error));
}

}  // namespace tutti::python
