// File: python/csrc/messages.h: send and receive with tags, over a communicator of their own.
//
// A message is two of Tutti's: a header (tag and bytes), then the bytes. While somebody receives,
// one receive from any rank is open for the next header. A header finds the first receive that was
// asked for its sender and tag, and the bytes go straight into that tensor; those that nobody has
// asked for yet are kept until somebody does. As every open receive is used up by one header, none
// is left when nobody receives any more.
//
// The communicator is apart from that of the collectives because a blocking collective has its
// communicator to itself. Everything on it is started, nothing blocks.
#pragma once
#include <atomic>
#include <deque>
#include <list>
#include <memory>
#include <mutex>

#include "tutti/communicator.h"
#include "work.h"

namespace tutti::python {

class Messages : public std::enable_shared_from_this<Messages> {
 public:
  explicit Messages(Communicator communicator);

  /// `tensor` is contiguous. The works complete by themselves; errors come out of them.
  void send(const at::Tensor& tensor, int to, int tag, const c10::intrusive_ptr<TorchWork>& work);
  /// `from` < 0: any rank. `tensor` is contiguous.
  void recv(const at::Tensor& tensor, int from, int tag, const c10::intrusive_ptr<TorchWork>& work);

  /// Ends all that is under way, on every rank. Any thread, any time, twice too.
  void abort(const std::string& reason);
  /// Takes nothing more. Call once; not on the progress thread.
  void close();
  bool busy();
  int ranks() const { return ranks_; }

 private:
  struct Header {
    std::uint64_t bytes = 0;
    std::int64_t tag = 0;
  };
  struct Posted {
    int from, tag;
    at::Tensor tensor;
    c10::intrusive_ptr<TorchWork> work;
  };
  /// On its way, or here and not asked for.
  struct Arrival {
    int from, tag;
    at::Tensor data;  // Where it goes.
    bool here = false;
    std::optional<Error> mismatch;
    c10::intrusive_ptr<TorchWork> work;  // Null: nobody has asked for it yet.
    at::Tensor wanted;                   // Copied there at the end, if it is defined.
  };
  using ArrivalPtr = std::shared_ptr<Arrival>;
  static constexpr int kMostMessageRanks = 4096;

  void send_to_self(const at::Tensor& tensor, int tag);
  void listen();
  void on_header(const Header& header, int from, const Status& status);
  ArrivalPtr match(const Header& header, int from);
  void on_data(const ArrivalPtr& arrival, const Status& status);
  static void deliver(const Arrival& arrival);
  void fail_all(const Error& error);
  void note_needed();
  std::string name(const TorchWork& work, bool sends, int peer, int tag) const;
  Error closed() const { return {Code::kAborted, "the process group was shut down", me_}; }

  const Rank me_;
  const int ranks_;
  std::mutex mutex_;  // Guards all below but needed_.
  std::shared_ptr<Communicator> communicator_;
  std::list<Posted> posted_;
  std::deque<ArrivalPtr> arrivals_;  // That nobody has asked for.
  std::size_t sending_ = 0;
  bool listening_ = false;
  std::optional<Error> failure_;
  /// By rank: somebody receives from it, so it has to live.
  std::vector<std::atomic<bool>> needed_;
};

}  // namespace tutti::python
