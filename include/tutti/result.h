// File: tutti/result.h: a value or an error. Nothing in the library throws across its API.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tutti/export.h"
#include "tutti/types.h"

namespace tutti {

/// Why a call failed. The numeric values are part of the C ABI.
enum class Code : int {
  kOk = 0,
  kInvalidArgument = 1,  // The caller's mistake; nothing was started.
  kMismatch = 2,         // Ranks disagree: on the rank count, the operation, the version.
  kTimeout = 3,          // The deadline passed; the error names the missing ranks.
  kPeerFailed = 4,       // A peer ended, or left too early.
  kAborted = 5,          // This communicator was aborted.
  kSystem = 6,           // The operating system refused something.
  kUnsupported = 7,      // Legal, but this build or machine can't do it.
  kInvalidPlan = 8,      // A plan that the verifier rejects, or that can't be parsed.
  kInternal = 9,         // A bug in the library.
  kRevoked = 10,  // This communicator was revoked: `shrink` makes one of those that are left.
};
inline constexpr Code kLastCode = Code::kRevoked;

constexpr std::string_view to_string(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kMismatch: return "mismatch";
    case Code::kTimeout: return "timeout";
    case Code::kPeerFailed: return "peer failed";
    case Code::kAborted: return "aborted";
    case Code::kSystem: return "system error";
    case Code::kUnsupported: return "unsupported";
    case Code::kInvalidPlan: return "invalid plan";
    case Code::kInternal: return "internal error";
    case Code::kRevoked: return "revoked";
  }
  return "unknown";
}

/// One failure. `what` is a single line that says what was attempted, what went wrong and, where
/// there is one, the remedy. `rank` is the rank that reports it, `peer` the one that is to blame,
/// whichever noticed; -1: none.
struct [[nodiscard]] TUTTI_API Error {
  Code code = Code::kInternal;
  std::string what;
  Rank rank{};
  Rank peer{};

  /// "rank 1: timeout: all_reduce: ...", ready to print.
  std::string to_string() const;
};

namespace detail {
/// Prints the error to stderr, and ends the process with exit code 1 without destructors, which
/// might wait for ranks that are gone. What is buffered for files is written.
[[noreturn]] TUTTI_API void end_process(const Error& error) noexcept;
/// The same for a program that asks a success for its error.
[[noreturn]] TUTTI_API void end_without_error() noexcept;
}  // namespace detail

/// Success, or an Error. One pointer wide, so that the hot path returns it in a register. Making
/// one never throws: without memory for the Error only its code and its ranks are kept, and the
/// text is "out of memory".
class [[nodiscard]] TUTTI_API Status {
 public:
  Status() = default;
  Status(Error error) noexcept : word_(keep(std::move(error))) {}
  Status(Status&& other) noexcept : word_(std::exchange(other.word_, 0)) {}
  Status& operator=(Status&& other) noexcept {
    if (const Word old = std::exchange(word_, std::exchange(other.word_, 0)); old != 0) drop(old);
    return *this;
  }
  ~Status() {
    if (word_ != 0) drop(word_);
  }
  explicit operator bool() const { return word_ == 0; }
  /// The error lives as long as the status. There is one exception: an error that found no memory,
  /// and finds none now, is a copy of this thread's own, which the eighth such call replaces.
  /// A success has none: then the process ends with 1, and a line that says so.
  Error& error() { return is_stored() ? *stored(word_) : restore(); }
  const Error& error() const { return is_stored() ? *stored(word_) : bare(word_); }
  /// For programs that have no use for an error: it is printed, and the process ends with 1.
  void value() const {
    if (word_ != 0) [[unlikely]]
      detail::end_process(error());
  }

 private:
  using Word = std::uintptr_t;
  static constexpr Word kBare = 1;  // The word is no address: it holds the code and the ranks.

  bool is_stored() const { return word_ != 0 && (word_ & kBare) == 0; }
  static Error* stored(Word word) { return reinterpret_cast<Error*>(word); }
  static Word keep(Error&& error) noexcept;
  static void drop(Word word) noexcept;
  static Error& bare(Word word) noexcept;
  Error& restore() noexcept;

  Word word_ = 0;  // 0: success. Else the address of an Error on the heap, or kBare is set.
};
inline Status ok() { return {}; }

/// A T, or an Error.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : error_(std::move(error)) {}
  explicit operator bool() const { return value_.has_value(); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }
  /// As Status::error.
  Error& error() {
    if (!error_) detail::end_without_error();
    return *error_;
  }
  const Error& error() const {
    if (!error_) detail::end_without_error();
    return *error_;
  }
  /// The value; as Status::value, if there is none.
  T& value() & {
    if (!value_) detail::end_process(*error_);
    return *value_;
  }
  const T& value() const& {
    if (!value_) detail::end_process(*error_);
    return *value_;
  }
  T&& value() && {
    if (!value_) detail::end_process(*error_);
    return *std::move(value_);
  }

 private:
  std::optional<T> value_;
  std::optional<Error> error_;
};

// Hands an error to the caller, keeps the value: `TUTTI_TRY(auto slot, acquire());`
// and, for a Status: `TUTTI_RETURN_IF_ERROR(connect());`
#define TUTTI_CAT_(a, b) a##b
#define TUTTI_CAT(a, b) TUTTI_CAT_(a, b)
#define TUTTI_TRY_(result, declaration, ...)     \
  auto result = (__VA_ARGS__);                   \
  if (!result) return std::move(result.error()); \
  declaration = *std::move(result)
#define TUTTI_TRY(declaration, ...) \
  TUTTI_TRY_(TUTTI_CAT(tutti_try_, __LINE__), declaration, __VA_ARGS__)
#define TUTTI_RETURN_IF_ERROR(...)                                                                \
  do {                                                                                            \
    if (auto tutti_status = (__VA_ARGS__); !tutti_status) return std::move(tutti_status.error()); \
  } while (false)

}  // namespace tutti
