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
  requester_ = rails[0].link->parts().me < rails[0].link->parts().peer;
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
  at.unsent = at.probed = false;
  at.received.reset();
}

void Renewal::drop(std::size_t rail) { give_up(attempts_[rail]); }

/// An attempt begins: when the next one may.
void Renewal::pause(Attempt& at, Clock::time_point now) {
  // What breaks soon after it was taken each time is tried less and less often.
  if (at.taken != Clock::time_point{} && now - at.taken > times_.longest_pause)
    at.pause = times_.first_pause;
  at.taken = {};
  at.next = now + at.pause;
  // The responder follows the requester's pauses, and only bounds how often it does.
  if (requester_) at.pause = std::min(2 * at.pause, times_.longest_pause);
}

bool Renewal::may_begin(Attempt& at, Clock::time_point now) const {
  if (now < at.next) return false;
  if (at.rail.device->look_again()) return true;
  at.next = now + times_.first_pause;  // A device takes some time to tell its port.
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
  at.own = {.type = requester_ ? Type::kRequest : Type::kResponse,
            .serial = at.serial,
            .from = address_of(device),
            .psn = draw_psn(),
            .pairs = static_cast<std::uint8_t>(at.pairs.size())};
  for (std::size_t i = 0; i < at.pairs.size(); ++i) at.own.numbers[i] = at.pairs[i]->qp_num;
  return true;
}

/// With the queue pairs of the peer's message. False: they can't be connected.
bool Renewal::connect(Attempt& at, Clock::time_point now) {
  Device& device = *at.rail.device;
  const RenewalMessage peer = *std::exchange(at.received, {});
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

void Renewal::request(Attempt& at, Clock::time_point now) {
  if (at.link != nullptr) return;
  if (at.pairs.empty()) {
    if (!may_begin(at, now)) return;
    ++at.serial;
    if (!make_pairs(at, now)) return;
    at.received.reset();  // It responds to an earlier one.
    at.unsent = true;
    at.next_send = now + times_.repeat;
  } else if (at.received) {
    if (connect(at, now)) at.link->greet(now);
    at.unsent = false;
  } else if (now >= at.next_send) {
    at.unsent = true;
    at.next_send = now + times_.repeat;
  }
}

void Renewal::respond(Attempt& at, Clock::time_point now) {
  if (!at.received || (at.received->serial == at.serial && at.link == nullptr)) {
    at.received.reset();  // An attempt that was given up here.
    return;
  }
  if (at.received->serial == at.serial) {
    at.received.reset();
    at.unsent = true;
    return;
  }
  if (!may_begin(at, now)) return;
  const RenewalMessage peer = *at.received;
  give_up(at);
  at.serial = peer.serial;
  if (!make_pairs(at, now)) return;
  at.received = peer;
  at.unsent = connect(at, now);
}

/// Whether the link works in both directions, and the peer knows that it does or will learn it.
bool Renewal::tried(Attempt& at, Clock::time_point now) const {
  if (requester_) return at.link->ready() && !at.link->probing();
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
  if (requester_)
    request(at, now);
  else
    respond(at, now);
  if ((at.link != nullptr || !at.pairs.empty()) && now >= at.end) give_up(at);
  return nullptr;
}

std::size_t Renewal::next_message(std::size_t rail, std::span<std::byte, kMostMessageBytes> into) {
  Attempt& at = attempts_[rail];
  if (!std::exchange(at.unsent, false)) return 0;
  encode(at.own, into.first<kRenewalMessageBytes>());
  return kRenewalMessageBytes;
}

bool Renewal::take_message(std::size_t rail, std::span<const std::byte> bytes) {
  Attempt& at = attempts_[rail];
  const auto message =
      parse_renewal_message(bytes, at.rail.link->pair_count(), at.rail.device->chosen().port.layer);
  if (!message || message->type != (requester_ ? Type::kResponse : Type::kRequest)) return false;
  if (requester_) {
    if (message->serial > at.serial) return false;  // There was no such request.
    if (message->serial == at.serial && !at.pairs.empty()) at.received = message;
  } else if (message->serial >= at.serial &&
             (!at.received || message->serial >= at.received->serial)) {
    at.received = message;
  }
  return true;
}

}  // namespace tutti::verbs
