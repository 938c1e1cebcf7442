// File: python/csrc/backend.h: a process group of torch's over Tutti.
//
// Model: every collective becomes a Job: Tutti requests over the tensors' own memory where these
// lie in a row, else over temporary buffers that are filled before and copied out after. A job that
// is called synchronously runs on the caller's thread and is over when the call returns; else it is
// started, and Tutti's progress thread carries it on. Jobs take place in the order in which they
// are issued, which has to be the same on every rank.
//
// Tensors of CUDA devices go onto streams instead (devices.h, backend_devices.cc): synchronous
// calls onto the caller's current one, others onto the group's own.
//
// Threads: any may call. `issue_` puts calls in order; it is held while a synchronous one runs.
// `abort` needs no lock. Errors of use are RuntimeErrors, as gloo's are, thrown before anything is
// started; all others are DistBackendErrors (RuntimeErrors as well), thrown by a synchronous call,
// or by the Work's wait.
#pragma once
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "devices/devices.h"
#include "like_gloo.h"
#include "messages.h"
#include "store_rendezvous.h"
#include "tensors.h"
#include "tutti/communicator.h"
#include "work.h"

namespace tutti::python {

/// How a process is called when ranks are listed (TorchBackend::get_reconfigure_handle).
inline constexpr const char* kHandlePrefix = "tutti:";

class TorchBackend : public LikeGloo {
 public:
  template <class T>
  using Ptr = c10::intrusive_ptr<T>;
  using WorkPtr = Ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;

  /// Joins the ranks that meet at the store. Collective. Throws a DistBackendError that names the
  /// ranks that did not come within the options' time limit.
  static Ptr<TorchBackend> create(const Ptr<c10d::Store>& store, int rank, int size,
                                  const Ptr<Options>& options);
  /// Joins nobody yet: `reconfigure` says which ranks there are.
  static Ptr<TorchBackend> create_apart(const Ptr<c10d::Store>& store, int rank, int size,
                                        const Ptr<Options>& options);
  ~TorchBackend() override;

  const std::string getBackendName() const override { return options_->backend; }
  Ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  void setTimeout(std::chrono::milliseconds timeout) override;
  c10d::ErrorType getError() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors,
                              const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                    const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs,
                 const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                  const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits,
                        const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs,
                   const c10d::AllToAllOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) override;

  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;

  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return number_; }

  /// Joins the ranks' devices before the first call needs it. Collective.
  void eagerConnectSingleDevice(at::Device device) override;

  Ptr<c10d::Backend> split(const Ptr<c10d::Store>& store, const std::vector<int>& ranks,
                           const Ptr<c10d::Backend::Options>& options) override;
  void abort() override;
  void shutdown() override;

  // After a failure (backend_recovery.cc). Only torch 2.10 and newer call the first two, which are
  // not marked as overrides for older ones.
  // NOLINTBEGIN(modernize-use-override,clang-diagnostic-suggest-override)
  virtual bool supportsShrinking() const { return true; }
  /// A group of the ranks that are left, which all call it. If ranks were lost that are not in
  /// `ranks_to_exclude`, it fails on all of them with a DistBackendError that names the first.
  virtual Ptr<c10d::Backend> shrink(const std::vector<int64_t>& ranks_to_exclude,
                                    int shrink_flags = 0,
                                    const Ptr<c10d::Backend::Options>& opts_override = nullptr);
  // NOLINTEND(modernize-use-override,clang-diagnostic-suggest-override)
  /// The ranks that have died or don't come, ascending: the same on all that call it, which are all
  /// that are left. With those in `exclude`, which do not call it, alike on all others.
  std::vector<int> lost_ranks(const std::vector<int>& exclude);
  /// The collectives on CPU tensors that all members had completed when lost_ranks of this group
  /// was called last, or shrink of the group that this one was made from; -1: neither was.
  std::int64_t completed() const { return completed_.load(std::memory_order_relaxed); }
  /// The bitwise and of the flags of all ranks that are left, which all call it. Waits.
  std::uint64_t agree(std::uint64_t flags);
  /// Why calls on CPU tensors can work no more; none: they can, or a call that another thread has
  /// under way will say it. Never waits. Any thread.
  std::optional<std::string> health();
  /// Ends all calls of the group on all ranks, which are to shrink. Any thread.
  void revoke(const std::string& reason);
