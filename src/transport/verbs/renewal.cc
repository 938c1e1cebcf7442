#include "transport/verbs/renewal.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/log.h"

namespace tutti::verbs {
namespace {

/// Where packets begin to be counted: nowhere near those of earlier queue pairs with the same
/// number.
std::uint32_t draw_psn() {
  std::uint64_t drawn = 0;
  if (::getrandom(&drawn, sizeof(drawn), 0) != sizeof(drawn)) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    drawn = mix(static_cast<std::uint64_t>(now));
  }
  return static_cast<std::uint32_t>(drawn) & kMostPsn;
}

}  // namespace

Renewal::Renewal(const std::vector<Rail>& rails, Taken taken, const RenewalTimes& times)
    : times_(times), taken_(std::move(taken)) {
  TUTTI_CHECK(!rails.empty());
  asks_ = rails[0].link->parts().me < rails[0].link->parts().peer;
  attempts_.resize(rails.size());
  for (std::size_t i = 0; i < rails.size(); ++i) {
    attempts_[i].rail = rails[i];
    attempts_[i].pause = times_.first_pause;
  }
}

/// Nothing is left of it but its serial.
void Renewal::give_up(Attempt& at) {
  at.link.reset();
  at.pairs.clear();
  at.owed = at.probed = false;
  at.heard.reset();
}

void Renewal::drop(std::size_t rail) { give_up(attempts_[rail]); }

/// An attempt begins: when the next one may.
void Renewal::pause(Attempt& at, Clock::time_point now) {
  // What breaks soon after it was taken each time is tried less and less often.
  if (at.taken != Clock::time_point{} && now - at.taken > times_.longest_pause)
    at.pause = times_.first_pause;
  at.taken = {};
  at.next = now + at.pause;
  // The answering rank follows the other one's pauses, and only bounds how often it does.
  if (asks_) at.pause = std::min(2 * at.pause, times_.longest_pause);
}

bool Renewal::may_begin(Attempt& at, Clock::time_point now) const {
  if (now < at.next) return false;
  if (at.rail.device->look_again()) return true;
  at.next = now + times_.first_pause;  // Asking a device for its port takes it some time.
  return false;
}

/// False: they can't be made now.
bool Renewal::make_pairs(Attempt& at, Clock::time_point now) {
  pause(at, now);
  Device& device = *at.rail.device;
  const LinkParts& parts = at.rail.link->parts();
  for (std::size_t i = 0; i < at.rail.link->pair_count(); ++i) {
    ibv_qp_cap wanted = capacity(parts.depth);
    auto pair = device.make_pair(wanted);
    if (!pair) {
      log::info(log::Part::kNet, "{}: not made anew: {}", parts.where, pair.error().what);
      give_up(at);
      return false;
    }
    at.inline_bytes = wanted.max_inline_data;
    at.pairs.push_back(*std::move(pair));
  }
  at.end = now + times_.patience;
  at.own = {.what = asks_ ? What::kAsk : What::kAnswer,
            .serial = at.serial,
            .from = address_of(device),
            .psn = draw_psn(),
            .pairs = static_cast<std::uint8_t>(at.pairs.size())};
  for (std::size_t i = 0; i < at.pairs.size(); ++i) at.own.numbers[i] = at.pairs[i]->qp_num;
  return true;
}

/// With the queue pairs of the peer's words. False: they can't be connected.
bool Renewal::connect(Attempt& at, Clock::time_point now) {
  Device& device = *at.rail.device;
  const RenewalWords peer = *std::exchange(at.heard, {});
  LinkParts parts = at.rail.link->parts();
  parts.inline_bytes = at.inline_bytes;
  parts.where = link_name(parts.peer, parts.peer_host, device, parts.peer_device, peer.from);
  Status status = ok();
  for (std::size_t i = 0; i < at.pairs.size() && status; ++i) {
    status = connect_pair(device, *at.pairs[i],
                          {.peer = peer.from,
                           .peer_number = peer.numbers[i],
                           .peer_psn = peer.psn,
                           .own_psn = at.own.psn},
                          parts.where);
  }
  if (status) {
    // Completions of queue pairs that are gone must not be taken for those of the new ones, nor
    // need room in the queue beside them.
    device.drain();
    at.link = std::make_unique<Link>(device, std::move(parts), std::exchange(at.pairs, {}));
    status = at.link->begin();
  }
  if (!status) {
    log::info(log::Part::kNet, "{}: not made anew: {}", at.rail.link->where(), status.error().what);
    give_up(at);
    return false;
  }
  at.end = now + times_.patience;
  return true;
}

