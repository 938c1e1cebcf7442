// File: transport/net/network.h: what a transport between hosts has to do: carry frames.
//
// A Carrier takes frames to one peer and brings those from it, in order; a Network has the carriers
// of a rank, knows which of them have something, and sleeps until one has. All the rest (replicas
// of the region, what is sent when, errors and their words) is in net/replicator.h and
// net/endpoint.h, for every transport alike.
//
// Threads: one at a time, but for `wake`.
#pragma once
#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/link_cost.h"
#include "base/nic_path.h"
#include "transport/net/frame.h"
#include "tutti/result.h"

namespace tutti::net {

class Carrier {
 public:
  /// Frames that it can hold at least until they are released.
  static constexpr std::size_t kMostQueued = 256;

  virtual ~Carrier() = default;
  /// Queues a frame; pending() is below kMostQueued. The pieces, at most kMostPieces, have
  /// header.bytes bytes together, and stay as they are until the frame is released, which happens
  /// in order. header.sequence is the carrier's own.
  virtual void send(FrameHeader header, std::span<const Piece> pieces) = 0;
  void send(const FrameHeader& header, Piece payload) { send(header, std::span(&payload, 1)); }
  /// Besides send(), for one frame that needs none of those before it: whenever frames have to wait
  /// for an answer of the peer, it leaves before them. So it may come several times. The payload
  /// stays as it is as long as the carrier.
  virtual void send_ahead(const FrameHeader& /*header*/, Piece /*payload*/) {}
  /// Sends and receives as much as possible without waiting; true if anything moved. `sink` gets
  /// `place` in any order, `arrived` in the order of sending. An error (kPeerFailed, or what the
  /// sink said) names the peer and the place; the carrier is of no use then.
  virtual Result<bool> progress(FrameSink& sink) = 0;
  /// The sending half of it. For carriers where looking for what came costs something; others send
  /// in `send` or in `progress`.
  virtual Result<bool> flush() { return false; }
  /// Whether something has come that progress() has not taken, where that can be known for nothing.
  virtual bool ready() const { return false; }
  /// Whether payloads may lie in any memory, not only in what a network was made for.
  virtual bool any_memory() const { return false; }
  /// The bytes to send that lay in this memory are at `to` now, and bytes that are being received
  /// into it are to go there. For carriers of any memory. A carrier that can't redirect a transfer
  /// may wait for it, and end the connection.
  virtual void moved(Piece /*from*/, std::byte* /*to*/) {}
  /// Whether a payload lies apart (transport/gpudirect_slots.h): where only the network may look at
  /// it.
  virtual bool gpudirect(Piece) const { return false; }
  /// Frames that are not released.
  virtual std::size_t pending() const = 0;
  /// Frames whose payload may still be read, by what may have to send it again; at most
  /// kMostQueued, and at least pending(). The link does not write its own memory again before the
  /// peer has announced what was there; other memory has to be `moved` before it is written.
  virtual std::size_t held() const { return pending(); }
  /// Bytes of what is pending, roughly: to choose among carriers.
  virtual std::size_t unsent_bytes() const { return 0; }
  /// "tcp: rank 3 (node7) over eth0, 10.0.0.1:40112 to 10.0.0.7:4711".
  virtual std::string where() const = 0;
  /// For a caller with another way there, now and then: why this one seems to lead nowhere; nothing
  /// while it does not.
  virtual std::optional<Error> stuck() { return std::nullopt; }
  /// Now and then, though there is no other way there: why the peer's host counts as dead; nothing
  /// while it does not.
  virtual std::optional<Error> vanished() { return std::nullopt; }
  /// Ends it at once: nothing more is sent or received, nor written to memory by a device.
  virtual void abandon() {}
  /// Nothing will be sent any more.
  virtual void leave() = 0;
  /// After leave(): whether what was sent last can't be lost any more by ending the connection.
  virtual bool left() = 0;
  /// Whether what was sent is still on its way and may yet arrive.
  virtual bool delivering() { return false; }
};

class Network {
 public:
  virtual ~Network() = default;
  /// The cost of its hops, as known when it is made, the same on all ranks; zero: no more than the
  /// transport's usual figures.
  virtual NetworkCost cost() const { return {}; }
  /// Which devices it goes by, and why.
  virtual NicsUsed nics() const { return {}; }
  /// Null: that rank is not joined by this network.
  virtual Carrier* carrier(int rank) = 0;
  /// Sets `ready[rank]` for those whose carrier may have received something; never waits. May name
  /// too many, not too few. Until the next look, carriers announce only those GPUDirect slots that
  /// had been written before this one.
  virtual void look(std::vector<bool>& ready) = 0;
  /// Sleeps until a carrier may have received something or can send what it holds, or wake().
  virtual void sleep(std::chrono::nanoseconds longest) = 0;
  /// From any thread.
  virtual void wake() = 0;
  /// That rank's carrier has failed: it is not ready any more.
  virtual void forget(int rank) = 0;
};

}  // namespace tutti::net