#ifdef C10D_BACKEND_HAS_RECONFIGURE  // torch 2.14 and newer.
  bool supportsReconfigure() const override { return true; }
  /// Names this process among the group's. It stays the same.
  c10d::ReconfigureHandle get_reconfigure_handle() const override { return handle_; }
  /// Leaves the ranks of before, ends what is under way with them, and joins those that the handles
  /// name, which meet at the group's store. A list orders them; a set is ordered by the ranks that
  /// they were made with. Over when it returns. A RuntimeError if the handles make no sense or the
  /// uuid was used before; a DistBackendError if a rank does not come within the time limit: then
  /// the group has no ranks until the next one.
  WorkPtr reconfigure(const c10d::ReconfigureOptions& options) override;
#endif

  /// Averages a tensor of float32 over all ranks, as the wire says (tutti/wire.h). A RuntimeError
  /// if there is no wire of that name.
  WorkPtr all_reduce_on_wire(const at::Tensor& tensor, const std::string& wire);
  /// Runs a synchronous call of several collectives on CPU tensors, in the order of calls.
  void run(const Operation& operation, const std::function<Status(Communicator&)>& call);

  /// The communicator's description of itself: transport, memory, plans.
  std::string describe();
  /// What this rank's collectives on CPU tensors did and waited for; and the latest of them, as
  /// JSON. A DistBackendError if the group is shut down.
  Counters counters();
  std::string flight_record();

 private:
  /// What outlives the backend: works may be over after it.
  struct Shared {
    std::atomic<int> under_way{0};
    std::atomic<c10d::ErrorType> error{c10d::ErrorType::SUCCESS};
    const std::string group;
    void note(Code code);
  };
  /// One operation on its way. The requests point into the tensors and lists that it keeps.
  struct Job {
    Job(const Operation& which, std::chrono::milliseconds limit)
        : operation(which), timeout(limit) {}
    const Operation& operation;
    std::chrono::milliseconds timeout;
    std::weak_ptr<Communicator> communicator;  // That it is made for.
    std::vector<Request> requests;
    Tensors inputs, outputs, keeps;
    std::list<std::vector<std::size_t>> lists;              // They stay where they are.
    std::vector<std::pair<at::Tensor, at::Tensor>> copies;  // At the end, to the first.
    Ptr<TorchWork> work;  // Null where the caller waits, and nobody else asks.
    std::uint64_t number = 0;
    std::shared_ptr<Shared> shared;
    std::mutex mutex;
    std::size_t open = 0;
    std::optional<Error> error;
  };
  using JobPtr = std::shared_ptr<Job>;
  /// A message of a batch, which is sent or received at its end.
  struct DeviceMessage {
    const Operation& operation;
    at::Tensor tensor;
    int peer;
    bool sends;
    std::uint64_t number;
  };
  /// What was called since startCoalescing: either on the CPU or on devices.
  struct Coalesced {
    std::vector<Ptr<TorchWork>> works;
    std::vector<Ptr<DeviceWork>> on_devices;
    std::vector<DeviceMessage> messages;
  };
  /// The ranks that there are now, and the ways to them.
  struct Members {
    std::shared_ptr<Communicator> collectives;  // Null before there are any, and after they ended.
    std::shared_ptr<Messages> messages;
    std::shared_ptr<Devices> devices;
    std::string prefix;  // Begins their keys in the store.
  };
  TorchBackend(Ptr<c10d::Store> store, int rank, int size, const Ptr<Options>& options);
  void join(StoreRendezvous& rendezvous, const std::string& what);
  void set_members(std::string prefix, Communicator collectives, Communicator messages);
  void abort_members(const std::string& reason);
  void end_members(std::chrono::milliseconds patience, const std::string& reason);
  void meet(StoreRendezvous& rendezvous, const std::vector<std::string>& handles,
            std::chrono::milliseconds limit, const std::string& what);

  /// Call it before sizes are compared with the number of ranks: other ranks are noticed by
  /// issue().
  JobPtr make_job(const Operation& operation, std::chrono::milliseconds timeout);
  /// Null if the job is over and nobody needs to know more than that: torch's functions take that
  /// of calls that are not asynchronous.
  WorkPtr issue(const JobPtr& job, bool async);
  void run(Communicator& communicator, const JobPtr& job);
  void start(Communicator& communicator, const JobPtr& job);
  static void note(const JobPtr& job, const Status& status);
  static std::exception_ptr finish(const JobPtr& job);
  void limit(const Ptr<TorchWork>& work, std::chrono::milliseconds timeout);
  std::chrono::milliseconds limit() const { return timeout_.load(std::memory_order_relaxed); }
  WorkPtr message(const Operation& operation, Tensors& tensors, int peer, int tag, bool sends);
  void join(const Ptr<TorchWork>& work);
  Ptr<TorchWork> make_work(const Operation& operation, const Tensors& inputs, Tensors outputs,
                           std::uint64_t number);
  // On devices (backend_devices.cc).
  static std::optional<c10::Device> device_of(const Job& job);
  WorkPtr issue_on_device(const JobPtr& job, c10::Device device, bool async);
  WorkPtr message_on_device(const DeviceMessage& message);
  Ptr<DeviceWork> start_on_device(const DeviceMessage& message);
  WorkPtr end_coalescing_on_devices(const Coalesced& coalesced);
  Ptr<DeviceWork> make_device_work(const Operation& operation, const Tensors& inputs,
                                   Tensors outputs, std::uint64_t number,
                                   std::vector<DeviceEnd> ends);
  struct DeviceCall {
    const Operation& operation;
    const Tensors& inputs;
    const Tensors& outputs;
    std::uint64_t number;
    std::chrono::milliseconds limit;
    Devices& devices;
  };
  Ptr<DeviceWork> end_on_device(const DeviceCall& call, const Devices::LinkPtr& link,
                                const c10::Stream& stream, Tensors tensors);
  [[noreturn]] void fail_on_device(const Operation& operation, std::uint64_t number,
                                   const Error& error);

  static std::string describe(const char* name, std::uint64_t number, const Shared& shared);
  Members members();
  std::shared_ptr<Communicator> communicator();
  std::shared_ptr<Devices> devices();  // Throws if there are no ranks yet.
  Error no_ranks();
  std::shared_ptr<Communicator> to_recover(const char* function);

  // The parts that jobs are made of (collectives.cc).
  static at::Tensor input_of(Job& job, const at::Tensor& tensor);
  static at::Tensor output_of(Job& job, const at::Tensor& tensor);
  static void copy_parts(Job& job, const at::Tensor& flat, const Tensors& list);
  static at::Tensor flat_output(Job& job, const Tensors& list);
  static at::Tensor flat_input(Job& job, const Tensors& list);
  // `in_place` false: uses a copy, for tensors that overlap others of the job.
  void add_all_reduce(Job& job, const at::Tensor& tensor, const c10d::ReduceOp& op,
                      bool in_place = true) const;
  // `parts`: what the tensor with a block for each rank is made of, if it was a list.
  void add_all_gather(Job& job, const at::Tensor& output, const at::Tensor& input,
                      const Tensors& parts = {}) const;
  void add_reduce_scatter(Job& job, const at::Tensor& output, const at::Tensor& input,
                          const c10d::ReduceOp& op, const Tensors& parts = {}) const;
  void check_list(const Tensors& list, const at::Tensor& own, const char* operation,
                  const char* which, bool may_differ = false) const;
  Rank root_of(std::int64_t root, const char* operation) const;
  WorkPtr all_gather_lists(const JobPtr& job, std::vector<Tensors>& outputs, Tensors& inputs,
                           bool async);

  const Ptr<c10d::Store> store_;
  const bool stands_in_;
  const std::chrono::milliseconds longest_;  // The group's limit, which its communicators have.
  // The limit of operations that name none. relaxed: no other memory depends on it.
  std::atomic<std::chrono::milliseconds> timeout_;
  std::mutex issue_;  // Orders calls of collectives.
  std::mutex mutex_;  // Guards the next four.
  Members members_;
  bool shut_down_ = false;
  std::optional<Coalesced> coalesced_;  // While calls are being joined.
  std::set<std::int64_t> uuids_;        // That reconfigure was called with.
  std::atomic<std::uint64_t> number_{0};
  std::atomic<std::int64_t> completed_{-1};  // relaxed: a number alone.
  std::atomic<std::uint64_t> monitored_{0};
  std::atomic<std::uint64_t> splits_{0};
  std::shared_ptr<Shared> shared_;
  const std::string handle_;
};

}  // namespace tutti::python
