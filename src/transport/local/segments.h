// File: transport/local/segments.h: this process's memory that peers may map.
//
// A segment is a range of this process's address space that is backed by a memfd: made by
// mem_alloc, or registered by the user, or a communicator's region. Peers get the memfd over an
// abstract unix socket, from a thread that sleeps until somebody asks. They have to be the same
// user and to know the token, which travels through the rendezvous; nothing has a name in a file
// system, so nothing is left behind.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/fd.h"
#include "tutti/rendezvous.h"
#include "tutti/result.h"

namespace tutti::segments {

/// A mapped range [begin, end) that is exported as `id`.
struct Segment {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
  std::uint64_t id = 0;
};

/// How to reach a process's segments: plain data, it travels as bytes.
struct Address {
  std::array<char, 40> socket{};  // Name of the abstract socket.
  std::array<std::byte, 16> token{};
};

/// A mapping of a peer's segment; unmapped with the object.
class Mapping {
 public:
  Mapping() = default;
  /// `base`: page aligned.
  Mapping(Fd fd, std::byte* base, std::size_t bytes, std::size_t offset, bool has_flag);
  std::byte* data() const { return memory_.get() + segment().offset; }
  std::size_t bytes() const { return segment().bytes; }
  int fd() const { return fd_.get(); }
  /// False once its owner has freed the segment.
  bool alive() const;
  void close_fd() { fd_.reset(); }
  /// Whether `alive` can tell; if not, is_exported can.
  bool has_flag() const { return segment().has_flag; }

 private:
  /// The segment within the mapping.
  struct Extent {
    std::size_t bytes, offset;
    bool has_flag;  // A page behind the segment tells whether it is still in use.
    void operator()(std::byte* base) const;
  };
  const Extent& segment() const { return memory_.get_deleter(); }

  Fd fd_;
  std::unique_ptr<std::byte, Extent> memory_;
};

/// Memory of this process that peers can map, zeroed. Any thread.
Result<void*> allocate(std::size_t bytes);
Status free(void* data);
/// Exports memory that the user mapped from `fd` at `offset`.
Status add(void* data, std::size_t bytes, int fd, std::size_t offset);
Status remove(void* data);
/// The id under which allocate or add exported `data`.
std::uint64_t id_of(const void* data);

/// Changes with every allocate, free, add and remove.
std::uint64_t version();
/// All segments, sorted by address.
std::vector<Segment> snapshot();

/// Descriptors that peers may have though this process maps nothing of them: what devices export.
/// They are kept, and closed by `withdraw`; their ids follow one another, from the one returned.
std::uint64_t offer(const std::vector<int>& fds, const std::vector<std::size_t>& bytes);
void withdraw(std::uint64_t first, std::size_t count);

/// This process's address; starts the thread that serves it.
Result<Address> serve();

/// The owner of a segment that is asked for.
struct Owner {
  Address address;
  int rank = -1;                       // For errors; -1: not known.
  std::function<bool()> give_up = {};  // True ends the wait; may be empty.
};
/// Fetches and maps a segment of that process. kPeerFailed: it has ended; kTimeout: it does not
/// answer.
Result<Mapping> fetch(const Owner& owner, std::uint64_t id, Deadline deadline);
/// Fetches a descriptor that it offers, which the caller closes, and how many bytes it stands for.
struct Descriptor {
  int fd = -1;
  std::size_t bytes = 0;
};
Result<Descriptor> fetch_descriptor(const Owner& owner, std::uint64_t id, Deadline deadline);
/// Whether that process still exports the segment; true if it does not say.
bool is_exported(const Owner& owner, std::uint64_t id, Deadline deadline);

}  // namespace tutti::segments
