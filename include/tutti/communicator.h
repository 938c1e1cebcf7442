// File: tutti/communicator.h: the C++ API. `tutti.h` is the same in C.
//
//   auto comm = tutti::Communicator::from_environment();  // torchrun, mpirun, srun, tutti run
//   if (!comm) return fail(comm.error());
//   auto status = comm->all_reduce(in, out, count, tutti::DataType::kFloat32,
//                                  tutti::ReduceOp::kSum);
//
// Threading: different communicators may be used by different threads at the same time. Calls on
// one communicator may come from any thread, one at a time; they take place in the order in which
// they were made, and that order has to be the same on every rank. `abort` may be called at any
// time.
//
// Buffers: any alignment. A buffer that a rank does not have (the input of a broadcast or scatter,
// the output of a reduce or gather, but at the root; rank 0's output of an exclusive scan) may be
// null, and is left as it is. In place means: input and output of the same number of blocks are
// equal (all-reduce, broadcast, reduce, all-to-all, scans); else the smaller is the rank's own
// block of the larger (all-gather, gather: input == output + rank * count elements; reduce-scatter,
// scatter: output == input + rank * count elements). Any other overlap is an error of the caller. A
// count of 0 is legal and synchronises nothing.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/counters.h"
#include "tutti/export.h"
#include "tutti/rendezvous.h"
#include "tutti/result.h"
#include "tutti/settings.h"
#include "tutti/types.h"
#include "tutti/wire.h"

namespace tutti {

/// An operation with its parameter. Only kPreMulSum has one: this rank's scale.
struct Reduction {
  ReduceOp op = ReduceOp::kSum;
  double scale = 1;
  Reduction() = default;
  Reduction(ReduceOp which) : op(which) {}
  static Reduction pre_mul_sum(double scale) {
    Reduction reduction(ReduceOp::kPreMulSum);
    reduction.scale = scale;
    return reduction;
  }
};

/// Blocks of different sizes in a buffer that has one for each rank: by rank, elements and where
/// they start, in elements from the start of the buffer. Without offsets they follow one another.
/// Both ends of a block have to give it the same count: a mismatch is an error on every rank.
struct Blocks {
  std::span<const std::size_t> counts;
  std::span<const std::size_t> offsets;
};

/// The arguments of any collective, for code that treats all of them alike.
struct Request {
  Collective collective = Collective::kAllReduce;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;  // Elements of a block, see Collective.
  DataType type = DataType::kUint8;
  Reduction reduction = {};  // For collectives that reduce.
  Rank root{0};              // For rooted collectives.
  /// For collectives with a block for each rank: blocks differ in size. Then these describe the
  /// buffers with a block for each rank, and `count` is the size of this rank's one block, if it
  /// has one.
  bool vector_variant = false;
  Blocks input_blocks = {}, output_blocks = {};
  /// For this call alone, goes before Settings::algorithm: an algorithm's name, "name:2" to repeat
  /// its lanes twice, "packet", or "^name" for any but that. Alike on all ranks. Read before the
  /// call returns.
  std::string_view algorithm = {};
  /// For kPreMulSum in a DeviceCommunicator: this rank's scale, of `type`, in memory of its device.
  /// The kernel reads it in the order of the stream, in place of `reduction.scale`; so it has to
  /// stay until the call is done.
  const void* device_scale = nullptr;
  /// How values travel, see wire.h: for float32, blocks of one size, and any operation but the
  /// bitwise ones; in host memory only. Alike on all ranks. Plain: as Settings::wire says, which is
  /// for sums and averages of all-reduces alone.
  Wire wire = {};
};

class DeviceCommunicator;  // device_communicator.h
struct Shrunk;

/// A collective that was started. Copies share it. The buffers stay the library's until it is done.
class TUTTI_API Work {
 public:
  struct State;
  Work() = default;
  explicit Work(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// Sleeps until it is done. kTimeout leaves it running; it can be waited for again. A message of
  /// a Group begins at its end: kInvalidArgument for the thread that has it open.
  Status wait();
  Status wait(std::chrono::nanoseconds timeout);
  /// True once it is done (also when it failed; `wait` then says how).
  bool test() const;
  /// Calls `callback` with the outcome, once: now if the work is done, else on the progress thread
  /// or on the thread that ends its Group. On the progress thread, waiting for work is an error,
  /// and a communicator that the callback destroys goes after its last call. An exception of the
  /// callback is logged and dropped.
  void then(std::function<void(const Status&)> callback);

 private:
  std::shared_ptr<State> state_;
};

/// A collective that is checked once and made many times, on the same buffers, whose contents
/// change: MPI's persistent collectives (MPI-4.0, 6.12), and the shortest way to a small call.
/// Ranks need not prepare alike: a rank that makes the same call in another way makes the same
/// call. Threads: its calls are calls of its communicator.
class TUTTI_API Prepared {
 public:
  struct Parts;
  explicit Prepared(std::unique_ptr<Parts> parts);
  Prepared(Prepared&&) noexcept;
  Prepared& operator=(Prepared&&) noexcept;
  ~Prepared();
  /// As Communicator::call. kInvalidArgument once its communicator has gone, and on one that was
  /// moved from.
  Status run();
  /// As Communicator::start. It may be started again before the work is done where the buffers
  /// allow it; calls take place in the order in which they were started.
  Result<Work> start();

