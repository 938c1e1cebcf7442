#include "capi/store.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <string>
#include <utility>

namespace tutti::c_api {
namespace {

constexpr const char* kFailed = "tutti/failed";
constexpr std::size_t kMostKeyBytes = 256, kMostValueBytes = std::size_t{16} << 20;
constexpr std::size_t kMostTextBytes = 4096;  // An error's.
/// Between two looks whether joining has failed.
constexpr std::chrono::milliseconds kSlice{50};

/// What `take` of a store's get fills.
struct Taken {
  Bytes* value;
  bool taken, too_large;
};

void take(void* into, const void* value, std::size_t bytes) {
  auto& taken = *static_cast<Taken*>(into);
  taken.taken = true;
  taken.too_large = bytes > kMostValueBytes || (value == nullptr && bytes != 0);
  if (taken.too_large) return;
  const auto* from = static_cast<const std::byte*>(value);
  taken.value->assign(from, from + bytes);
}

Error says(const char* verb, std::string_view key, const std::string& what) {
  return {Code::kSystem, "rendezvous: the program's store: " + std::string(verb) + " '" +
                             std::string(key) + "' " + what};
}

/// An error on its way to the other ranks: "code rank peer text".
std::string written(const Error& error) {
  return std::to_string(static_cast<int>(error.code)) + ' ' + std::to_string(error.rank.value) +
         ' ' + std::to_string(error.peer.value) + ' ' + error.what.substr(0, kMostTextBytes);
}

/// The reverse, of bytes from outside; what is no such text is an error without a rank.
Error read(const Bytes& value) {
  const std::string text(reinterpret_cast<const char*>(value.data()),
                         std::min(value.size(), kMostTextBytes + 64));
  const char* at = text.data();
  const char* const end = at + text.size();
  int numbers[3] = {};
  for (int& number : numbers) {
    const auto [behind, failure] = std::from_chars(at, end, number);
    if (failure != std::errc{} || behind == end || *behind != ' ')
      return says("get", kFailed, "gave what no rank has put");
    at = behind + 1;
  }
  const bool known = numbers[0] > 0 && numbers[0] <= static_cast<int>(kLastCode);
  std::string what(at, end);
  // One line, whatever was there.
  std::replace_if(
      what.begin(), what.end(), [](char c) { return c >= 0 && c < ' '; }, '?');
  return {known ? static_cast<Code>(numbers[0]) : Code::kSystem, std::move(what), Rank{numbers[1]},
          Rank{numbers[2]}};
}

}  // namespace

Status CStore::put(std::string_view key, std::span<const std::byte> value) {
  if (key.empty() || key.size() > kMostKeyBytes || value.size() > kMostValueBytes)
    return says("put", key.substr(0, kMostKeyBytes), "is too large");
  const int failure = store_.put(store_.user, std::string(key).c_str(), value.data(), value.size());
  return failure == 0 ? ok() : Status(says("put", key, "failed: " + std::to_string(failure)));
}

Result<int> CStore::look(std::string_view key, int timeout_ms, Bytes& value) const {
  Taken taken{&value, false, false};
  const int outcome = store_.get(store_.user, std::string(key).c_str(), timeout_ms, take, &taken);
  if (outcome < 0 || outcome > 1) return says("get", key, "failed: " + std::to_string(outcome));
  if (outcome == 0 && !taken.taken) return says("get", key, "returned 0 without a value");
  if (taken.too_large) return says("get", key, "gave NULL, or more than 16 MiB");
  return outcome;
}

Result<Bytes> CStore::get(std::string_view key, Deadline deadline) {
  for (;;) {
    const bool last = deadline.passed();  // Before the look, so that there is one after the wait.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        deadline.at - std::chrono::steady_clock::now());
    const auto slice = std::clamp(left, std::chrono::milliseconds(0), kSlice);
    Bytes value;
    TUTTI_TRY(const int absent, look(key, static_cast<int>(slice.count()), value));
    if (absent == 0) return value;
    TUTTI_TRY(const int works, look(kFailed, 0, value));
    if (works == 0) return read(value);
    if (last)
      return Error{Code::kTimeout,
                   "rendezvous: nobody put the key '" + std::string(key) + "' in time"};
  }
}

Status CStore::fail(const Error& error) {
  const std::string text = written(error);
  return put(kFailed, std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace tutti::c_api
