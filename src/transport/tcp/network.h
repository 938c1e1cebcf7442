// File: transport/tcp/network.h: the TCP connections of a rank as a network that carries frames.
#pragma once
#include <poll.h>

#include <memory>
#include <vector>

#include "base/fd.h"
#include "transport/net/network.h"
#include "transport/tcp/mesh.h"
#include "transport/tcp/stream.h"

namespace tutti::tcp {

/// Wakes a rank. It is made before ranks connect, so that all ranks learn in time if it fails.
struct Wakers {
  Fd ready_set;  // An epoll of all connections, unless they are few.
  Fd alarm;      // An eventfd: wakes the thread that sleeps.
  static Result<Wakers> make(std::size_t rank_count);
};

class TcpNetwork final : public net::Network {
 public:
  /// A rank may have several, each over an interface of its own; one without any is not joined by
  /// this network.
  static Result<std::unique_ptr<TcpNetwork>> open(Mesh mesh, Wakers wakers, std::size_t rank_count,
                                                  const NetworkCost& cost);

  NetworkCost cost() const override { return cost_; }
  net::Carrier* carrier(int rank) override {
    return carriers_[static_cast<std::size_t>(rank)].get();
  }
  void look(std::vector<bool>& ready) override;
  void sleep(std::chrono::nanoseconds longest) override;
  void wake() override;
  void forget(int rank) override;

 private:
  class Again;
  TcpNetwork(Wakers wakers, std::size_t rank_count, const NetworkCost& cost);
  bool few() const;
  Status take(Mesh mesh);
  Result<std::unique_ptr<Stream>> stream_of(Connection connection);

  std::shared_ptr<MeshBuilder> builder_;  // Renews lost connections; null: nothing does.
  std::vector<std::unique_ptr<net::Carrier>> carriers_;  // By rank; null: none.
  std::vector<std::vector<Stream*>> streams_;            // Empty once forgotten.
  bool rails_ = false;                                   // Some rank has several.
  std::int64_t next_look_at_all_ = 0;                    // Milliseconds of the coarse clock.
  NetworkCost cost_;
  Wakers wakers_;
  std::vector<pollfd> sources_;  // They end a nap; filled anew each time.
};

}  // namespace tutti::tcp