 private:
  std::unique_ptr<Parts> parts_;
};

/// A communicator, as one rank sees it. The head of this file has its rules for threads and
/// buffers.
/// It has more than 20 functions: each collective has a blocking and a started form.
class TUTTI_API Communicator {
 public:
  struct State;

  /// Joins the ranks that meet at `rendezvous`. Collective. `name` keeps apart communicators made
  /// from the same rendezvous. `settings.timeout` bounds each wait; the error names the ranks that
  /// never came.
  static Result<Communicator> create(Rendezvous& rendezvous, Rank me, int rank_count,
                                     const Settings& settings = {},
                                     std::string_view name = "world");
  static Result<Communicator> create(const UniqueId& id, Rank me, int rank_count,
                                     const Settings& settings = {});
  /// From what the launcher left in the environment (see LaunchInfo); a process started alone is
  /// rank 0 of 1.
  static Result<Communicator> from_environment();
  /// `rank_count` communicators in this process, for ranks that are threads.
  static Result<std::vector<Communicator>> in_process(int rank_count,
                                                      const Settings& settings = {});

  /// One that was moved from has rank -1 of 0, and its calls are kInvalidArgument.
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  ~Communicator();

  Rank rank() const;
  int rank_count() const;

  // Blocking collectives. Host memory; counts in elements (see Collective for what count means).
  Status all_reduce(const void* input, void* output, std::size_t count, DataType type,
                    Reduction reduction) {
    return call(Collective::kAllReduce, input, output, count, type, reduction);
  }
  Status reduce_scatter(const void* input, void* output, std::size_t count, DataType type,
                        Reduction reduction) {
    return call(Collective::kReduceScatter, input, output, count, type, reduction);
  }
  Status all_gather(const void* input, void* output, std::size_t count, DataType type) {
    return call(Collective::kAllGather, input, output, count, type);
  }
  Status broadcast(const void* input, void* output, std::size_t count, DataType type, Rank root) {
    return call(Collective::kBroadcast, input, output, count, type, {}, root);
  }
  Status reduce(const void* input, void* output, std::size_t count, DataType type,
                Reduction reduction, Rank root) {
    return call(Collective::kReduce, input, output, count, type, reduction, root);
  }
  Status gather(const void* input, void* output, std::size_t count, DataType type, Rank root) {
    return call(Collective::kGather, input, output, count, type, {}, root);
  }
  Status scatter(const void* input, void* output, std::size_t count, DataType type, Rank root) {
    return call(Collective::kScatter, input, output, count, type, {}, root);
  }
  Status all_to_all(const void* input, void* output, std::size_t count, DataType type) {
    return call(Collective::kAllToAll, input, output, count, type);
  }
  /// Over the ranks 0 ... this one: the last rank's result is the all-reduce's. kAvg divides by the
  /// rank count on every rank.
  Status scan(const void* input, void* output, std::size_t count, DataType type,
              Reduction reduction) {
    return call(Collective::kScan, input, output, count, type, reduction);
  }
  /// Over the ranks below this one; rank 0 gets nothing.
  Status exclusive_scan(const void* input, void* output, std::size_t count, DataType type,
                        Reduction reduction) {
    return call(Collective::kExclusiveScan, input, output, count, type, reduction);
  }

