// File: virtual/kernel/network.h: streams between virtual hosts (TCP over IPv4).
//
// The host of number h has the addresses 10.R.0.h+1, one for each rail R, and 127.0.0.1. What is
// sent arrives in order, after a time that the seed draws: latency, jitter, bandwidth, and for a
// lost packet the time until it is sent again. A link may be cut for a while, or for good; then
// both ends find out by TCP_USER_TIMEOUT. Functions return what the kernel would: a value or a
// negative error number. Only the holder of the baton calls them.
#pragma once
#include <sys/uio.h>

#include <cstdint>

#include "virtual/kernel/world.h"

namespace tutti::virt::net {

inline constexpr std::uint32_t kLoopback = 0x7f000001;
std::uint32_t address_of(int host, int rail);

int create(int process);
int bind(int socket, std::uint32_t ip, std::uint16_t port);
int listen(int socket);
int accept(int socket, int process);
int connect(int socket, std::uint32_t ip, std::uint16_t port);
long send(int socket, const iovec* parts, std::size_t count);
long receive(int socket, const iovec* parts, std::size_t count, bool peek);
int shut_down(int socket);
void hold(int socket);
void release(int socket);

/// An eventfd is a socket without a network.
int create_event(int process, std::uint64_t count);
bool is_event(int socket);
void add_event(int socket, std::uint64_t count);
std::uint64_t take_event(int socket);

/// poll's events that hold now.
short ready(int socket);
bool any_ready(const PollItem* items, int count);

int unacknowledged(int socket);
int retransmits(int socket);
int take_error(int socket);

void on_event(int socket, std::uint32_t generation);

/// Nothing passes between this host and others until then; kNever: for good.
void cut(int host, Time until);
/// Resets one connection between two ranks, of those that have more than one; false: there is none.
bool reset_one();

}  // namespace tutti::virt::net
