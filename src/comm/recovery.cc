#include "comm/recovery.h"

#include <algorithm>
#include <cstring>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/hash.h"
#include "bootstrap/wire.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// How often a rank that waits looks whether others have died: as exec::Watchdog.
constexpr auto kLookPause = 50ms;
// How long a rank that is done tries to tell the others so.
constexpr auto kLongestGoodbye = 100ms;
// Attempts in a row that may fail though no rank is known to be lost.
constexpr int kMostFutile = 3;
// Bytes that a rank may give to an exchange: as comm/exchange_over.
constexpr std::size_t kMostBytes = std::size_t{1} << 20;

// The words of a board: operation, stage, number and excluded ranks; epoch; the latest epochs that
// were committed; a hash of the members; pieces so far. Behind them the ranks that are taken for
// dead, as bits (agreeing, done); an error (failed); else two pieces, each behind the bytes of its
// whole.
constexpr std::size_t kWhat = 0, kEpoch = 1, kCommitted = 2, kMembers = 5, kPhase = 6, kBody = 7;
constexpr std::size_t kBodyWords = exec::RecoveryBoard::kWords - kBody;
constexpr std::size_t kPieceWords = kBodyWords / 2 - 1;
constexpr std::size_t kPieceBytes = kPieceWords * sizeof(std::uint64_t);
static_assert(kBodyWords * 64 >= 4096, "a bit for each rank");

std::size_t piece_at(std::uint64_t phase) { return kBody + phase % 2 * (1 + kPieceWords); }

std::string_view name_of(std::uint64_t operation) {
  switch (static_cast<Recovery::Operation>(operation)) {
    case Recovery::Operation::kShrink: return "shrink";
    case Recovery::Operation::kAgree: return "agree";
    case Recovery::Operation::kShare: return "share_id";
  }
  return "another function";
}

constexpr std::uint64_t bit_of(int rank) { return std::uint64_t{1} << (rank % 64); }
std::size_t word_of(int rank) { return kBody + static_cast<std::size_t>(rank) / 64; }

}  // namespace

struct Recovery::Shown {
  std::uint64_t operation, number, excluded, epoch, members, phase;
  Stage stage;
  const Words& words;

  bool active() const {
    return stage == Stage::kAgreeing || stage == Stage::kExchanging || stage == Stage::kReady;
  }
  bool shows_dead() const { return stage == Stage::kAgreeing || stage == Stage::kDone; }
};

Recovery::Shown Recovery::shown_by(int rank) const {
  const Words& words = board_.seen(rank);
  const std::uint64_t what = words[kWhat];
  const std::uint64_t stage = what >> 8 & 255;
  return {
      what & 255,
      what >> 16 & 0xffff,
      what >> 32,
      words[kEpoch],
      words[kMembers],
      words[kPhase],
      stage > static_cast<std::uint64_t>(Stage::kDone) ? Stage::kNone : static_cast<Stage>(stage),
      words};
}

Recovery::Recovery(exec::HostExecutor& executor, RecoveryHistory& history, Options options)
    : board_(executor),
      history_(history),
      options_(std::move(options)),
      name_(name_of(static_cast<std::uint64_t>(options_.operation))),
      me_(executor.team().me),
      ranks_(executor.team().ranks),
      excluded_(static_cast<std::size_t>(ranks_)),
      start_(Clock::now()),
      stage_start_(start_),
      next_look_(start_),
      changed_(static_cast<std::size_t>(ranks_), start_) {
  history_.dead.resize(static_cast<std::size_t>(ranks_));
  for (const Rank rank : options_.excluded) excluded_[static_cast<std::size_t>(rank.value)] = true;
  Hash hash;
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    if (excluded_[at]) hash.add(static_cast<std::uint64_t>(rank));
    if (!excluded_[at] && !history_.dead[at]) members_.push_back(rank);
    if (rank == me_) continue;
    board_.look(rank);
    history_.epoch = std::max(history_.epoch, shown_by(rank).epoch);
  }
  excluded_hash_ = static_cast<std::uint32_t>(hash.value());
  members_hash_ = hash_of_members();
  first_epoch_ = ++history_.epoch;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank != me_ && !excluded_[static_cast<std::size_t>(rank)]) survey(rank);
  }
}

Recovery::~Recovery() {
  // An exception has ended it: the others need not wait for this rank.
  if (stage_ == Stage::kFailed || stage_ == Stage::kDone) return;
  mine_[kBody] = 0;
  show(Stage::kFailed);
}

std::uint64_t Recovery::hash_of_members() const {
  Hash hash;
  for (const int rank : members_) hash.add(static_cast<std::uint64_t>(rank));
  return hash.value();
}