  // The same with blocks of different sizes, see Blocks. In all-gather and reduce-scatter all ranks
  // know all sizes, and this rank's own is counts[rank]. The lists are read before the call
  // returns.
  Status all_gather_v(const void* input, void* output, const Blocks& blocks, DataType type);
  Status reduce_scatter_v(const void* input, const Blocks& blocks, void* output, DataType type,
                          Reduction reduction);
  /// Never in place.
  Status all_to_all_v(const void* input, const Blocks& input_blocks, void* output,
                      const Blocks& output_blocks, DataType type);
  /// Only the root needs to know `blocks`.
  Status gather_v(const void* input, std::size_t count, void* output, const Blocks& blocks,
                  DataType type, Rank root);
  Status scatter_v(const void* input, const Blocks& blocks, void* output, std::size_t count,
                   DataType type, Rank root);

  /// Any of these.
  Status call(const Request& request);
  /// The same, to be made later and often. Not collective, and nothing is sent. What the request
  /// points to is copied, but for the buffers. kInvalidArgument as of `call`.
  Result<Prepared> prepare(const Request& request);
  /// Returns once every rank has called it.
  Status barrier();

  // Messages between two ranks. Both ends name the same count, type and tag; those with one tag
  // from one rank to another arrive in the order in which they were sent. They order nothing but
  // each other: a message and a collective may come in any order on its two ends. `send` may return
  // before the message was received, or not: two ranks that send to each other do so in a Group, or
  // start their messages. What comes before a receive asks for its tag is kept while one for
  // another tag waits, up to Settings::unexpected_bytes. A receive has its deadline from when it
  // was made, or the one before it with its tag ended; other tags do not make it longer.
  Status send(const void* data, std::size_t count, DataType type, Rank to, Tag tag = {});
  Status recv(void* data, std::size_t count, DataType type, Rank from, Tag tag = {});
  Result<Work> start_send(const void* data, std::size_t count, DataType type, Rank to,
                          Tag tag = {});
  Result<Work> start_recv(void* data, std::size_t count, DataType type, Rank from, Tag tag = {});
  /// From whichever other rank sends first with that tag while no receive that names it asks for
  /// that. `from` is set before the work is done. kPeerFailed once all other ranks have ended, or
  /// one of those that are `needed`: flags by rank, which may change meanwhile. Both have to live
  /// until it is done.
  Result<Work> start_recv_any(void* data, std::size_t count, DataType type, Rank& from,
                              Tag tag = {}, const std::atomic<bool>* needed = nullptr);

