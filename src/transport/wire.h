// File: transport/wire.h: what carries a rank's part of a region to ranks that share no memory with
// it.
//
// Such a rank has an image of the region of its own. What it writes there for others (call lines,
// packets, slots, counters), the wire writes into their images, in the order in which it was
// written. So whoever executes calls goes on with loads and stores, and only has to
//   publish    say that the call lines of a call are complete,
//   progress   call this whenever it looks for something new,
//   pending    not leave while something that it wrote is still on this side,
//   sleep      sleep here, where the network can wake it.
//
// Threads: as the endpoint it belongs to, one at a time; `wake` any.
#pragma once
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace tutti {

/// What a rank's publishing of a call consists of.
struct Published {
  std::uint64_t call = 0;
  std::uint32_t lines = 0;
  std::uint32_t packet_bytes = 0;  // In the call's packet slot.
  bool blocks = false;             // The call's table of blocks belongs to it.
};

class Wire {
 public:
  virtual ~Wire() = default;
  /// At most kCalls may be under way: region.h's rule of who may run ahead sees to it.
  virtual void publish(const Published& what) = 0;
  /// Sends what this rank wrote and writes what came. True if anything moved.
  virtual bool progress() = 0;
  /// Something that this rank wrote has not been given to the network yet. What a peer that has
  /// gone would get does not count.
  virtual bool pending() const = 0;
  /// Sleeps until the network has something for us, takes something from us, or `wake` is called.
  virtual void sleep(std::chrono::nanoseconds longest) = 0;
  virtual void wake() = 0;
};

}  // namespace tutti
