// The calls of a rank. All ranks draw the same list from the seed; ranks differ in
// when they make a call, and one of them may make a wrong one.
#include "virtual/workload.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "tutti/communicator.h"
#include "virtual/kernel/scheduler.h"

namespace tutti::virt {
namespace {

using namespace std::chrono_literals;

enum class What : std::uint8_t { kCollective, kBarrier, kMessages, kSplit, kBatch };

struct Call {
  What what = What::kCollective;
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kInt32;
  ReduceOp op = ReduceOp::kSum;
  std::size_t count = 0;
  int root = 0;
  bool started = false, registered = false, in_place = false, on_part = false;
};

std::vector<Call> script(const Parameters& run) {
  Random random{run.seed ^ 0x7363726970740000};
  std::vector<Call> calls;
  bool parted = false;
  for (int i = 0; i < run.calls; ++i) {
    Call call;
    const std::uint64_t kind = random.below(20);
    if (kind == 0) call.what = What::kBarrier;
    if (kind == 1 || kind == 2) call.what = What::kMessages;
    if (kind == 3 && !parted) call.what = What::kSplit;
    if (kind == 4 || kind == 5) call.what = What::kBatch;
    call.collective = static_cast<Collective>(random.below(kCollectiveCount));
    call.type = random.one_in(2) ? DataType::kInt32 : DataType::kFloat32;
    constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};
    call.op = kOps[random.below(3)];
    const std::uint64_t scale = std::uint64_t{1} << random.below(17);
    const auto most = static_cast<std::uint64_t>(run.most_kib) * 256;  // Elements of 4 bytes.
    call.count = std::min(random.below(scale + 1), most);
    call.root = static_cast<int>(random.below(static_cast<std::uint64_t>(run.ranks)));
    call.started = random.one_in(3);
    call.registered = random.one_in(3);
    call.in_place = random.one_in(4);
    call.on_part = parted && random.one_in(2);
    if (call.what == What::kSplit) parted = true;
    calls.push_back(call);
  }
  return calls;
}

/// Element `i` of what `rank` gives in call `number`: small, so that sums of floats are exact.
int value_of(int number, int rank, std::size_t i) {
  return static_cast<int>(
      (i * 13 + static_cast<std::size_t>(rank) * 31 + static_cast<std::size_t>(number) * 7) % 97);
}

void put(std::byte* to, DataType type, std::size_t i, int value) {
  if (type == DataType::kInt32)
    std::memcpy(to + 4 * i, &value, 4);
  else
    (void)(reinterpret_cast<float*>(to)[i] = static_cast<float>(value));
}
bool is(const std::byte* from, DataType type, std::size_t i, int value) {
  std::uint32_t got = 0, wanted = 0;
  std::memcpy(&got, from + 4 * i, 4);
  const auto real = static_cast<float>(value);
  std::memcpy(&wanted, type == DataType::kInt32 ? static_cast<const void*>(&value) : &real, 4);
  return got == wanted;
}

/// Plain memory, or memory that peers can map.
class Buffer {
 public:
  Buffer(std::size_t bytes, bool registered) {
    bytes = std::max<std::size_t>(bytes, 4);
    if (registered) {
      if (auto made = mem_alloc(bytes); made) mapped_ = static_cast<std::byte*>(*made);
    }
    if (mapped_ == nullptr) plain_.resize(bytes);
    std::memset(data(), 0x5a, bytes);
    bytes_ = bytes;
  }
  ~Buffer() {
    if (mapped_ != nullptr) (void)mem_free(mapped_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() { return mapped_ != nullptr ? mapped_ : plain_.data(); }
  std::uint64_t sum() {
    std::uint64_t hash = 1;
    for (std::size_t i = 0; i < bytes_; ++i)
      hash = (hash ^ std::to_integer<std::uint64_t>(data()[i])) * 0x100000001b3;
    return hash;
  }

 private:
  std::byte* mapped_ = nullptr;
  std::vector<std::byte> plain_;
  std::size_t bytes_ = 0;
};

bool one_gets(Collective what) {
  return what == Collective::kReduce || what == Collective::kGather;
}
bool is_reduction(Collective what) {
  return what == Collective::kAllReduce || what == Collective::kReduceScatter ||
         what == Collective::kReduce;
}
std::size_t blocks_in(Collective what, std::size_t ranks) {
  return what == Collective::kReduceScatter || what == Collective::kScatter ||
                 what == Collective::kAllToAll
             ? ranks
             : 1;
}
std::size_t blocks_out(Collective what, std::size_t ranks) {
  return what == Collective::kAllGather || what == Collective::kGather ||
                 what == Collective::kAllToAll
             ? ranks
             : 1;
}

int reduced(const Call& call, int number, int ranks, std::size_t i) {
  int value = value_of(number, 0, i);
  for (int rank = 1; rank < ranks; ++rank) {
    const int next = value_of(number, rank, i);
    if (call.op == ReduceOp::kSum) value += next;
    if (call.op == ReduceOp::kMax) value = std::max(value, next);
    if (call.op == ReduceOp::kMin) value = std::min(value, next);
  }
  return value;
}

/// What element `i` of the output has to be.
int expected(const Call& call, int number, int me, int ranks, std::size_t i) {
  const std::size_t count = call.count, block = count == 0 ? 0 : i / count,
                    at = count == 0 ? 0 : i % count;
  switch (call.collective) {
    case Collective::kAllReduce:
    case Collective::kReduce: return reduced(call, number, ranks, i);
    case Collective::kReduceScatter:
      return reduced(call, number, ranks, static_cast<std::size_t>(me) * count + i);
    case Collective::kAllGather:
    case Collective::kGather: return value_of(number, static_cast<int>(block), at);
    case Collective::kBroadcast: return value_of(number, call.root, i);
    case Collective::kScatter:
      return value_of(number, call.root, static_cast<std::size_t>(me) * count + i);
    case Collective::kAllToAll:
      return value_of(number, static_cast<int>(block), static_cast<std::size_t>(me) * count + at);
  }
  return 0;
}

/// A collective with its buffers.
class Running {
 public:
  Running(const Call& call, int number, int me, int ranks)
      : call_(call),
        number_(number),
        me_(me),
        ranks_(ranks),
        in_(4 * call.count * blocks_in(call.collective, static_cast<std::size_t>(ranks)),
            call.registered),
        out_(4 * call.count * blocks_out(call.collective, static_cast<std::size_t>(ranks)),
             call.registered) {
    const std::size_t elements =
        call.count * blocks_in(call.collective, static_cast<std::size_t>(ranks));
    for (std::size_t i = 0; i < elements; ++i)
      put(in_.data(), call.type, i, value_of(number, me, i));
    in_place_ = call.in_place && call.collective == Collective::kAllReduce;
    if (in_place_ && call.count > 0) std::memcpy(out_.data(), in_.data(), 4 * call.count);
  }
  tutti::Request request() {
    tutti::Request request;
    request.collective = call_.collective;
    request.input = in_place_ ? out_.data() : in_.data();
    request.output = out_.data();
    request.count = call_.count;
    request.type = call_.type;
    request.reduction = call_.op;
    request.root = Rank{call_.root};
    return request;
  }
  bool right() {
    if (one_gets(call_.collective) && me_ != call_.root) return true;
    const std::size_t elements =
        call_.count * blocks_out(call_.collective, static_cast<std::size_t>(ranks_));
    for (std::size_t i = 0; i < elements; ++i) {
      if (!is(out_.data(), call_.type, i, expected(call_, number_, me_, ranks_, i))) return false;
    }
    return true;
  }
  std::uint64_t sum() { return out_.sum(); }

 private:
  Call call_;
  int number_, me_, ranks_;
  bool in_place_ = false;
  Buffer in_, out_;
};

class RankRun {
 public:
  explicit RankRun(int rank)
      : run_(world->parameters),
        me_(rank),
        report_(world->reports[rank]),
        random_{run_.seed * 977 + static_cast<std::uint64_t>(rank)} {}

  void run() {
    note("joins", me_);
    report_.join.begin = world->now;
    auto comm = join();
    report_.join.end = world->now;
    report_.join.done = true;
    if (!comm) {
      fill(report_.join, comm.error());
      note("did not join", me_, report_.join.code);
      return;
    }
    note("joined", me_);
    report_.joined = true;
    if (++world->joined == run_.ranks) world->joined_at_point = world->points;
    if (run_.faults.fork_in_rank == static_cast<std::uint64_t>(me_) + 1) fork_child();
    const std::vector<Call> calls = script(run_);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (make(*comm, calls[i], static_cast<int>(i))) continue;
      // This rank stops, and others miss it in calls on what has not failed.
      if (calls[i].on_part || calls[i].what == What::kSplit) blame(me_);
      break;
    }
    if (aborting_.joinable()) aborting_.join();
  }

 private:
  Result<Communicator> join() {
    Settings settings;
    settings.timeout = std::chrono::milliseconds(run_.timeout_ms);
    settings.transport = run_.shared_memory ? "shared_memory" : "tcp";
    settings.log = "off";
    const Deadline deadline = Deadline::after(settings.timeout);
    if (random_.one_in(3))
      std::this_thread::sleep_for(std::chrono::microseconds(random_.below(400'000)));
    switch (run_.joining) {
      case Joining::kDirectory: {
        TUTTI_TRY(const auto meeting, file_rendezvous(world->directory, "virtual"));
        return Communicator::create(*meeting, Rank{me_}, run_.ranks, settings);
      }
      case Joining::kTcp: {
        TUTTI_TRY(const auto meeting,
                  tcp_rendezvous("10.0.0.1", 29500, Rank{me_}, deadline, "secret"));
        return Communicator::create(*meeting, Rank{me_}, run_.ranks, settings);
      }
      case Joining::kUniqueId: break;
    }
    UniqueId id;
    if (me_ == 0) {
      TUTTI_TRY(id, make_unique_id());
      std::memcpy(world->unique_id, id.bytes.data(), id.bytes.size());
      world->has_id = true;
    }
    while (!world->has_id && !deadline.passed()) std::this_thread::sleep_for(1ms);
    if (!world->has_id) return Error{Code::kTimeout, "rank 0 made no id", Rank{me_}, Rank{0}};
    std::memcpy(id.bytes.data(), world->unique_id, id.bytes.size());
    return Communicator::create(id, Rank{me_}, run_.ranks, settings);
  }

  static void fork_child() {
    if (fork() != 0) return;
    std::this_thread::sleep_for(600s);
    _exit(0);
  }

  static void fill(CallReport& report, const Error& error) {
    report.code = static_cast<std::int32_t>(error.code);
    report.peer = error.peer.value;
    std::snprintf(report.text, sizeof(report.text), "%s", error.what.c_str());
  }

  void pause() {
    if (random_.one_in(4))
      std::this_thread::sleep_for(std::chrono::microseconds(random_.below(3000)));
    if (random_.one_in(20))
      std::this_thread::sleep_for(std::chrono::milliseconds(random_.below(400)));
  }

  void maybe_abort(Communicator& comm, int number) {
    if (run_.abort_call != number || run_.abort_rank != me_) return;
    blame(me_);
    const auto abort = [&comm] {
      note("aborts");
      comm.abort("enough");
      note("aborted");
      world->aborted_at = world->now;
    };
    if (run_.abort_thread)
      aborting_ = std::thread(abort);
    else
      abort();
  }

  /// False: an error ended it.
  bool make(Communicator& whole, Call call, int number) {
    pause();
    Communicator* const comm = call.on_part && part_ ? &*part_ : &whole;
    maybe_abort(whole, number);
    if (run_.odd_call == number && run_.odd_rank == me_) {
      blame(me_);
      make_odd(call);
    }
    const int ranks = comm->rank_count(), me = comm->rank().value;
    call.root %= ranks;
    CallReport& report = report_.calls[report_.call_count++];
    report.number = number;
    report.part = comm == &whole ? 0 : 1 + part_color_;
    std::snprintf(report.what, sizeof(report.what), "%s%s",
                  call.what == What::kCollective ? to_string(call.collective).data()
                                                 : kNames[static_cast<int>(call.what)],
                  call.started ? " (started)" : "");
    report.empty = call.count == 0 && call.what != What::kBarrier && call.what != What::kSplit;
    note("call", number, static_cast<std::int64_t>(call.count));
    report.begin = world->now;
    bool going = false;
    switch (call.what) {
      case What::kBarrier: going = finish(report, comm->barrier()); break;
      case What::kMessages: going = messages(report, *comm, call, number, me, ranks); break;
      case What::kSplit: going = split(report, whole); break;
      case What::kBatch: going = batch(report, *comm, call, number, me, ranks); break;
      case What::kCollective: going = collective(report, *comm, call, number, me, ranks); break;
    }
    return going;
  }

  void make_odd(Call& call) {
    switch (random_.below(3)) {
      case 0: call.count += random_.one_in(2) ? 2139 : 1 + random_.below(100); break;
      case 1:
        call.collective =
            static_cast<Collective>((static_cast<int>(call.collective) + 1) % kCollectiveCount);
        break;
      default:
        if (call.what != What::kCollective || !is_reduction(call.collective))
          call.collective = Collective::kAllReduce;
        call.op = call.op == ReduceOp::kSum ? ReduceOp::kMax : ReduceOp::kSum;
        break;
    }
  }

  bool finish(CallReport& report, const Status& status) {
    report.end = world->now;
    report.done = true;
    note("returns", report.number, status ? 0 : static_cast<int>(status.error().code));
    if (!status) fill(report, status.error());
    return bool(status);
  }

  bool collective(CallReport& report, Communicator& comm, const Call& call, int number, int me,
                  int ranks) {
    Running running(call, number, me, ranks);
    std::optional<Status> status;
    if (call.started) {
      auto work = comm.start(running.request());
      status = work ? work->wait() : Status(work.error());
    } else {
      status = comm.call(running.request());
    }
    const bool going = finish(report, *status);
    if (going) {
      report.wrong = !running.right();
      return true;
    }
    watch(report, [&] { return running.sum(); });
    return false;
  }

  /// After an error, a buffer is the caller's.
  template <class Sum>
  void watch(CallReport& report, Sum&& sum) {
    const std::uint64_t before = sum();
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * run_.timeout_ms + 2000));
    report.touched = sum() != before;
  }

  bool batch(CallReport& report, Communicator& comm, const Call& call, int number, int me,
             int ranks) {
    std::vector<std::unique_ptr<Running>> all;
    std::vector<Work> works;
    Status status;
    for (int i = 0; i < 3; ++i) {
      Call one = call;
      one.count = call.count / static_cast<std::size_t>(i + 1);
      all.push_back(std::make_unique<Running>(one, number + i, me, ranks));
      auto work = comm.start(all.back()->request());
      if (!work) {
        status = Status(work.error());
        break;
      }
      works.push_back(*std::move(work));
    }
    for (Work& work : works) {
      auto one = work.wait();
      if (!one && status) status = std::move(one);
    }
    const bool going = finish(report, status);
    if (going) {
      report.wrong = !std::all_of(all.begin(), all.end(), [](auto& one) { return one->right(); });
      return true;
    }
    watch(report, [&] {
      std::uint64_t sum = 0;
      for (auto& one : all) sum += one->sum();
      return sum;
    });
    return false;
  }

  bool messages(CallReport& report, Communicator& comm, const Call& call, int number, int me,
                int ranks) {
    Buffer out(4 * call.count, call.registered), in(4 * call.count, call.registered);
    for (std::size_t i = 0; i < call.count; ++i)
      put(out.data(), call.type, i, value_of(number, me, i));
    const int to = (me + 1) % ranks, from = (me + ranks - 1) % ranks;
    Status status;
    {
      Group group;
      auto sent = comm.start_send(out.data(), call.count, call.type, Rank{to});
      auto got = comm.start_recv(in.data(), call.count, call.type, Rank{from});
      status = group.end();
      if (!sent) status = Status(sent.error());
      if (!got) status = Status(got.error());
    }
    const bool going = finish(report, status);
    if (!going) {
      watch(report, [&] { return in.sum(); });
      return false;
    }
    for (std::size_t i = 0; i < call.count; ++i)
      report.wrong |= !is(in.data(), call.type, i, value_of(number, from, i));
    return true;
  }

  bool split(CallReport& report, Communicator& whole) {
    const int colors = run_.ranks > 3 ? 2 : 1;
    part_color_ = me_ % colors;
    auto part = whole.split(part_color_, me_);
    const bool going = finish(report, part ? ok() : Status(part.error()));
    if (part) part_.emplace(*std::move(part));
    return going;
  }

  static constexpr const char* kNames[] = {"collective", "barrier", "messages", "split", "batch"};
  const Parameters& run_;
  int me_;
  RankReport& report_;
  Random random_;
  std::optional<Communicator> part_;
  int part_color_ = 0;
  std::thread aborting_;
};

}  // namespace

void run_rank(int rank) {
  RankRun(rank).run();
  world->reports[rank].finished = true;
  own_process().finished = true;
  note("finished", rank);
}

}  // namespace tutti::virt
