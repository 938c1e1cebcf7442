// File: virtual/kernel/network_parts.h: what the files of the virtual network share.
#pragma once
#include "virtual/kernel/network.h"
#include "virtual/kernel/scheduler.h"

namespace tutti::virt::net {

inline constexpr Time kFirstRepeat = 200 * kMilli;  // Linux sends a lost packet again after that.

inline Socket& at(int socket) { return world->sockets[socket]; }

/// The socket's processes look again at what they poll.
void mark(const Socket& socket);
/// The host that has this address; -1: none. Loopback is `own_host`.
int host_of(std::uint32_t ip, int own_host);
/// Until when nothing passes between the socket's host and that one.
Time blocked(const Socket& socket, int other_host);
/// How long the socket's system sends again what nobody acknowledges.
Time timeout_of(const Socket& socket);
/// When a packet of so many bytes arrives; kNever: it does not.
Time arrival(int from, int to, std::uint64_t bytes);
/// An unused socket; -1: the world has no more.
int new_socket();
/// Makes it a new one, for which events of the old one mean nothing.
void clear(int socket);
void break_off(Socket& socket, int error);
/// What has arrived by now becomes readable.
void deliver(Socket& socket);
void on_connecting(int client);
/// Others may bind to the socket's port.
void leave_port(int socket);

}  // namespace tutti::virt::net
