// File: support/rendezvous.h: a rendezvous that stands before another one, and a port for a store.
#pragma once
#include "bootstrap/sockets.h"
#include "tutti/rendezvous.h"

namespace tutti::test {

/// Passes all on to the target. Tests derive from it to look in, or to do harm.
class Forwarding : public Rendezvous {
 public:
  explicit Forwarding(Rendezvous& target) : target_(target) {}
  Status put(std::string_view key, std::span<const std::byte> value) override {
    return target_.put(key, value);
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    return target_.get(key, deadline);
  }
  Status fail(const Error& error) override { return target_.fail(error); }
  void enter(Rank me) override { target_.enter(me); }
  void leave() override { target_.leave(); }
  bool kept_here() const override { return target_.kept_here(); }
  void kept_by(Rank keeper) override { target_.kept_by(keeper); }

 protected:
  Rendezvous& target_;
};

/// A port of loopback that nobody listens at now; 0: there is none.
inline int free_port() {
  const auto listening =
      bootstrap::listen_at("127.0.0.1", 0, Deadline::after(std::chrono::seconds(10)));
  return listening ? listening->port : 0;
}

}  // namespace tutti::test
