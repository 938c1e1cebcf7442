// What a communicator offers after a failure: health, revoke, agree, shrink; and grow.
#include <algorithm>

#include <fmt/format.h>

#include "base/wall.h"
#include "comm/recovery.h"
#include "comm/state.h"

namespace tutti {
namespace {

/// Why this thread can't recover now.
Status may_recover(const Communicator::State& state, std::string_view function) {
  if (in_group()) {
    return Error{Code::kInvalidArgument,
                 std::string(function) + ": this thread has a group open; end it", state.me};
  }
  return Progress::may_wait(function);
}

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

/// What an attempt to shrink makes.
struct Made {
  std::unique_ptr<Communicator::State> state;
  std::vector<Rank> members;
  std::uint64_t completed = 0;

  /// Ranks that go another way must not wait for this one.
  void give_up() const {
    if (state == nullptr) return;
    state->executor->abort(
        {Code::kAborted, "it was given up while ranks were lost", state->me, Rank{}});
  }
};

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

Status shrink_to(const Communicator::State& whole, const Recovery::Attempt& attempt, Made& made) {
  TUTTI_TRY(const std::uint64_t completed, fewest_completed(attempt, whole.executor->completed()));
  const std::vector<int> ranks(attempt.members.begin(), attempt.members.end());
  const Settings settings = settings_of_part(whole.settings, ranks);
  TUTTI_TRY(auto state, make_state({attempt.me, static_cast<int>(ranks.size()), settings,
                                    whole.devices, &whole, attempt.look},
                                   attempt.exchange));
  made.give_up();
  made = {std::move(state), {}, completed};
  for (const int rank : ranks) made.members.push_back(Rank{rank});
  return ok();
}

}  // namespace

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
  state_->executor->abort(error);
}

Result<Shrunk> Communicator::shrink(std::span<const Rank> excluded) {
  TUTTI_RETURN_IF_ERROR(usable("shrink"));
  return state_->guarded("shrink", [&]() -> Result<Shrunk> {
    TUTTI_RETURN_IF_ERROR(may_recover(*state_, "shrink"));
    TUTTI_RETURN_IF_ERROR(check_excluded(*state_, excluded));
    Progress::instance().drain(*state_->queue);
    Made made;
    const Status done = Recovery(*state_->executor, state_->recovery, state_->settings.timeout,
                                 Recovery::Operation::kShrink, excluded)
                            .run([&](const Recovery::Attempt& attempt) {
                              return shrink_to(*state_, attempt, made);
                            });
    if (!done) {
      made.give_up();
      return done.error();
    }
    return Shrunk{Communicator(std::move(made.state)), std::move(made.members), made.completed};
  });
}

Result<std::uint64_t> Communicator::agree(std::uint64_t flags) {
  TUTTI_RETURN_IF_ERROR(usable("agree"));
  return state_->guarded("agree", [&]() -> Result<std::uint64_t> {
    TUTTI_RETURN_IF_ERROR(may_recover(*state_, "agree"));
    Progress::instance().drain(*state_->queue);
    std::uint64_t agreed = 0;
    TUTTI_RETURN_IF_ERROR(Recovery(*state_->executor, state_->recovery, state_->settings.timeout,
                                   Recovery::Operation::kAgree, {})
                              .run([&](const Recovery::Attempt& attempt) -> Status {
                                TUTTI_TRY(
                                    const auto all,
                                    attempt.exchange("flags", std::as_bytes(std::span(&flags, 1))));
                                std::uint64_t common = ~std::uint64_t{0};
                                for (const Bytes& theirs : all) {
                                  std::uint64_t word = 0;
                                  if (theirs.size() == sizeof(word))
                                    std::memcpy(&word, theirs.data(), sizeof(word));
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
    return create(rendezvous, state_->me, rank_count, state_->settings, name);
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
