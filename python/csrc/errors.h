// File: python/csrc/errors.h: a tutti::Error as the exception that torch's users expect.
#pragma once
#include <exception>
#include <string>
#include <string_view>

#include <c10/util/Exception.h>

#include "tutti/result.h"

namespace tutti::python {

/// The text with `timeout=` in place of the environment's variable, which the library's errors
/// name: a process group has a limit of its own.
inline std::string with_own_remedy(std::string text) {
  constexpr std::string_view kVariable = "TUTTI_TIMEOUT_MS";
  if (const auto at = text.find(kVariable); at != std::string::npos)
    text.replace(at, kVariable.size(), "timeout= of the process group");
  return text;
}

/// "tutti: all_reduce (number 7 of group '0'): rank 1: mismatch: ..."; of peers that have ended or
/// are late in the words that launchers and harnesses look for, which are gloo's.
inline std::string describe(const std::string& what, const Error& error) {
  const std::string begin = "tutti: " + what + ": ";
  const std::string text = with_own_remedy(error.to_string());
  switch (error.code) {
    case Code::kTimeout: {
      const bool blames = error.peer.value >= 0;
      return begin + "Timed out waiting" +
             (blames ? " on rank " + std::to_string(error.peer.value) : "") + ": " + text;
    }
    case Code::kPeerFailed: return begin + "Connection closed by peer: " + text;
    default: return begin + text;
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
