// File: virtual/kernel/files.h: what the replaced calls share: descriptors, mappings, clocks.
//
// A virtual socket has a descriptor of the real kernel as its place holder, so that numbers, limits
// and leaks of descriptors are real. Files, memfds, pipes, Unix sockets and eventfds stay the real
// kernel's; only waiting for them is virtual.
#pragma once
#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <ctime>

#include "virtual/kernel/world.h"

namespace tutti::virt {

Time clock_base(clockid_t clock);
/// A moment of a virtual clock in the world's time.
Time to_virtual(clockid_t clock, const timespec& moment);
std::int32_t virtual_pid(int process);
std::int32_t real_pid(std::int32_t pid);
void random_bytes(void* to, std::size_t bytes);

namespace files {

/// A descriptor of the real kernel that stands for a virtual socket. -1 and errno: the socket is
/// released. A negative socket is an error number.
int place_holder(int socket, int flags);
/// The virtual socket behind a descriptor; -1: none.
int socket_of(int fd);
/// What this descriptor of this process is; a kind of Descriptor.
std::int32_t& descriptor(int fd);
/// Whether the socket of the descriptor must not block.
bool is_nonblocking(int fd);
/// For addresses in memory that processes share: the file and the place in it.
bool shared_place(const void* address, std::uint64_t key[2]);
/// Takes a descriptor out of all of this process's epoll sets.
void forget_in_epolls(int fd);
/// Drops all virtual sockets of a process that has ended.
void close_all(Process& process);
/// The child of a fork has all descriptors of its parent.
void copy_all(const Process& from, Process& to);
/// Waits until `fd` has one of these events; false: not until then.
bool wait_for(int fd, short events, Time until);

}  // namespace files
}  // namespace tutti::virt