  // The same, asynchronous, on the process's progress thread; kSystem if that can't start.
  Result<Work> start_all_reduce(const void* input, void* output, std::size_t count, DataType type,
                                Reduction reduction) {
    return start(Collective::kAllReduce, input, output, count, type, reduction);
  }
  Result<Work> start_reduce_scatter(const void* input, void* output, std::size_t count,
                                    DataType type, Reduction reduction) {
    return start(Collective::kReduceScatter, input, output, count, type, reduction);
  }
  Result<Work> start_all_gather(const void* input, void* output, std::size_t count, DataType type) {
    return start(Collective::kAllGather, input, output, count, type);
  }
  Result<Work> start_broadcast(const void* input, void* output, std::size_t count, DataType type,
                               Rank root) {
    return start(Collective::kBroadcast, input, output, count, type, {}, root);
  }
  Result<Work> start_reduce(const void* input, void* output, std::size_t count, DataType type,
                            Reduction reduction, Rank root) {
    return start(Collective::kReduce, input, output, count, type, reduction, root);
  }
  Result<Work> start_gather(const void* input, void* output, std::size_t count, DataType type,
                            Rank root) {
    return start(Collective::kGather, input, output, count, type, {}, root);
  }
  Result<Work> start_scatter(const void* input, void* output, std::size_t count, DataType type,
                             Rank root) {
    return start(Collective::kScatter, input, output, count, type, {}, root);
  }
  Result<Work> start_all_to_all(const void* input, void* output, std::size_t count, DataType type) {
    return start(Collective::kAllToAll, input, output, count, type);
  }
  Result<Work> start_scan(const void* input, void* output, std::size_t count, DataType type,
                          Reduction reduction) {
    return start(Collective::kScan, input, output, count, type, reduction);
  }
  Result<Work> start_exclusive_scan(const void* input, void* output, std::size_t count,
                                    DataType type, Reduction reduction) {
    return start(Collective::kExclusiveScan, input, output, count, type, reduction);
  }
  /// Any, also with blocks of different sizes; their lists are copied.
  Result<Work> start(const Request& request);

  /// Registers memory, so that peers read and write it without a copy; mem_alloc registers its own.
  /// `data` must be a shared mapping of the file `fd` (a memfd; open for writing) at `offset`. The
  /// file must not shrink while it is registered: peers that touch the missing part get SIGBUS.
  Status register_memory(void* data, std::size_t bytes, int fd, std::size_t offset);
  Status deregister_memory(void* data);

  /// A communicator of the ranks that gave the same color, ordered by key, then by rank.
  /// Collective, and never in a Group. A negative color takes part and gets an error of code
  /// kInvalidArgument: it belongs to none.
  Result<Communicator> split(int color, int key);
  /// A communicator of the same ranks, whose calls do not mix with this one's: for a library that
  /// is handed a communicator. Collective, and never in a Group.
  Result<Communicator> duplicate();
  /// By rank of this communicator, which rank that is in `other`; -1: it is not in it. Both come
  /// from one communicator, by any number of splits, duplicates, shrinks and grows. Not collective.
  /// kInvalidArgument on one that was moved from.
  Result<std::vector<Rank>> ranks_in(const Communicator& other) const;

  /// Ends every call on this communicator, on every rank, with kAborted, also a `shrink` or `agree`
  /// that waits. Any thread, any time, twice too. A rank of another host learns of it when it
  /// waits: a call that needs nothing of the others, as that of a broadcast's root, may still be ok
  /// there.
  void abort(std::string_view reason);

  // After a failure. An error of any call ends a communicator on all ranks; the ranks that are left
  // may go on with `shrink`. These functions are calls as far as threads are concerned, but for
  // `revoke`, and not to be made in a Group.

