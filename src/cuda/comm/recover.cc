// What a communicator of devices offers after a failure. Ranks agree on the boards of the control
// communicator (comm/recovery.h), so it does not matter which ranks have died. An attempt to shrink
// makes a control communicator of those that are left and joins their devices over it. If a rank
// dies meanwhile, joining fails on the others, and they try once more without it.
#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "comm/shrink.h"
#include "cuda/comm/state.h"

namespace tutti {
namespace {

constexpr int kShareList = -1;  // Begins the list by which operations of share_id are counted.

/// Which one it is of those with this list; not 0.
std::uint16_t next_number(DeviceRecoveries& recoveries, std::vector<int> list) {
  std::uint16_t& number = recoveries.begun[std::move(list)];
  if (++number == 0) ++number;
  return number;
}

/// The id that one of the members gives.
Result<UniqueId> id_among(const std::vector<Bytes>& all, const Recovery::Attempt& attempt) {
  UniqueId id;
  const auto given = [&](const Bytes& bytes) { return bytes.size() == id.bytes.size(); };
  const auto givers = std::ranges::count_if(all, given);
  if (givers != 1) {
    return Error{Code::kInvalidArgument,
                 fmt::format("share_id: {} ranks give an id; exactly one has to", givers),
                 attempt.me};
  }
  std::ranges::copy(*std::ranges::find_if(all, given), id.bytes.begin());
  return id;
}

/// The first rank that is no member; -1: all are.
int first_lost(std::span<const int> members, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    if (!std::ranges::binary_search(members, rank)) return rank;
  }
  return -1;
}

}  // namespace

Status DeviceCommunicator::health() const {
  TUTTI_RETURN_IF_ERROR(state_->health.failure());
  return state_->rank.control.health();
}

void DeviceCommunicator::revoke(std::string_view reason) { state_->health.revoke(reason); }

Result<DeviceShrunk> DeviceCommunicator::shrink(std::span<const Rank> excluded,
                                                const DeviceShrink& how) {
  DeviceRank& self = state_->rank;
  return self.host().guarded("shrink", [&]() -> Result<DeviceShrunk> {
    const std::lock_guard lock(state_->recoveries.mutex);
    TUTTI_RETURN_IF_ERROR(may_recover(self.host(), "shrink"));
    std::vector<int> list;
    for (const Rank rank : excluded) list.push_back(rank.value);
    std::ranges::sort(list);
    std::optional<DeviceCommunicator> made;
    // Ranks that go another way must not wait for this one.
    const auto give_up = [&] {
      if (made) made->abort("it was given up while ranks were lost");
      made.reset();
    };
    const auto join = [&](std::unique_ptr<Communicator::State> joined) -> Status {
      give_up();
      const Settings& settings = how.settings != nullptr ? *how.settings : self.settings;
      TUTTI_TRY(auto state, join_devices(Insides::made_of(std::move(joined)),
                                         {self.device, settings, self.topology, how.stop}));
      made.emplace(DeviceCommunicator(std::move(state)));
      return ok();
    };
    const auto completed = [&] {
      const RelaxedCapture relaxed;
      const exec::OnDevice on(self.device);
      static_cast<void>(state_->health.failure());  // The record learns of it.
      return state_->record.completed();
    };
    auto ranks = tutti::shrink(self.host(),
                               {.excluded = excluded,
                                .stop = how.stop,
                                .number = next_number(state_->recoveries, std::move(list))},
                               completed, join);
    if (!ranks) {
      give_up();
      return std::move(ranks.error());
    }
    return DeviceShrunk{*std::move(made), std::move(ranks->members), ranks->completed};
  });
}

Result<std::uint64_t> DeviceCommunicator::agree(std::uint64_t flags) {
  const std::lock_guard lock(state_->recoveries.mutex);
  return state_->rank.control.agree(flags);
}

Result<UniqueId> DeviceCommunicator::share_id(const UniqueId* mine, std::stop_token stop) {
  Communicator::State& host = state_->rank.host();
  return host.guarded("share_id", [&]() -> Result<UniqueId> {
    const std::lock_guard lock(state_->recoveries.mutex);
    TUTTI_RETURN_IF_ERROR(may_recover(host, "share_id"));
    Progress::instance().drain(*host.queue);
    const auto given =
        mine != nullptr ? std::as_bytes(std::span(mine->bytes)) : std::span<const std::byte>();
    UniqueId id;
    Recovery recovery(*host.executor, host.recovery,
                      {.operation = Recovery::Operation::kShare,
                       .limit = host.settings.timeout,
                       .stop = std::move(stop),
                       .number = next_number(state_->recoveries, {kShareList})});
    TUTTI_RETURN_IF_ERROR(recovery.run([&](const Recovery::Attempt& attempt) -> Status {
      const int lost = first_lost(attempt.members, host.rank_count);
      if (lost >= 0) {
        return Error{Code::kPeerFailed,
                     fmt::format("share_id: rank {} has been lost; shrink makes a communicator of "
                                 "the ranks that are left",
                                 lost),
                     host.me, Rank{lost}};
      }
      TUTTI_TRY(const auto all, attempt.exchange("id", given));
      TUTTI_TRY(id, id_among(all, attempt));
      return ok();
    }));
    return id;
  });
}

Result<DeviceCommunicator> DeviceCommunicator::grow(Rendezvous& rendezvous, int rank_count,
                                                    std::string_view name) {
  DeviceRank& self = state_->rank;
  return self.host().guarded("grow", [&]() -> Result<DeviceCommunicator> {
    if (rank_count < self.rank_count) {
      return Error{Code::kInvalidArgument,
                   fmt::format("grow: {} ranks are fewer than the {} that there are; shrink "
                               "excludes ranks",
                               rank_count, self.rank_count),
                   self.me};
    }
    TUTTI_RETURN_IF_ERROR(may_recover(self.host(), "grow"));
    TUTTI_RETURN_IF_ERROR(health());
    return create(rendezvous, self.me, rank_count, self.device, self.settings, name);
  });
}

Result<DeviceCommunicator> DeviceCommunicator::grow(const UniqueId& id, int rank_count) {
  return state_->rank.host().guarded("grow", [&]() -> Result<DeviceCommunicator> {
    TUTTI_TRY(const auto rendezvous,
              unique_id_rendezvous(id, Deadline::after(state_->rank.settings.timeout)));
    return grow(*rendezvous, rank_count);
  });
}

}  // namespace tutti
