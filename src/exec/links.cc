#include "exec/links.h"

namespace tutti::exec {

Links::Links(const Region& region, int me, RemoteLink* remote_link)
    : lanes_(region.config().lanes), me_(me), remote_link_(remote_link) {
  const int ranks = static_cast<int>(region.config().rank_count);
  const bool fence = region.config().fence != 0;
  const std::size_t ends = static_cast<std::size_t>(ranks) * lanes_;
  outboxes_.resize(ends);
  inboxes_.resize(ends);
  multicast_in_.resize(ends);
  signals_.resize(ends);
  multicast_out_.resize(lanes_);
  for (std::size_t lane = 0; lane < lanes_; ++lane) {
    const int l = static_cast<int>(lane);
    const Ring mine = region.multicast(me, l);
    std::vector<Counter*> tails;
    std::vector<Doorbell*> bells;
    for (int peer = 0; peer < ranks; ++peer) {
      if (peer == me) continue;
      Doorbell* bell = &region.doorbell(peer);
      tails.push_back(&mine.tails[peer]);
      bells.push_back(bell);
      const Ring out = region.channel(me, peer, l), in = region.channel(peer, me, l);
      const Ring shared = region.multicast(peer, l);
      outboxes_[index(peer, lane)] = Outbox(out, {out.tails}, {bell}, fence);
      inboxes_[index(peer, lane)] = Inbox(in, in.tails, bell, fence);
      multicast_in_[index(peer, lane)] = Inbox(shared, &shared.tails[me], bell, fence);
      signals_[index(peer, lane)] =
          SignalPair(&region.signal(me, peer, l), &region.signal(peer, me, l), bell, fence);
    }
    multicast_out_[lane] = Outbox(mine, std::move(tails), std::move(bells), fence);
  }
}

}  // namespace tutti::exec
