// How connections come about, and how links between hosts fail.
#include <algorithm>
#include <cerrno>

#include "virtual/kernel/network_parts.h"

namespace tutti::virt::net {
namespace {

constexpr std::uint16_t kFirstFreePort = 20000;

int listener_at(int host, std::uint32_t ip, std::uint16_t port) {
  for (int i = world->first_bound; i >= 0; i = at(i).next_bound) {
    const Socket& socket = at(i);
    if (socket.state == Socket::State::kListening && socket.host == host &&
        socket.own_port == port && (socket.own_ip == 0 || socket.own_ip == ip))
      return i;
  }
  return -1;
}

void arrive_at_listener(int client) {
  Socket& from = at(client);
  const int host = host_of(from.peer_ip, from.host);
  const int listener = host < 0 ? -1 : listener_at(host, from.peer_ip, from.peer_port);
  const int made = listener < 0 ? -1 : new_socket();
  if (made < 0) {
    from.refused = true;
    return;
  }
  clear(made);
  Socket& socket = at(made);
  Socket& door = at(listener);
  socket.state = Socket::State::kOpen;
  socket.process = door.process;
  socket.host = host;
  socket.user_timeout_ms = door.user_timeout_ms;
  socket.own_ip = from.peer_ip;
  socket.own_port = from.peer_port;
  socket.peer_ip = from.own_ip;
  socket.peer_port = from.own_port;
  socket.peer = client;
  from.peer = made;
  (door.waiting_last >= 0 ? at(door.waiting_last).next : door.waiting_first) = made;
  door.waiting_last = made;
  mark(door);
}

bool port_is_taken(const Socket& mine, std::uint32_t ip, std::uint16_t port) {
  for (int i = world->first_bound; i >= 0; i = at(i).next_bound) {
    const Socket& socket = at(i);
    if (&socket == &mine || socket.host != mine.host || socket.own_port != port) continue;
    if (socket.own_ip == 0 || ip == 0 || socket.own_ip == ip) return true;
  }
  return false;
}

std::uint16_t free_port(const Socket& socket, std::uint32_t ip) {
  for (;;) {
    auto& next = world->next_port[socket.host];
    if (next < kFirstFreePort) next = kFirstFreePort;
    const std::uint16_t port = next++;
    if (!port_is_taken(socket, ip, port)) return port;
  }
}

}  // namespace

int host_of(std::uint32_t ip, int own_host) {
  if ((ip >> 24) == 127) return own_host;
  const int host = static_cast<int>(ip & 0xff) - 1;
  const int rail = static_cast<int>(ip >> 16 & 0xff);
  const bool known = (ip >> 24) == 10 && (ip >> 8 & 0xff) == 0 && host >= 0 &&
                     host < world->parameters.hosts && rail < world->parameters.rails;
  return known ? host : -1;
}

void on_connecting(int client) {
  Socket& socket = at(client);
  const int host = host_of(socket.peer_ip, socket.host);
  if (host >= 0 && blocked(socket, host) > world->now) {
    const Time give_up = socket.waits_since + timeout_of(socket);
    if (world->now >= give_up) return break_off(socket, ETIMEDOUT);
    virt::add_event(std::min(give_up, std::max(world->now + kFirstRepeat, blocked(socket, host))),
                    Event::Kind::kSocket, client, socket.generation);
    return;
  }
  if (!socket.reached) {
    socket.reached = true;
    arrive_at_listener(client);
    const Time back = host < 0 ? world->now + kFirstRepeat : arrival(host, socket.host, 0);
    virt::add_event(back == kNever ? world->now + kFirstRepeat : back, Event::Kind::kSocket, client,
                    socket.generation);
    return;
  }
  if (socket.refused) return break_off(socket, host < 0 ? EHOSTUNREACH : ECONNREFUSED);
  socket.state = Socket::State::kOpen;
  deliver(socket);
}

std::uint32_t address_of(int host, int rail) {
  return 10U << 24 | static_cast<std::uint32_t>(rail) << 16 | static_cast<std::uint32_t>(host + 1);
}

void leave_port(int socket) {
  for (std::int32_t* next = &world->first_bound; *next >= 0; next = &at(*next).next_bound) {
    if (*next != socket) continue;
    *next = at(socket).next_bound;
    return;
  }
}

int bind(int socket, std::uint32_t ip, std::uint16_t port) {
  Socket& mine = at(socket);
  if (ip != 0 && host_of(ip, mine.host) != mine.host) return -EADDRNOTAVAIL;
  if (port == 0)
    port = free_port(mine, ip);
  else if (port_is_taken(mine, ip, port))
    return -EADDRINUSE;
  if (mine.own_port == 0) {
    mine.next_bound = world->first_bound;
    world->first_bound = socket;
  }
  mine.own_ip = ip;
  mine.own_port = port;
  return 0;
}

int listen(int socket) {
  if (at(socket).own_port == 0) (void)bind(socket, 0, 0);
  at(socket).state = Socket::State::kListening;
  return 0;
}

int accept(int socket, int process) {
  Socket& door = at(socket);
  if (door.state != Socket::State::kListening) return -EINVAL;
  const int first = door.waiting_first;
  if (first < 0) return -EAGAIN;
  door.waiting_first = at(first).next;
  if (door.waiting_first < 0) door.waiting_last = -1;
  at(first).next = -1;
  at(first).process = process;
  at(first).accepted = true;
  at(first).references = 1;
  return first;
}

int connect(int socket, std::uint32_t ip, std::uint16_t port) {
  Socket& mine = at(socket);
  if (mine.state == Socket::State::kOpen) return -EISCONN;
  if (mine.state != Socket::State::kFresh) return -EALREADY;
  const int host = host_of(ip, mine.host);
  leave_port(socket);
  if (mine.own_ip == 0)
    mine.own_ip =
        (ip >> 24) == 127 ? kLoopback : address_of(mine.host, host < 0 ? 0 : ip >> 16 & 0xff);
  if (mine.own_port == 0) mine.own_port = free_port(mine, mine.own_ip);
  mine.peer_ip = ip;
  mine.peer_port = port;
  mine.state = Socket::State::kConnecting;
  mine.called = true;
  mine.waits_since = world->now;
  const Time when = host < 0 ? world->now + kFirstRepeat : arrival(mine.host, host, 0);
  virt::add_event(std::min(when, world->now + kSecond), Event::Kind::kSocket, socket,
                  mine.generation);
  return -EINPROGRESS;
}

void cut(int host, Time until) {
  for (int other = 0; other < world->parameters.hosts; ++other) {
    if (other == host) continue;
    Time& there = world->blocked_until[host][other];
    there = world->blocked_until[other][host] = std::max(there, until);
  }
  for (int i = 0; i < world->socket_count; ++i) {
    Socket& socket = at(i);
    if (socket.state != Socket::State::kOpen) continue;
    const int other = host_of(socket.peer_ip, socket.host);
    if (other == socket.host || (socket.host != host && other != host)) continue;
    if (socket.waits_since == kNever) socket.waits_since = world->now;
    virt::add_event(socket.waits_since + timeout_of(socket), Event::Kind::kSocket, i,
                    socket.generation);
    for (int at_segment = socket.first; at_segment >= 0;
         at_segment = world->segments[at_segment].next) {
      Segment& segment = world->segments[at_segment];
      if (segment.at <= world->now) continue;
      segment.at = until == kNever ? kNever : std::max(segment.at, until + kFirstRepeat);
      socket.latest = segment.at;
    }
    if (socket.latest != kNever && socket.latest > world->now)
      virt::add_event(socket.latest, Event::Kind::kSocket, i, socket.generation);
  }
}

bool reset_one() {
  int candidates = 0, chosen = -1;
  for (int i = 0; i < world->socket_count; ++i) {
    const Socket& socket = at(i);
    if (socket.state != Socket::State::kOpen || socket.peer < 0 || !socket.accepted ||
        socket.user_timeout_ms == 0 || at(socket.peer).state != Socket::State::kOpen)
      continue;
    if (world->random.below(static_cast<std::uint64_t>(++candidates)) == 0) chosen = i;
  }
  if (chosen < 0) return false;
  const int peer = at(chosen).peer;
  break_off(at(chosen), ECONNRESET);
  break_off(at(peer), ECONNRESET);
  return true;
}

}  // namespace tutti::virt::net