Error Recovery::error(Code code, const std::string& what, int peer) const {
  return {code, fmt::format("{}: {}", name_, what), Rank{me_}, Rank{peer}};
}

void Recovery::show(Stage stage) {
  stage_ = stage;
  mine_[kWhat] = static_cast<std::uint64_t>(options_.operation) |
                 static_cast<std::uint64_t>(stage) << 8 | std::uint64_t{options_.number} << 16 |
                 std::uint64_t{excluded_hash_} << 32;
  mine_[kEpoch] = history_.epoch;
  std::copy(history_.committed.begin(), history_.committed.end(), mine_.begin() + kCommitted);
  mine_[kMembers] = members_hash_;
  mine_[kPhase] = phase_;
  board_.show(mine_);
}

void Recovery::show_dead(Stage stage) {
  std::fill(mine_.begin() + kBody, mine_.end(), 0);
  for (int rank = 0; rank < ranks_; ++rank) {
    if (history_.dead[static_cast<std::size_t>(rank)]) mine_[word_of(rank)] |= bit_of(rank);
  }
  show(stage);
}

Status Recovery::run(const std::function<Status(const Attempt&)>& attempt) {
  for (int futile = 0;;) {
    if (!agree_on_members()) {
      if (taken_) break;
      return end(*std::move(error_));
    }
    const auto at = std::find(members_.begin(), members_.end(), me_) - members_.begin();
    const std::vector<int> members = members_;
    Status tried = attempt(
        {members, Rank{static_cast<int>(at)},
         [this](std::string_view, std::span<const std::byte> mine) { return exchange(mine); },
         [this] { return look_at_others(); }});
    if (tried) {
      prepared_ = history_.epoch;
      if (all_ready()) break;
    }
    if (taken_) break;
    if (!over()) drop_gone();  // What has failed may have failed because of a rank that has gone.
    if (error_) return end(*std::move(error_));
    if (restart_) continue;
    const bool of_peer =
        tried.error().code == Code::kPeerFailed || tried.error().code == Code::kTimeout;
    if (!of_peer || ++futile == kMostFutile) return end(std::move(tried.error()));
    ++history_.epoch;
  }
  commit();
  return ok();
}

/// The operation has failed; the others learn why, also those that are an epoch ahead.
Status Recovery::end(Error error) {
  namespace wire = bootstrap::wire;
  history_.epoch = std::max(history_.epoch, newest_);
  const bool left_out = history_.dead[static_cast<std::size_t>(me_)];
  if (left_out) {  // The others go on without this rank.
    show_dead(Stage::kDone);
  } else {
    error.what = error.what.substr(0, (kBodyWords - 4) * sizeof(std::uint64_t));
    const Bytes frame = wire::encode({.kind = wire::Kind::kFailed, .error = error});
    const auto told = std::span(frame).subspan(wire::kLengthBytes);
    mine_[kBody] = told.size();
    std::memcpy(&mine_[kBody + 1], told.data(),
                std::min(told.size(), (kBodyWords - 1) * sizeof(std::uint64_t)));
    show(Stage::kFailed);
  }
  board_.flush(kLongestGoodbye);
  error.rank = Rank{me_};
  return error;
}

void Recovery::commit() {
  auto& committed = history_.committed;
  std::shift_right(committed.begin(), committed.end(), 1);
  committed.front() = prepared_;
  show_dead(Stage::kDone);
  board_.flush(kLongestGoodbye);
}

/// Takes the latest epoch that a member has shown, or the next one if members have changed.
void Recovery::follow() {
  if (members_changed_) {
    std::erase_if(members_,
                  [this](int rank) { return history_.dead[static_cast<std::size_t>(rank)]; });
    members_hash_ = hash_of_members();
    ++history_.epoch;
  }
  history_.epoch = std::max(history_.epoch, newest_);
  members_changed_ = restart_ = false;
}

/// True once all members agree; else the operation is over.
bool Recovery::agree_on_members() {
  for (;;) {
    follow();
    phase_ = 0;
    show_dead(Stage::kAgreeing);
    const bool agreed = wait_for([this](int rank) {
      const Shown theirs = shown_by(rank);
      return !theirs.active() || theirs.epoch != history_.epoch ||
             theirs.members != members_hash_ || theirs.excluded != excluded_hash_;
    });
    if (agreed) return true;
    if (taken_ || error_) return false;
  }
}

/// Why an exchange or a wait of the attempt has ended.
Error Recovery::superseded() const {
  return error_ ? Error{error_->code, error_->what, error_->rank, error_->peer}
                : error(Code::kPeerFailed, "the ranks that take part have changed", -1);
}

