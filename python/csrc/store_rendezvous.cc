#include "store_rendezvous.h"

#include <algorithm>
#include <exception>

namespace tutti::python {
namespace {

constexpr char kFailure[] = "failure";
// A waiting client looks that often whether somebody has failed: a store can't wait for either.
constexpr std::chrono::milliseconds kSlice{1000};

std::vector<std::uint8_t> to_store(std::span<const std::byte> value) {
  std::vector<std::uint8_t> bytes(value.size());
  std::transform(value.begin(), value.end(), bytes.begin(),
                 [](std::byte byte) { return static_cast<std::uint8_t>(byte); });
  return bytes;
}

Bytes from_store(const std::vector<std::uint8_t>& value) {
  Bytes bytes(value.size());
  std::transform(value.begin(), value.end(), bytes.begin(),
                 [](std::uint8_t byte) { return static_cast<std::byte>(byte); });
  return bytes;
}

Error store_error(std::string_view verb, const std::string& key, const std::exception& thrown) {
  std::string what = thrown.what();
  what.resize(std::min(what.find('\n'), what.size()));  // Without its backtrace.
  return {Code::kSystem, "the store of the process group, " + std::string(verb) + " " + key + ": " +
                             what + "; is the rank that serves it still there?"};
}

}  // namespace

StoreRendezvous::StoreRendezvous(c10::intrusive_ptr<c10d::Store> store, int rank)
    : store_(std::move(store)),
      prefix_("tutti/" + std::to_string(store_->add("tutti/groups_of_" + std::to_string(rank), 1)) +
              "/") {}

Status StoreRendezvous::put(std::string_view key, std::span<const std::byte> value) {
  try {
    store_->set(full(key), to_store(value));
  } catch (const std::exception& thrown) {
    return store_error("set", full(key), thrown);
  }
  return ok();
}

Result<Bytes> StoreRendezvous::get(std::string_view key, Deadline deadline) {
  const std::string name = full(key);
  try {
    for (;;) {
      if (store_->check({name})) return from_store(store_->get(name));
      TUTTI_RETURN_IF_ERROR(failure());
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline.at - std::chrono::steady_clock::now());
      if (left.count() <= 0) return Error{Code::kTimeout, "nobody has put " + name};
      try {
        store_->wait({name}, std::min(left, kSlice));
      } catch (const c10::Error&) {
        continue;  // Not yet: the next look says whether there is still time, and a store.
      }
    }
  } catch (const std::exception& thrown) {
    return store_error("get", name, thrown);
  }
}

Status StoreRendezvous::failure() {
  const std::string name = full(kFailure);
  if (!store_->check({name})) return ok();
  const std::vector<std::uint8_t> text = store_->get(name);
  if (text.empty()) return Error{Code::kInternal, "a rank has failed"};
  return Error{static_cast<Code>(text.front()), std::string(text.begin() + 1, text.end())};
}

Status StoreRendezvous::fail(const Error& error) {
  Bytes text{static_cast<std::byte>(error.code)};
  for (const char c : error.what) text.push_back(static_cast<std::byte>(c));
  return put(kFailure, text);
}

}  // namespace tutti::python
