// File: transport/verbs/renewal.h: makes the links with one peer anew that were lost, once both
// ports work again (net::Renewal). docs/decisions/0064-lost-rails-of-rdma.md says why so.
//
// The rank with the lower number is the requester, the other one the responder:
//
//   requester: makes queue pairs · sends a request, again until there is a response
//   responder: makes queue pairs, connects them · sends a response to each request
//   requester: connects its own · greets over them
//   responder: has the greeting · probes · once that was acknowledged, greets and takes the link
//   requester: has the greeting · takes the link
//
// A request and a response (RenewalMessage) have the numbers of their sender's queue pairs. The
// requester sends only to queue pairs that are connected, as the response says so. The responder
// sends only after it has received over them. What a rank takes has carried something in both
// directions. The responder has it first, and its peer follows at its next look. Messages may be
// lost with the rail that carries them: a request is repeated, and each one gets a response. A
// request of a later attempt (its serial is higher) ends an earlier one. Each attempt has a
// deadline, and the next one begins after a pause that doubles; a rail that was kept for a while
// has short ones again.
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
#include "transport/verbs/renewal_message.h"

namespace tutti::verbs {

struct RenewalTimes {
  std::chrono::milliseconds first_pause{500};       // From the beginning of an attempt to the next
  std::chrono::milliseconds longest_pause{30'000};  // one, if it was in vain.
  std::chrono::milliseconds repeat{500};            // Between two requests.
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
  std::size_t next_message(std::size_t rail, std::span<std::byte, kMostMessageBytes> into) override;
  bool take_message(std::size_t rail, std::span<const std::byte> bytes) override;

 private:
  using Clock = std::chrono::steady_clock;
  using Type = RenewalMessage::Type;

  struct Attempt {
    Rail rail;
    std::uint32_t serial = 0;  // This attempt's; the latest one's if there is none.
    std::vector<Pair> pairs;   // Made, and not connected yet.
    std::uint32_t inline_bytes = 0;
    std::unique_ptr<Link> link;              // Connected, and being tried.
    bool probed = false;                     // By the responder: it was greeted.
    RenewalMessage own;                      // This rank's message,
    bool unsent = false;                     // which is to be sent now.
    std::optional<RenewalMessage> received;  // The peer's message that was not dealt with.
    Clock::time_point end, next_send;
    // Between attempts.
    Clock::time_point next{};
    std::chrono::milliseconds pause{};
    Clock::time_point taken{};
  };

  void pause(Attempt& at, Clock::time_point now);
  bool may_begin(Attempt& at, Clock::time_point now) const;
  bool make_pairs(Attempt& at, Clock::time_point now);
  bool connect(Attempt& at, Clock::time_point now);
  void request(Attempt& at, Clock::time_point now);
  void respond(Attempt& at, Clock::time_point now);
  bool tried(Attempt& at, Clock::time_point now) const;
  static void give_up(Attempt& at);

  RenewalTimes times_;
  bool requester_;
  std::vector<Attempt> attempts_;  // By rail.
  Taken taken_;
};

}  // namespace tutti::verbs