  /// Whether calls can still work: ok, or the error that ended this communicator, or kPeerFailed
  /// with the first rank that has died or left. Looks at once and waits for nobody; not collective,
  /// and it changes nothing: other ranks learn of a death in their next call. While started work is
  /// under way, which looks at its peers itself, only an error that has ended it is found.
  Status health() const;
  /// As `abort`, with kRevoked: for a rank that has seen an error, or wants a new set of ranks, and
  /// that wants all others to stop and call `shrink`. Any thread, any time.
  void revoke(std::string_view reason);
  /// A communicator of the ranks that are left, in their order, with the settings of this one. All
  /// of them call it, after a failure, an abort or a revoke, or on a communicator that works. The
  /// others are ranks that have died or left, that don't call it within `settings.timeout`, or that
  /// are `excluded`, alike on all that call it; excluded ranks do not call it. It does not matter
  /// which ranks have died, nor how many; ranks that die meanwhile are left out as well. This
  /// communicator stays what it is: one that works can be used on, but by no rank that was left
  /// out because it died or did not come. Takes at most twice `settings.timeout`. kPeerFailed on a
  /// rank that the others have left out; kMismatch if ranks exclude different ranks or call `agree`
  /// instead; else what keeps a communicator from being made. Two halves that can't reach each
  /// other each get one: see whether Shrunk::members are enough.
  Result<Shrunk> shrink(std::span<const Rank> excluded = {});
  /// The bitwise and of the `flags` of all ranks that are left: the same on all of them, also if
  /// ranks die meanwhile, and on a communicator that has failed. The ranks that call it,
  /// its limit and its errors are as with `shrink`.
  Result<std::uint64_t> agree(std::uint64_t flags);
  /// A communicator of these ranks, which keep their numbers, and of new ones from rank_count() to
  /// `rank_count` - 1, which call `create` with the same rendezvous and name or the same id, and
  /// with these settings. All ranks call it. This communicator stays as it is. Errors as of
  /// `create`; and why this communicator is over, if it is, or becomes so meanwhile: kPeerFailed if
  /// one of its ranks dies before all have come.
  Result<Communicator> grow(Rendezvous& rendezvous, int rank_count,
                            std::string_view name = "world");
  Result<Communicator> grow(const UniqueId& id, int rank_count);

  /// What this communicator is: ranks, transports, shared memory, waiting, plans and their cost.
  std::string describe() const;

  /// What this rank has done and for which ranks it waited. Not collective; any thread. Some
  /// 0.1 ms. Times are 0 within the first millisecond of a communicator.
  Result<Counters> counters() const;
  /// This rank's latest 4,096 calls and messages as JSON, as TUTTI_FLIGHT has them. Not collective;
  /// any thread.
  Result<std::string> flight_record() const;

  /// Which way this call would go, how long that takes by what was measured or by estimate, why not
  /// the others, and what would be faster: lines of at most 100 columns. Nothing is called; buffers
  /// may be null (then they are plain ones). Not collective. kInvalidArgument as of call().
  Result<std::string> explain(const Request& request) const;

 private:
  friend struct Insides;  // comm/state.h, for what comes with the library.
  explicit Communicator(std::unique_ptr<State> state);
  /// The error, if it was moved from.
  Status usable(std::string_view function) const;
  Status call(Collective collective, const void* input, void* output, std::size_t count,
              DataType type, const Reduction& reduction = {}, Rank root = Rank{0});
  Result<Work> start(Collective collective, const void* input, void* output, std::size_t count,
                     DataType type, const Reduction& reduction = {}, Rank root = Rank{0});
  std::unique_ptr<State> state_;
};

/// What `shrink` makes.
struct Shrunk {
  Communicator communicator;
  std::vector<Rank> members;  // By rank in `communicator`, the rank before.
  /// Collectives and barriers of the communicator before that every member completed, counting
  /// those with elements. A member may have completed more: the results of the next one are there
  /// on some of them only.
  std::uint64_t completed = 0;
};

/// Started between construction and `end`, collectives and messages on one or more communicators
/// take place as one: none blocks before `end`, so one thread can drive several ranks, and messages
/// may be named in any order. Messages to oneself are matched in the group. May not be nested on a
/// thread.
class TUTTI_API Group {
 public:
  Group();
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  /// Waits for all; the first error of any.
  Status end();

 private:
  bool open_ = true;
};

/// Memory that peers on the same host can map: collectives on it need no copy. `bytes` > 0; aligned
/// to a page. Any thread. Not tied to a communicator.
TUTTI_API Result<void*> mem_alloc(std::size_t bytes);
/// Frees what mem_alloc returned; an error for anything else.
TUTTI_API Status mem_free(void* data);

}  // namespace tutti
