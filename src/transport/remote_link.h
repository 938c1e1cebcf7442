// File: transport/remote_link.h: the link that carries a rank's part of a region to ranks that
// share no memory with it.
//
// Such a rank has a replica of the region of its own. The link writes whatever the rank writes
// there for others (call lines, packets, slots, counters) into their replicas, in the same order.
// So the executor goes on with loads and stores, and only has to
//   publish    say that the call lines of a call are complete,
//   flush      now and then, while there is enough to do without looking for something new,
//   progress   call this whenever it looks for something new,
//   pending    not leave while something that it wrote is still on this side,
//   sleep      sleep here, where the network can wake it.
//
// Zero-copy send: a slot that only others read may be sent from where its bytes are already
// (`send_zero_copy`), and is not written. The sender must not write there before the bytes are sent
// (`is_sending`). Zero-copy receive: a receiver may say where a slot's bytes are to go (`expect`);
// if they come in time they are placed there, and not in the slot (`placed`). A call that ends
// before all of that is over `keep`s the memory.
//
// Threads: as the endpoint it belongs to, one at a time; `wake` any.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

/// The parts of a call that a rank publishes.
struct Published {
  std::uint64_t call = 0;
  std::uint32_t lines = 0;
  std::uint32_t packet_bytes = 0;  // In the call's packet slot.
  bool blocks = false;             // The call's table of blocks belongs to it.
  /// The one rank that reads them; -1: all do. The others get the first line alone, which says what
  /// call it is: they may be done with the call, and take nothing from the network any more.
  int reader = -1;
};

class RemoteLink {
 public:
  using SendBuffer = std::span<const std::byte>;

  virtual ~RemoteLink() = default;
  /// At most kCalls may be under way: region.h's limit on running ahead ensures it. Sends it at
  /// once, as `flush` does: others wait for it.
  virtual void publish(const Published& what) = 0;
  /// Sends the record of this rank's latest calls to that rank. Published calls carry their entries
  /// with them; this is for a rank that waits in a call in which it publishes nothing.
  virtual void show_calls(int to) = 0;
  /// Sends what this rank wrote, and does not look for what came, which would be a system call.
  virtual void flush() = 0;
  /// Sends what this rank wrote and writes what came. True if anything moved.
  virtual bool progress() = 0;
  /// Something that this rank wrote has not been given to the network yet. Data for a peer that has
  /// gone does not count.
  virtual bool pending() const = 0;
  /// The same, but only of what it wrote for that rank.
  virtual bool pending_to(int rank) const = 0;
  /// Frames for that rank that the network has taken since the start. If this stands still while
  /// something is pending, the rank takes nothing.
  virtual std::uint64_t taken_for(int rank) const = 0;

  /// Whether slots for that rank can be lent; with kAll, those for all ranks.
  virtual bool allows_zero_copy(int to) const = 0;
  static constexpr int kAll = -1;
  /// The slot at `position` of the ring to that rank, or to all, which is committed next, lies at
  /// `data`.
  virtual void send_zero_copy(int to, std::size_t lane, std::uint64_t position,
                              SendBuffer data) = 0;
  /// Whether anything of this memory is lent and not sent.
  virtual bool is_sending(SendBuffer data) const = 0;
  /// The slot at `position` of the ring from that rank, or of what it sends to all, is the next one
  /// to be read, and may go to `to` if it has so many bytes.
  virtual void expect(int from, bool to_all, std::size_t lane, std::uint64_t position,
                      std::span<std::byte> to) = 0;
  /// Where the bytes of a slot that has come went, if they are not in it; else null.
  virtual const std::byte* placed(int from, bool to_all, std::size_t lane,
                                  std::uint64_t position) const = 0;
  /// Copies what is lent and not sent, and expects nothing: all memory is free for anything.
  virtual void keep() = 0;

  /// Sends all that this rank wrote for the others, then tells them that it leaves and how far it
  /// came (RankStatus::left, which is set). Takes at most `longest`. The link's destructor waits
  /// until the network has delivered all of this, within the same limit.
  virtual void say_left(std::chrono::milliseconds longest) = 0;

  /// Sleeps until the network has something for us, takes something from us, or `wake` is called.
  virtual void sleep(std::chrono::nanoseconds longest) = 0;
  virtual void wake() = 0;
};

}  // namespace tutti