Result<std::vector<Bytes>> Recovery::exchange(std::span<const std::byte> mine) {
  if (over()) return superseded();
  if (mine.size() > kMostBytes) {
    return error(Code::kInternal,
                 fmt::format("{} bytes of set-up data; {} are allowed", mine.size(), kMostBytes),
                 me_);
  }
  std::vector<Bytes> all(members_.size());
  std::size_t longest = mine.size();
  for (std::size_t from = 0; from == 0 || from < longest; from += kPieceBytes) {
    const std::size_t at = piece_at(++phase_);
    mine_[at] = mine.size();
    if (from < mine.size())
      std::memcpy(&mine_[at + 1], mine.data() + from, std::min(kPieceBytes, mine.size() - from));
    show(Stage::kExchanging);
    const bool there = wait_for([this](int rank) {
      const Shown theirs = shown_by(rank);
      return !theirs.active() || theirs.epoch != history_.epoch || theirs.phase < phase_;
    });
    if (!there) return superseded();
    for (std::size_t i = 0; i < members_.size(); ++i) {
      const Words& words = members_[i] == me_ ? mine_ : board_.seen(members_[i]);
      const std::size_t bytes = words[at];
      if (bytes > kMostBytes || (from != 0 && bytes < all[i].size())) {
        return error(Code::kMismatch, fmt::format("rank {} gives {} bytes", members_[i], bytes),
                     members_[i]);
      }
      longest = std::max(longest, bytes);
      const auto* const piece = reinterpret_cast<const std::byte*>(&words[at + 1]);
      if (from < bytes)
        all[i].insert(all[i].end(), piece, piece + std::min(kPieceBytes, bytes - from));
    }
  }
  return all;
}

/// For an attempt that waits for others by other means than an exchange.
Status Recovery::look_at_others() {
  board_.progress();
  survey();
  if (!over() && Clock::now() >= next_look_) drop_gone();
  return over() ? Status(superseded()) : ok();
}

/// This rank is ready. True once all members are.
bool Recovery::all_ready() {
  show(Stage::kReady);
  return wait_for([this](int rank) { return !may_be_ready(rank); });
}

bool Recovery::has_committed(const Shown& theirs, std::uint64_t epoch) const {
  const auto first = theirs.words.begin() + kCommitted;
  const auto end = first + static_cast<std::ptrdiff_t>(history_.committed.size());
  return epoch != 0 && std::find(first, end, epoch) != end;
}

bool Recovery::may_be_ready(int rank) const {
  const Shown theirs = shown_by(rank);
  const bool ready = theirs.stage == Stage::kReady && theirs.epoch == history_.epoch;
  return ready || has_committed(theirs, history_.epoch);
}

/// Waits until no member is `awaited(rank)`. False: the epoch or the operation is over.
template <class Awaited>
bool Recovery::wait_for(Awaited&& awaited) {
  stage_start_ = Clock::now();
  bool done = false;
  const auto ready = [&] {
    survey();
    done = !over() &&
           std::ranges::none_of(members_, [&](int rank) { return rank != me_ && awaited(rank); });
    return done || over();
  };
  board_.wait(ready, [&] { return check_time(awaited); });
  return done;
}

/// Between naps. False: the operation is over.
template <class Awaited>
bool Recovery::check_time(Awaited& awaited) {
  const Time now = Clock::now();
  if (now >= next_look_) drop_gone();
  if (over()) return true;  // The caller looks.
  std::vector<int> missing;
  std::ranges::copy_if(members_, std::back_inserter(missing),
                       [&](int rank) { return rank != me_ && awaited(rank); });
  for (const int rank : missing) {
    const Time since = std::max(stage_start_, changed_[static_cast<std::size_t>(rank)]);
    if (now - since <= limit_) continue;
    const Shown theirs = shown_by(rank);
    if (!theirs.active() || theirs.excluded == excluded_hash_) {
      drop(rank);
    } else if (!error_) {
      // Not before: they may be in another shrink first, which excludes this rank.
      error_ = error(Code::kMismatch,
                     fmt::format("rank {} excludes other ranks than rank {}", rank, me_), rank);
    }
  }
  if (now - start_ <= 2 * limit_ || missing.empty()) return true;
  error_ = error(Code::kTimeout,
                 fmt::format("waited {} ms for rank {}; TUTTI_TIMEOUT_MS sets half of the limit",
                             2 * limit_.count(), fmt::join(missing, ", rank ")),
                 missing.front());
  return false;
}