void Renewal::ask(Attempt& at, Clock::time_point now) {
  if (at.link != nullptr) return;
  if (at.pairs.empty()) {
    if (!may_begin(at, now)) return;
    ++at.serial;
    if (!make_pairs(at, now)) return;
    at.heard.reset();  // It answers an earlier one.
    at.owed = true;
    at.say_next = now + times_.repeat;
  } else if (at.heard) {
    if (connect(at, now)) at.link->greet(now);
    at.owed = false;
  } else if (now >= at.say_next) {
    at.owed = true;
    at.say_next = now + times_.repeat;
  }
}

void Renewal::answer(Attempt& at, Clock::time_point now) {
  if (!at.heard || (at.heard->serial == at.serial && at.link == nullptr)) {
    at.heard.reset();  // An attempt that was given up here.
    return;
  }
  if (at.heard->serial == at.serial) {
    at.heard.reset();
    at.owed = true;
    return;
  }
  if (!may_begin(at, now)) return;
  const RenewalWords peer = *at.heard;
  give_up(at);
  at.serial = peer.serial;
  if (!make_pairs(at, now)) return;
  at.heard = peer;
  at.owed = connect(at, now);
}

/// Whether the link works in both directions, and the peer knows that it does or will hear of it.
bool Renewal::tried(Attempt& at, Clock::time_point now) const {
  if (asks_) return at.link->ready() && !at.link->probing();
  if (at.probed) {
    if (at.link->probing()) return false;
    at.link->greet(now);
    return true;
  }
  if (!at.link->ready()) return false;
  at.link->probe(now);
  at.probed = true;
  at.end = now + times_.patience;
  return false;
}

std::unique_ptr<net::Carrier> Renewal::renew(std::size_t rail) {
  Attempt& at = attempts_[rail];
  Device& device = *at.rail.device;
  const auto now = Clock::now();
  device.take_events();
  if (device.failed()) {  // It would have to be opened anew, with all memory registered again.
    give_up(at);
    return nullptr;
  }
  if (at.link != nullptr) {
    device.poll();
    const bool works = !at.link->failure() && tried(at, now);
    if (works && !at.link->failure()) {
      at.rail.link = at.link.get();
      at.taken = now;
      std::unique_ptr<Link> link = std::move(at.link);
      give_up(at);
      taken_(rail, *link);
      return link;
    }
    if (const auto& failure = at.link->failure())
      log::info(log::Part::kNet, "{}: tried again", failure->what);
    if (at.link->failure()) give_up(at);
  }
  if (asks_)
    ask(at, now);
  else
    answer(at, now);
  if ((at.link != nullptr || !at.pairs.empty()) && now >= at.end) give_up(at);
  return nullptr;
}

std::size_t Renewal::say(std::size_t rail, std::span<std::byte, kMostWordBytes> into) {
  Attempt& at = attempts_[rail];
  if (!std::exchange(at.owed, false)) return 0;
  encode(at.own, into.first<kRenewalWordBytes>());
  return kRenewalWordBytes;
}

bool Renewal::hear(std::size_t rail, std::span<const std::byte> words) {
  Attempt& at = attempts_[rail];
  const auto heard =
      parse_renewal_words(words, at.rail.link->pair_count(), at.rail.device->chosen().port.layer);
  if (!heard || heard->what != (asks_ ? What::kAnswer : What::kAsk)) return false;
  if (asks_) {
    if (heard->serial > at.serial) return false;  // It was not asked.
    if (heard->serial == at.serial && !at.pairs.empty()) at.heard = heard;
  } else if (heard->serial >= at.serial && (!at.heard || heard->serial >= at.heard->serial)) {
    at.heard = heard;
  }
  return true;
}

}  // namespace tutti::verbs
