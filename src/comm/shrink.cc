// What a communicator offers after a failure: health, revoke, agree, shrink; and grow.
#include "comm/shrink.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/wall.h"
#include "comm/growing.h"

namespace tutti {
namespace {

Status check_excluded(const Communicator::State& state, std::span<const Rank> excluded) {
  for (const Rank rank : excluded) {
    if (rank.value >= 0 && rank.value < state.rank_count && rank.value != state.me.value) continue;
    return Error{
        Code::kInvalidArgument,
        fmt::format("shrink: rank {} can't be excluded by rank {}: it is to be another one "
                    "of the {} ranks",
                    rank.value, state.me.value, state.rank_count),
        state.me};
  }
  return ok();
}

/// The fewest calls that a member has completed.
Result<std::uint64_t> fewest_completed(const Recovery::Attempt& attempt, std::uint64_t mine) {
  TUTTI_TRY(const auto all, attempt.exchange("completed", std::as_bytes(std::span(&mine, 1))));
  for (const Bytes& theirs : all) {
    std::uint64_t number = 0;
    if (theirs.size() == sizeof(number)) std::memcpy(&number, theirs.data(), sizeof(number));
    mine = std::min(mine, number);
  }
  return mine;
}

Status shrink_to(const Communicator::State& whole, const Recovery::Attempt& attempt,
                 std::uint64_t mine, const TakeShrunk& take, ShrunkRanks& made) {
  TUTTI_TRY(const std::uint64_t completed, fewest_completed(attempt, mine));
  const std::vector<int> ranks(attempt.members.begin(), attempt.members.end());
  const Settings settings = settings_of_part(whole.settings, ranks);
  TUTTI_TRY(auto state, make_state({attempt.me, static_cast<int>(ranks.size()), settings,
                                    whole.devices, &whole, attempt.look},
                                   attempt.exchange));
  TUTTI_RETURN_IF_ERROR(take(std::move(state)));
  made = {{}, completed};
  for (const int rank : ranks) made.members.push_back(Rank{rank});
  return ok();
}

/// Ranks that go another way must not wait for this one.
void give_up(const Communicator::State* made) {
  if (made == nullptr) return;
  made->executor->abort(
      {Code::kAborted, "it was given up while ranks were lost", made->me, Rank{}});
}

}  // namespace

Status may_recover(const Communicator::State& state, std::string_view function) {
  if (in_group()) {
    return Error{Code::kInvalidArgument,
                 std::string(function) + ": this thread has a group open; end it", state.me};
  }
  return Progress::may_wait(function);
}

Result<ShrunkRanks> shrink(Communicator::State& whole, Recovery::Options options,
                           const std::function<std::uint64_t()>& completed,
                           const TakeShrunk& take) {
  TUTTI_RETURN_IF_ERROR(may_recover(whole, "shrink"));
  TUTTI_RETURN_IF_ERROR(check_excluded(whole, options.excluded));
  Progress::instance().drain(*whole.queue);
  options.operation = Recovery::Operation::kShrink;
  options.limit = whole.settings.timeout;
  const std::uint64_t mine = completed();
  ShrunkRanks made;
  TUTTI_RETURN_IF_ERROR(Recovery(*whole.executor, whole.recovery, std::move(options))
                            .run([&](const Recovery::Attempt& attempt) {
                              return shrink_to(whole, attempt, mine, take, made);
                            }));
  return made;
}

Status Communicator::health() const {
  TUTTI_RETURN_IF_ERROR(usable("health"));
  return state_->guarded("health", [&] {
    // acquire: as State::is_free.
    const bool idle = state_->queue->pending.load(std::memory_order_acquire) == 0;
    return state_->executor->health("health", idle);
  });
}

void Communicator::revoke(std::string_view reason) {
  if (state_ == nullptr) return;
  Error error{Code::kRevoked, "out of memory", state_->me, state_->me};
  (void)walled("revoke", [&] {
    error.what = fmt::format("{}; shrink makes a communicator of the ranks that are left", reason);
    return ok();
  });
  state_->end_all(error);
}

Result<Shrunk> Communicator::shrink(std::span<const Rank> excluded) {
  TUTTI_RETURN_IF_ERROR(usable("shrink"));
  return state_->guarded("shrink", [&]() -> Result<Shrunk> {
    std::unique_ptr<State> made;
    const auto take = [&](std::unique_ptr<State> taken) {
      give_up(made.get());
      made = std::move(taken);
      return ok();
    };
    auto ranks = tutti::shrink(
        *state_, {.excluded = excluded}, [&] { return state_->executor->completed(); }, take);
    if (!ranks) {
      give_up(made.get());
      return std::move(ranks.error());
    }
    return Shrunk{Communicator(std::move(made)), std::move(ranks->members), ranks->completed};
  });
}

Result<std::uint64_t> Communicator::agree(std::uint64_t flags) {
  TUTTI_RETURN_IF_ERROR(usable("agree"));
  return state_->guarded("agree", [&]() -> Result<std::uint64_t> {
    TUTTI_RETURN_IF_ERROR(may_recover(*state_, "agree"));
    Progress::instance().drain(*state_->queue);
    std::uint64_t agreed = 0;
    TUTTI_RETURN_IF_ERROR(
        Recovery(*state_->executor, state_->recovery,
                 {.operation = Recovery::Operation::kAgree, .limit = state_->settings.timeout})
            .run([&](const Recovery::Attempt& attempt) -> Status {
              TUTTI_TRY(const auto all,
                        attempt.exchange("flags", std::as_bytes(std::span(&flags, 1))));
              std::uint64_t common = ~std::uint64_t{0};
              for (const Bytes& theirs : all) {
                std::uint64_t word = 0;
                if (theirs.size() == sizeof(word)) std::memcpy(&word, theirs.data(), sizeof(word));
                common &= word;
              }
              agreed = common;
              return ok();
            }));
    return agreed;
  });
}

Result<Communicator> Communicator::grow(Rendezvous& rendezvous, int rank_count,
                                        std::string_view name) {
  return walled("grow", [&]() -> Result<Communicator> {
    TUTTI_RETURN_IF_ERROR(usable("grow"));
    if (rank_count < state_->rank_count) {
      return Error{Code::kInvalidArgument,
                   fmt::format("grow: {} ranks are fewer than the {} that there are; shrink "
                               "excludes ranks",
                               rank_count, state_->rank_count),
                   state_->me};
    }
    TUTTI_RETURN_IF_ERROR(may_recover(*state_, "grow"));
    TUTTI_RETURN_IF_ERROR(state_->executor->health("grow", false));
    CommunicatorConfig config{state_->me, rank_count, state_->settings};
    config.origin = state_->origin();
    // A rank that is done with this may leave the old communicator while others still join.
    GrowingRendezvous there(rendezvous, [this] {
      // acquire: as State::is_free.
      const bool idle = state_->queue->pending.load(std::memory_order_acquire) == 0;
      return state_->executor->health("grow", idle, exec::HostExecutor::Gone::kDead);
    });
    TUTTI_TRY(auto state, make_state(config, there, name));
    return Communicator(std::move(state));
  });
}

Result<Communicator> Communicator::grow(const UniqueId& id, int rank_count) {
  return walled("grow", [&]() -> Result<Communicator> {
    TUTTI_RETURN_IF_ERROR(usable("grow"));
    TUTTI_TRY(const auto rendezvous,
              unique_id_rendezvous(id, Deadline::after(state_->settings.timeout)));
    return grow(*rendezvous, rank_count);
  });
}

}  // namespace tutti
