// Status where memory runs out: an error that needs none.
#include "tutti/result.h"

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <new>

namespace tutti {
namespace {

// Bit positions in a word that holds an error without an address. From the lowest bit: 1, the code,
// the ranks plus 1.
constexpr unsigned kCodeAt = 1, kRankAt = 8, kPeerAt = 36;
constexpr std::uint64_t kMostCode = 0x7f, kMostRank = 0xfff'ffff;
static_assert(sizeof(std::uintptr_t) == sizeof(std::uint64_t) && alignof(Error) > 1);

std::uint64_t number_of(Rank rank) {
  const std::int64_t number = std::int64_t{rank.value} + 1;
  return number < 0 || number > static_cast<std::int64_t>(kMostRank)
             ? 0
             : static_cast<std::uint64_t>(number);
}

Rank rank_at(std::uint64_t word, unsigned at) {
  return Rank{static_cast<std::int32_t>(word >> at & kMostRank) - 1};
}

// The texts of such errors, as callers see them. Each thread has several and uses them in turn,
// because a caller may hold one and look at another. Never destroyed: to register a destructor
// takes memory.
constexpr std::size_t kShown = 8;
struct Shown {
  alignas(Error) std::array<std::array<std::byte, sizeof(Error)>, kShown> room;
  std::size_t next;  // Counts all that were shown.
};
thread_local constinit Shown shown{};

}  // namespace

void detail::end_process(const Error& error) noexcept {
  std::fflush(nullptr);
  const std::string text = error.to_string();
  std::fprintf(stderr, "%s\n", text.c_str());
  std::_Exit(1);
}

void detail::end_without_error() noexcept {
  end_process({Code::kInvalidArgument, "error() of a success: it has none", {}, {}});
}

Status::Word Status::keep(Error&& error) noexcept {
  const auto code = static_cast<std::uint64_t>(error.code) & kMostCode;
  if (auto* const kept = new (std::nothrow) Error(std::move(error)); kept != nullptr)
    return reinterpret_cast<Word>(kept);
  // Without memory nothing was moved. NOLINTNEXTLINE(bugprone-use-after-move)
  const auto ranks = number_of(error.rank) << kRankAt | number_of(error.peer) << kPeerAt;
  return kBare | code << kCodeAt | ranks;
}

void Status::drop(Word word) noexcept {
  if ((word & kBare) == 0) delete stored(word);
}

Error& Status::bare(Word word) noexcept {
  if (word == 0) detail::end_without_error();
  auto* const room = shown.room[shown.next % kShown].data();
  if (shown.next >= kShown) std::destroy_at(std::launder(reinterpret_cast<Error*>(room)));
  ++shown.next;
  // The text fits into the string itself.
  return *new (room) Error{static_cast<Code>(word >> kCodeAt & kMostCode), "out of memory",
                           rank_at(word, kRankAt), rank_at(word, kPeerAt)};
}

/// The caller may change the error, so it is kept from now on, if there is memory again.
Error& Status::restore() noexcept {
  Error& error = bare(word_);
  word_ = keep(std::move(error));
  // As above. NOLINTNEXTLINE(bugprone-use-after-move)
  return (word_ & kBare) == 0 ? *stored(word_) : error;
}

}  // namespace tutti
