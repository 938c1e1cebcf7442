// File: transport/ucx/network.h: the carriers of a rank, over one worker.
//
// Messages come to the worker, and are given to the carrier of the rank that they are from if they
// show this rank's key; all others are dropped.
#pragma once
#include <memory>
#include <vector>

#include "transport/ucx/carrier.h"

namespace tutti::ucx {

class UcxNetwork final : public net::Network {
 public:
  /// `key`: this rank's; a peer that sends it a message shows it.
  static Result<std::unique_ptr<UcxNetwork>> open(std::unique_ptr<Worker> worker, const Key& key,
                                                  int rank_count);
  ~UcxNetwork() override;
  UcxNetwork(const UcxNetwork&) = delete;
  UcxNetwork& operator=(const UcxNetwork&) = delete;

  Worker& worker() { return *worker_; }
  /// A rank that this network joins; once for each.
  UcxCarrier& add(const Ends& ends);
  std::uint64_t unauthenticated() const { return unauthenticated_; }  // Messages that were dropped.

  UcxCarrier* carrier(int rank) override { return carriers_[static_cast<std::size_t>(rank)].get(); }
  void look(std::vector<bool>& ready) override;
  void sleep(std::chrono::nanoseconds longest) override { worker_->sleep(longest); }
  void wake() override { worker_->wake(); }
  void forget(int rank) override { carrier(rank)->forget(); }

 private:
  UcxNetwork(std::unique_ptr<Worker> worker, const Key& key, int rank_count);
  static ucs_status_t on_message(void* network, const void* header, std::size_t header_bytes,
                                 void* data, std::size_t bytes, const ucp_am_recv_param_t* how);

  Key key_;
  std::uint64_t unauthenticated_ = 0;
  std::vector<std::unique_ptr<UcxCarrier>> carriers_;  // By rank; null: not joined by this.
  std::unique_ptr<Worker> worker_;  // Gone first: it calls back to all of the above.
};

}  // namespace tutti::ucx