/// Looks at all boards.
void Recovery::survey() {
  if (!error_ && history_.aborts.load(std::memory_order_relaxed) != aborts_)
    error_ = error(Code::kAborted, fmt::format("rank {} called abort meanwhile", me_), me_);
  if (!error_ && options_.stop.stop_requested())
    error_ = error(Code::kAborted, fmt::format("rank {} gave the communicator up", me_), me_);
  for (int rank = 0; rank < ranks_ && !error_; ++rank) {
    if (rank == me_ || excluded_[static_cast<std::size_t>(rank)] || !board_.look(rank)) continue;
    changed_[static_cast<std::size_t>(rank)] = Clock::now();
    survey(rank);
  }
  // What was seen before this rank was ready.
  for (int rank = 0; rank < ranks_ && prepared_ != 0 && !taken_; ++rank)
    taken_ = rank != me_ && has_committed(shown_by(rank), prepared_);
}

void Recovery::survey(int rank) {
  const Shown theirs = shown_by(rank);
  taken_ = taken_ || has_committed(theirs, prepared_);
  if (taken_ || history_.dead[static_cast<std::size_t>(rank)]) return;
  const bool same = theirs.operation == static_cast<std::uint64_t>(options_.operation);
  if (theirs.active()) newest_ = std::max(newest_, theirs.epoch);
  // With another list it may be in another operation first, which excludes this rank.
  const bool other = !same && theirs.excluded == excluded_hash_;
  const auto calls_another = [&] {
    return error(Code::kMismatch, fmt::format("rank {} called {}", rank, name_of(theirs.operation)),
                 rank);
  };
  if (theirs.active() && theirs.epoch >= first_epoch_ && other) {
    error_ = calls_another();
    return;
  }
  if (theirs.shows_dead()) take_dead(rank, theirs.words);
  restart_ = restart_ || newest_ > history_.epoch;
  if (!error_ && has_gone_on(theirs)) {
    error_ = error(Code::kPeerFailed,
                   fmt::format("rank {} has given it up and called it once more", rank), rank);
  }
  if (error_ || !has_failed(theirs)) return;
  const std::size_t bytes =
      std::min<std::uint64_t>(theirs.words[kBody], (kBodyWords - 1) * sizeof(std::uint64_t));
  const auto told =
      bootstrap::wire::parse({reinterpret_cast<const std::byte*>(&theirs.words[kBody + 1]), bytes});
  const Error* const why = told && told->error.code != Code::kOk ? &told->error : nullptr;
  if (other && why != nullptr && why->code == Code::kMismatch) {
    // It saw this rank's call first, and had ended its own before this rank looked.
    error_ = calls_another();
    return;
  }
  const bool blames = why != nullptr && known_rank(why->peer, ranks_).value >= 0;
  error_ = {why != nullptr ? why->code : Code::kPeerFailed,
            fmt::format("{}: it failed at rank {}: {}", name_, rank,
                        why != nullptr ? why->what : "it does not say why"),
            Rank{me_}, blames ? why->peer : Rank{rank}};
}

bool Recovery::has_gone_on(const Shown& theirs) const {
  const bool same = theirs.operation == static_cast<std::uint64_t>(options_.operation) &&
                    theirs.excluded == excluded_hash_;
  const auto ahead = static_cast<std::int16_t>(theirs.number - options_.number);
  return options_.number != 0 && same && ahead > 0;
}

/// Whether that rank's failure ends this operation.
bool Recovery::has_failed(const Shown& theirs) const {
  if (theirs.stage != Stage::kFailed) return false;
  const bool same = theirs.operation == static_cast<std::uint64_t>(options_.operation);
  if (options_.number != 0 && same)
    return theirs.excluded == excluded_hash_ && theirs.number == options_.number;
  return theirs.epoch >= history_.epoch;
}

void Recovery::take_dead(int rank, const Words& words) {
  for (int dead = 0; dead < ranks_; ++dead) {
    if ((words[word_of(dead)] & bit_of(dead)) == 0) continue;
    if (dead != me_) {
      drop(dead);
      continue;
    }
    history_.dead[static_cast<std::size_t>(me_)] = true;
    error_ = error(Code::kPeerFailed,
                   fmt::format("rank {} was left out: rank {} waited too long for it, or could not "
                               "reach it",
                               me_, rank),
                   me_);
    return;
  }
}

/// That rank is taken for dead.
void Recovery::drop(int rank) {
  auto&& dead = history_.dead[static_cast<std::size_t>(rank)];
  if (dead) return;
  dead = true;
  if (!excluded_[static_cast<std::size_t>(rank)]) members_changed_ = restart_ = true;
}

/// Drops members that have died or left, unless they were ready before.
void Recovery::drop_gone() {
  next_look_ = Clock::now() + kLookPause;
  for (const int rank : members_) {
    if (rank == me_ || history_.dead[static_cast<std::size_t>(rank)] || !board_.gone(rank))
      continue;
    if (board_.look(rank)) survey(rank);  // What it showed last.
    if (stage_ == Stage::kReady && may_be_ready(rank)) continue;
    if (!error_) drop(rank);
  }
}

}  // namespace tutti
