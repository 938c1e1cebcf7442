// File: transport/verbs/renewal.h: makes the links with one peer anew that were lost, once both
// ports work again (net::Renewal). docs/decisions/0064-lost-rails-of-rdma.md says why so.
//
// The rank with the lower number asks, the other one answers:
//
//   asks:     makes queue pairs · says their numbers (kAsk), again until there is an answer
//   answers:  makes queue pairs, connects them · says their numbers (kAnswer), after each ask
//   asks:     connects its own · greets over them
//   answers:  has the greeting · probes · once that was acknowledged, greets and takes the link
//   asks:     has the greeting · takes the link
//
// So the asking rank sends only to queue pairs that are connected, as the answer says so; and the
// answering one sends only after it has heard over them. What a rank takes has carried something in
// both directions. The answering rank has it first, and its peer follows at its next look. Words
// may be lost with the rail that carries them: asks are repeated, and each is answered. An ask of a
// later attempt (its serial is higher) ends an earlier one. Each attempt has a deadline, and the
// next one begins after a pause that doubles; a rail that was kept for a while has short ones
// again.
//
// Memory stays registered, and the peer's stays where it was: old queue pairs were destroyed on
// both sides before a rail is settled, so nothing of theirs is written there. Packets of theirs
// that are still in the network meet other counts of packets, drawn at random.
//
// One thread at a time. Nothing waits.
#pragma once
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "transport/net/rails.h"
#include "transport/verbs/link.h"
#include "transport/verbs/renewal_words.h"

namespace tutti::verbs {

struct RenewalTimes {
  std::chrono::milliseconds first_pause{500};       // From the beginning of an attempt to the next
  std::chrono::milliseconds longest_pause{30'000};  // one, if it was in vain.
  std::chrono::milliseconds repeat{500};            // Between two asks.
  std::chrono::milliseconds patience{4000};         // For the peer's next step.
};

class Renewal final : public net::Renewal {
 public:
  struct Rail {
    Device* device = nullptr;  // Both outlive it;
    Link* link = nullptr;      // this one until another one was taken.
  };
  /// Called for each link that Rails are about to take.
  using Taken = std::function<void(std::size_t rail, Link& link)>;

  /// `rails`: at least one, all with the same peer.
  Renewal(const std::vector<Rail>& rails, Taken taken, const RenewalTimes& times = {});

  std::unique_ptr<net::Carrier> renew(std::size_t rail) override;
  void drop(std::size_t rail) override;
  std::size_t say(std::size_t rail, std::span<std::byte, kMostWordBytes> into) override;
  bool hear(std::size_t rail, std::span<const std::byte> words) override;

 private:
  using Clock = std::chrono::steady_clock;
  using What = RenewalWords::What;

  struct Attempt {
    Rail rail;
    std::uint32_t serial = 0;  // This attempt's; the latest one's if there is none.
    std::vector<Pair> pairs;   // Made, and not connected yet.
    std::uint32_t inline_bytes = 0;
    std::unique_ptr<Link> link;         // Connected, and being tried.
    bool probed = false;                // By the answering rank: it was greeted.
    RenewalWords own;                   // What this rank says of it,
    bool owed = false;                  // and is to say now.
    std::optional<RenewalWords> heard;  // The peer's words that were not dealt with.
    Clock::time_point end, say_next;
    // Between attempts.
    Clock::time_point next{};
    std::chrono::milliseconds pause{};
    Clock::time_point taken{};
  };

  void pause(Attempt& at, Clock::time_point now);
  bool may_begin(Attempt& at, Clock::time_point now) const;
  bool make_pairs(Attempt& at, Clock::time_point now);
  bool connect(Attempt& at, Clock::time_point now);
  void ask(Attempt& at, Clock::time_point now);
  void answer(Attempt& at, Clock::time_point now);
  bool tried(Attempt& at, Clock::time_point now) const;
  static void give_up(Attempt& at);

  RenewalTimes times_;
  bool asks_;
  std::vector<Attempt> attempts_;  // By rail.
  Taken taken_;
};

}  // namespace tutti::verbs
