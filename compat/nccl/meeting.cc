#include "meeting.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>

#include "environment.h"

namespace tutti::nccl {
namespace {

/// An id that is an address: this mark, the address as text, zeros.
constexpr std::string_view kMark = "tuiA";

UniqueId id_of_address(std::string_view address) {
  UniqueId id;
  std::memcpy(id.bytes.data(), kMark.data(), kMark.size());
  std::memcpy(id.bytes.data() + kMark.size(), address.data(),
              std::min(address.size(), id.bytes.size() - kMark.size() - 1));
  return id;
}

/// Nothing: the id names a store.
std::optional<Place> address_of(const UniqueId& id) {
  const std::string_view text(reinterpret_cast<const char*>(id.bytes.data()), id.bytes.size());
  if (!text.starts_with(kMark)) return std::nullopt;
  const std::string_view rest = text.substr(kMark.size());
  return parse_place(rest.substr(0, rest.find('\0')));
}

/// All communicators that are made by an address have that id. What keeps them apart: rank by rank,
/// the n-th one of so many ranks meets the n-th in the other processes.
std::string next_job(int size, int rank) {
  static auto& mutex = *new std::mutex;
  static auto& made = *new std::map<std::pair<int, int>, int>;
  const std::lock_guard lock(mutex);
  return "nccl " + std::to_string(size) + "#" + std::to_string(made[{size, rank}]++);
}

Result<std::shared_ptr<Rendezvous>> shared(Result<std::unique_ptr<Rendezvous>> made) {
  if (!made) return std::move(made.error());
  return std::shared_ptr<Rendezvous>(*std::move(made));
}

}  // namespace

Error gave_up(const std::string& who) {
  return {Code::kAborted, who + " gave the communicator up (ncclCommAbort) while it was made"};
}

bool is_given_up(ncclComm& self) {
  const std::lock_guard lock(self.meeting_lock);
  return self.given_up;
}

Result<UniqueId> make_own_id() {
  TUTTI_TRY(const Settings settings, settings_of_environment());
  return make_unique_id(settings.net_interfaces);
}

Result<UniqueId> make_id() {
  const std::string text = value_of("NCCL_COMM_ID");
  if (text.empty()) return make_own_id();
  if (parse_place(text)) return id_of_address(text);
  return Error{Code::kInvalidArgument, "NCCL_COMM_ID='" + text.substr(0, 64) +
                                           "'; it is host:port or [IPv6]:port of rank 0's host"};
}

Result<std::shared_ptr<Rendezvous>> enter_place(ncclComm& self, const UniqueId& id,
                                                const Settings& settings) {
  const auto address = address_of(id);
  if (!address) {
    // Its maker has served it ever since, so it is not late as other ranks may be.
    constexpr std::chrono::milliseconds kMost{60'000};
    return shared(unique_id_rendezvous(id, Deadline::after(std::min(settings.timeout, kMost))));
  }
  // Rank 0 may come late, so others look now and then whether they are given up.
  constexpr std::chrono::milliseconds kLook{1000};
  const std::string job = next_job(self.size, self.rank);
  const Deadline deadline = Deadline::after(settings.timeout);
  for (;;) {
    const Deadline next = Deadline::after(kLook);
    auto place = shared(tcp_rendezvous(address->host, address->port, Rank{self.rank},
                                       next.at < deadline.at ? next : deadline, {}, job));
    if (place) {
      self.kept_place = *place;
      return place;
    }
    if (self.rank == 0 || place.error().code != Code::kTimeout) return place;
    if (deadline.passed()) {
      return Error{Code::kTimeout, "rank 0 did not serve its place (NCCL_COMM_ID) in " +
                                       std::to_string(settings.timeout.count()) +
                                       " ms (TUTTI_TIMEOUT_MS): " + place.error().what};
    }
    if (is_given_up(self)) return gave_up("rank " + std::to_string(self.rank));
  }
}

}  // namespace tutti::nccl
