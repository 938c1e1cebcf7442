// Streams: what is sent, what arrives and when, and how they end.
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "virtual/kernel/network_parts.h"

namespace tutti::virt::net {
namespace {

constexpr int kUsualTimeoutMs = 900'000;  // Without TCP_USER_TIMEOUT.
constexpr int kMostLost = 3;              // One packet, in turn.
constexpr Time kOwnHostLatency = 5 * kMicro;
// What the ends of a connection between ranks send while they prove themselves:
// base/net/handshake.h.
constexpr std::uint64_t kConnectorProves = 64 + 32, kAcceptorProves = 80 + 32;

}  // namespace

void mark(const Socket& socket) {
  world->network_changed = true;
  if (!socket.shared) {
    if (socket.process >= 0) world->processes[socket.process].dirty = true;
    return;
  }
  for (int i = 0; i < world->process_count; ++i) world->processes[i].dirty = true;
}

Time blocked(const Socket& socket, int other_host) {
  return world->blocked_until[socket.host][other_host];
}

Time timeout_of(const Socket& socket) {
  const int ms = socket.user_timeout_ms > 0 ? socket.user_timeout_ms : kUsualTimeoutMs;
  return static_cast<Time>(ms) * kMilli;
}

/// How long a packet of so many bytes takes between these hosts; kNever: it does not arrive.
Time arrival(int from, int to, std::uint64_t bytes) {
  const Parameters& is = world->parameters;
  Random& random = world->random;
  if (from == to) return world->now + kOwnHostLatency + random.below(kOwnHostLatency);
  const Time until = world->blocked_until[from][to];
  if (until == kNever) return kNever;
  Time when = std::max(world->now, until) + is.latency + random.below(is.jitter + 1) +
              bytes * kMilli / is.bytes_per_ms;
  if (until > world->now) when += random.below(2 * (until - world->now) + 1);  // The next repeat.
  int lost = 0;
  for (Time repeat = kFirstRepeat;
       is.loss_one_in != 0 && lost < kMostLost && random.one_in(is.loss_one_in); repeat *= 2) {
    when += repeat;
    ++lost;
  }
  return when;
}

int new_socket() {
  if (world->free_socket >= 0) {
    const int socket = world->free_socket;
    world->free_socket = at(socket).next;
    return socket;
  }
  return world->socket_count < world->most_sockets ? world->socket_count++ : -1;
}

void clear(int socket) {
  const std::uint32_t generation = at(socket).generation + 1;
  at(socket) = Socket{};
  at(socket).generation = generation;
}

namespace {

void free_segments(Socket& socket) {
  while (socket.first >= 0) {
    Segment& segment = world->segments[socket.first];
    const std::int32_t next = segment.next;
    segment.next = world->free_segment;
    world->free_segment = socket.first;
    socket.first = next;
  }
  socket.last = -1;
}

/// A piece on its way to `to`; false: the world has no room for it.
bool add_segment(int to, Segment::Kind kind, Time when, const std::byte* data,
                 std::uint32_t bytes) {
  int index = world->free_segment;
  if (index >= 0)
    world->free_segment = world->segments[index].next;
  else if (world->segment_count < world->most_segments)
    index = world->segment_count++;
  else
    return false;
  Socket& socket = at(to);
  Segment& segment = world->segments[index];
  when = std::max(when, socket.latest);
  segment.at = when;
  segment.kind = kind;
  segment.next = -1;
  segment.bytes = bytes;
  segment.taken = 0;
  if (bytes > 0) std::memcpy(segment.data, data, bytes);
  (socket.last >= 0 ? world->segments[socket.last].next : socket.first) = index;
  socket.last = index;
  socket.queued += bytes;
  const bool is_new = when != socket.latest;
  socket.latest = when;
  if (when != kNever && is_new) virt::add_event(when, Event::Kind::kSocket, to, socket.generation);
  return true;
}

}  // namespace

void break_off(Socket& socket, int error) {
  socket.state = Socket::State::kBroken;
  socket.error = error;
  if (socket.peer >= 0) at(socket.peer).peer = -1;
  socket.peer = -1;
  mark(socket);
}

/// What has arrived by now becomes readable.
void deliver(Socket& socket) {
  std::uint32_t ready = 0;
  for (int i = socket.first; i >= 0; i = world->segments[i].next) {
    const Segment& segment = world->segments[i];
    if (segment.at > world->now) break;
    ready += segment.bytes - segment.taken;
    if (segment.kind == Segment::Kind::kEnd) socket.end_ready = true;
    if (segment.kind == Segment::Kind::kReset && socket.state == Socket::State::kOpen)
      break_off(socket, ECONNRESET);
  }
  socket.ready = ready;
  mark(socket);
  if (socket.peer >= 0) mark(at(socket.peer));  // What it sent is acknowledged.
}

namespace {

void close_stream(int index) {
  Socket& socket = at(index);
  if (socket.peer >= 0) {
    Socket& peer = at(socket.peer);
    const bool unread = socket.ready > 0, on_its_way = socket.queued > socket.ready;
    const Time when = arrival(socket.host, peer.host, 0);
    if (unread) {
      add_segment(socket.peer, Segment::Kind::kReset, when, nullptr, 0);
    } else {
      if (!socket.shut) add_segment(socket.peer, Segment::Kind::kEnd, when, nullptr, 0);
      if (on_its_way && when != kNever)
        add_segment(socket.peer, Segment::Kind::kReset,
                    when + 2 * world->parameters.latency + kMicro, nullptr, 0);
    }
    peer.peer = -1;
  }
}

/// What happens to the next packet; it is noted whether the receiver could find out. Only
/// connections between ranks have a user timeout. On others each record has a proof of its sender.
Forgery next_forgery(const Socket& from) {
  if (!world->forges) return Forgery::kNone;
  world->forges = false;
  world->network_hit = true;
  world->fault_at = std::min(world->fault_at, world->now);
  const std::uint64_t proves = from.called ? kConnectorProves : kAcceptorProves;
  world->data_hit = from.user_timeout_ms != 0 && from.sent >= proves;
  note("forges", static_cast<int>(world->parameters.faults.forgery), world->data_hit ? 1 : 0);
  return world->parameters.faults.forgery;
}

}  // namespace

int create(int process) {
  const int socket = new_socket();
  if (socket < 0) return -ENFILE;
  clear(socket);
  at(socket).state = Socket::State::kFresh;
  at(socket).references = 1;
  at(socket).process = process;
  at(socket).host = world->processes[process].host;
  return socket;
}

long send(int socket, const iovec* parts, std::size_t count) {
  Socket& mine = at(socket);
  if (mine.error != 0) return -take_error(socket);
  if (mine.state == Socket::State::kConnecting) return -EAGAIN;
  if (mine.state != Socket::State::kOpen || mine.shut) return -EPIPE;
  std::size_t wanted = 0;
  for (std::size_t i = 0; i < count; ++i) wanted += parts[i].iov_len;
  if (mine.peer < 0) {  // It has closed: it answers with a reset.
    const Time back = world->now + 2 * (world->parameters.latency + world->parameters.jitter);
    if (blocked(mine, host_of(mine.peer_ip, mine.host)) <= world->now)
      add_segment(socket, Segment::Kind::kReset, back, nullptr, 0);
    return static_cast<long>(wanted);
  }
  const int to = mine.peer;
  std::size_t room = world->parameters.window - std::min(world->parameters.window, at(to).queued);
  if (room == 0) return -EAGAIN;
  if (world->parameters.short_one_in != 0 && world->random.one_in(world->parameters.short_one_in))
    room = 1 + world->random.below(room);
  std::size_t sent = 0;
  const Time when = arrival(mine.host, at(to).host, std::min(wanted, room));
  Forgery forgery = next_forgery(mine);
  for (std::size_t i = 0; i < count && sent < room; ++i) {
    const auto* from = static_cast<const std::byte*>(parts[i].iov_base);
    std::size_t left = std::min(parts[i].iov_len, room - sent);
    while (left > 0) {
      const auto part =
          static_cast<std::uint32_t>(std::min<std::size_t>(left, world->segment_bytes));
      const Forgery forged = std::exchange(forgery, Forgery::kNone);
      if (forged != Forgery::kDrop && !add_segment(to, Segment::Kind::kData, when, from, part))
        return sent > 0 ? static_cast<long>(sent) : -EAGAIN;
      if (forged == Forgery::kRepeat) add_segment(to, Segment::Kind::kData, when, from, part);
      if (forged == Forgery::kChange)
        world->segments[at(to).last].data[world->random.below(part)] ^=
            static_cast<std::byte>(1U << world->random.below(8));
      from += part;
      left -= part;
      sent += part;
    }
  }
  mine.sent += sent;
  return static_cast<long>(sent);
}

long receive(int socket, const iovec* parts, std::size_t count, bool peek) {
  Socket& mine = at(socket);
  if (mine.ready == 0) {
    if (mine.error != 0) return -take_error(socket);
    if (mine.end_ready || mine.state == Socket::State::kBroken) return 0;
    return mine.state == Socket::State::kOpen || mine.state == Socket::State::kConnecting
               ? -EAGAIN
               : -ENOTCONN;
  }
  std::size_t most = mine.ready;
  if (world->parameters.short_one_in != 0 && world->random.one_in(world->parameters.short_one_in))
    most = 1 + world->random.below(most);
  std::size_t got = 0;
  for (std::size_t i = 0; i < count; ++i) {
    std::size_t filled = 0;
    while (filled < parts[i].iov_len && got < most && mine.first >= 0) {
      Segment& segment = world->segments[mine.first];
      const std::size_t part = std::min<std::size_t>(
          {parts[i].iov_len - filled, most - got, segment.bytes - segment.taken});
      std::memcpy(static_cast<std::byte*>(parts[i].iov_base) + filled, segment.data + segment.taken,
                  part);
      filled += part;
      got += part;
      if (peek) break;
      segment.taken += static_cast<std::uint32_t>(part);
      if (segment.taken < segment.bytes || segment.kind != Segment::Kind::kData) continue;
      const std::int32_t done = mine.first;
      mine.first = segment.next;
      if (mine.first < 0) mine.last = -1;
      segment.next = world->free_segment;
      world->free_segment = done;
    }
    if (peek) break;
  }
  if (peek) return static_cast<long>(got);
  mine.ready -= static_cast<std::uint32_t>(got);
  mine.queued -= static_cast<std::uint32_t>(got);
  if (mine.peer >= 0) mark(at(mine.peer));
  return static_cast<long>(got);
}

int shut_down(int socket) {
  Socket& mine = at(socket);
  if (mine.state != Socket::State::kOpen) return -ENOTCONN;
  if (mine.shut) return 0;
  mine.shut = true;
  if (mine.peer >= 0)
    add_segment(mine.peer, Segment::Kind::kEnd, arrival(mine.host, at(mine.peer).host, 0), nullptr,
                0);
  return 0;
}

void hold(int socket) { ++at(socket).references; }

void release(int socket) {
  Socket& mine = at(socket);
  if (--mine.references > 0) return;
  for (int i = mine.waiting_first; i >= 0;) {
    const int next = at(i).next;
    at(i).ready = 1;  // Nobody will read what they sent: they get a reset.
    at(i).references = 1;
    release(i);
    i = next;
  }
  close_stream(socket);
  leave_port(socket);
  free_segments(mine);
  clear(socket);
  mine.next = world->free_socket;
  world->free_socket = socket;
}

int create_event(int process, std::uint64_t count) {
  const int socket = create(process);
  if (socket < 0) return socket;
  at(socket).state = Socket::State::kEvent;
  at(socket).ready = static_cast<std::uint32_t>(count);
  return socket;
}

bool is_event(int socket) { return at(socket).state == Socket::State::kEvent; }

void add_event(int socket, std::uint64_t count) {
  at(socket).ready += static_cast<std::uint32_t>(count);
  mark(at(socket));
}

std::uint64_t take_event(int socket) { return std::exchange(at(socket).ready, 0); }

short ready(int socket) {
  const Socket& mine = at(socket);
  int events = 0;
  switch (mine.state) {
    case Socket::State::kFree:
    case Socket::State::kFresh: return POLLOUT | POLLHUP;
    case Socket::State::kListening: return mine.waiting_first >= 0 ? POLLIN : 0;
    case Socket::State::kConnecting: return 0;
    case Socket::State::kEvent: return static_cast<short>(POLLOUT | (mine.ready > 0 ? POLLIN : 0));
    case Socket::State::kBroken:
      return static_cast<short>(POLLIN | POLLOUT | POLLHUP | POLLRDHUP |
                                (mine.error != 0 ? POLLERR : 0));
    case Socket::State::kOpen: break;
  }
  if (mine.ready > 0 || mine.end_ready) events |= POLLIN;
  if (mine.end_ready) events |= POLLRDHUP;
  if (mine.end_ready && mine.shut) events |= POLLHUP;
  if (mine.peer < 0 || at(mine.peer).queued < world->parameters.window) events |= POLLOUT;
  return static_cast<short>(events);
}

bool any_ready(const PollItem* items, int count) {
  for (int i = 0; i < count; ++i) {
    if (items[i].socket >= 0 &&
        (ready(items[i].socket) & (items[i].events | POLLERR | POLLHUP)) != 0)
      return true;
  }
  return false;
}

int unacknowledged(int socket) {
  const Socket& mine = at(socket);
  if (mine.peer < 0) return 0;
  const Socket& peer = at(mine.peer);
  return static_cast<int>(peer.queued - peer.ready) + (mine.shut && !peer.end_ready ? 1 : 0);
}

int retransmits(int socket) {
  const Socket& mine = at(socket);
  if (mine.waits_since == kNever || unacknowledged(socket) == 0 ||
      blocked(mine, host_of(mine.peer_ip, mine.host)) <= world->now)
    return 0;
  int count = 0;
  for (Time repeat = kFirstRepeat; world->now - mine.waits_since > repeat && count < 15; ++count)
    repeat = 2 * repeat + kFirstRepeat;
  return count;
}

int take_error(int socket) {
  const int error = at(socket).error;
  at(socket).error = 0;
  return error;
}

void on_event(int socket, std::uint32_t generation) {
  Socket& mine = at(socket);
  if (mine.generation != generation) return;
  if (mine.state == Socket::State::kConnecting) return on_connecting(socket);
  if (mine.state != Socket::State::kOpen) return;
  deliver(mine);
  if (mine.waits_since == kNever || mine.state != Socket::State::kOpen) return;
  if (blocked(mine, host_of(mine.peer_ip, mine.host)) <= world->now)
    mine.waits_since = kNever;
  else if (world->now >= mine.waits_since + timeout_of(mine))
    break_off(mine, ETIMEDOUT);
}

}  // namespace tutti::virt::net
