// The calls of a rank (virtual/calls.h). All ranks draw the same list from the seed; ranks differ
// in when they make a call, and one of them may make a wrong one.
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

#include "virtual/calls.h"
#include "virtual/kernel/scheduler.h"
#include "virtual/leaks.h"
#include "virtual/recovery.h"
#include "virtual/windows.h"

namespace tutti::virt {
namespace {

using namespace std::chrono_literals;

// A store outlives its rank for those that still leave, and after a failure for those that come
// late. Virtual time: it costs nothing.
constexpr auto kShortLinger = 20s, kLongLinger = 320s;

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
    const std::vector<Call> calls = script(run_);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      if (make(*comm, calls[i], static_cast<int>(i))) continue;
      // This rank stops, and others miss it in calls on what has not failed.
      const bool own = makes_communicator(calls[i]);
      const CallReport& last = report_.calls[report_.call_count - 1];
      // What makes a communicator leaves it before it returns, if another step has failed.
      if (calls[i].on_part || own)
        report_.stopped_at = std::min(report_.stopped_at, own ? last.begin : last.end);
      const bool on_part = own || last.part != 0;
      // A failure ends one communicator: ranks that wait on the other are told.
      if (run_.recovers && !on_part && part_) part_->revoke("the communicator of all has failed");
      if (run_.recovers) recover(*comm, on_part, me_, report_.recovery);
      break;
    }
    if (aborting_.joinable()) aborting_.join();
    if (report_.forks > 0) std::this_thread::sleep_for(2s);  // The children have that time.
  }

 private:
  Result<Communicator> join() {
    Settings settings;
    settings.timeout = std::chrono::milliseconds(run_.timeout_ms);
    settings.transport = run_.shared_memory ? "shared_memory" : "tcp";
    settings.log = "off";
    if (run_.late_rank == me_) std::this_thread::sleep_for(std::chrono::nanoseconds(run_.late_by));
    const Deadline deadline = Deadline::after(settings.timeout);
    if (random_.one_in(3))
      std::this_thread::sleep_for(std::chrono::microseconds(random_.below(400'000)));
    if (run_.late_rank == me_ && comes_too_late()) blame(me_);
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

  /// Whether the others' time may be over before they have met this rank, which comes now. They
  /// look for its store now and then, and each loss costs some hundred milliseconds.
  bool comes_too_late() const {
    constexpr Time kTight = 100 * kMilli;
    const bool keeps_store = me_ == 0 && run_.joining != Joining::kDirectory;
    const auto limit = static_cast<Time>(run_.timeout_ms) * kMilli;
    return keeps_store || run_.loss_one_in != 0 || world->now + kTight > limit;
  }

  /// The child has the library's locks as they were. It lives longer than its parent.
  void fork_child() {
    ++report_.forks;
    if (fork() != 0) return;
    if (auto memory = mem_alloc(4096); memory) (void)mem_free(*memory);
    Settings settings;
    settings.transport = "shared_memory";
    settings.log = "off";
    const auto meeting = memory_rendezvous();
    const auto alone = Communicator::create(*meeting, Rank{0}, 1, settings);
    ++report_.children_went_on;
    std::this_thread::sleep_for(600s);
    _exit(0);
  }

  void maybe_fork() {
    const Faults& faults = run_.faults;
    const bool forks = faults.fork_in_rank == static_cast<std::uint64_t>(me_) + 1;
    if (!forks || report_.forks == kMostForks || random_.one_in(2)) return;
    std::this_thread::sleep_for(std::chrono::microseconds(random_.below(100)));
    fork_child();
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
    const auto most = run_.mapped ? 2 * run_.faults.stall_for / kMicro : 1000;
    const auto pause = std::chrono::microseconds(run_.abort_thread ? random_.below(most) : 0);
    const auto abort = [&comm, pause] {
      if (pause.count() != 0) std::this_thread::sleep_for(pause);
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
    if (!call.started) maybe_fork();
    Communicator* const comm = call.on_part && part_ ? &*part_ : &whole;
    maybe_abort(whole, number);
    const bool starves = run_.absent_call == number && comm == &whole && ranks_of(*comm) > 2;
    if (starves && run_.absent_rank == me_) {
      blame(me_);
      std::this_thread::sleep_for(std::chrono::milliseconds(5 * run_.timeout_ms));
    }
    if (run_.odd_call == number && run_.odd_rank == me_) {
      blame(me_);
      make_odd(call);
    }
    const int ranks = comm->rank_count(), me = comm->rank().value;
    call.root %= ranks;
    CallReport& report = report_.calls[report_.call_count++];
    report.number = number;
    report.part = comm == &whole ? 0 : 1 + part_color_;
    const bool collective_v = call.what == What::kCollective && call.varied;
    std::snprintf(report.what, sizeof(report.what), "%s%s%s",
                  call.what == What::kCollective ? to_string(call.collective).data()
                                                 : kNames[static_cast<int>(call.what)],
                  collective_v ? "_v" : "", call.started ? " (started)" : "");
    report.splits = makes_communicator(call);
    report.empty = is_empty(call, ranks) && call.what != What::kBarrier && !report.splits;
    report.alone =
        (call.what == What::kCollective || call.what == What::kRepeats) && needs_nobody(call, me);
    if (number == run_.faults.in_call && world->called_at_point == 0)
      world->called_at_point = world->points;
    note(report.what, number, static_cast<std::int64_t>(call.count));
    report.begin = report.first = world->now;
    if (starves && run_.absent_rank != me_) return starve(report, *comm, call, number);
    bool going = false;
    switch (call.what) {
      case What::kBarrier: going = finish(report, comm->barrier()); break;
      case What::kMessages: going = messages(report, *comm, call, number, me, ranks); break;
      case What::kSplit: going = split(report, whole); break;
      case What::kBatch: going = batch(report, *comm, call, number, me, ranks); break;
      case What::kRepeats: going = repeats(report, *comm, call, number, me, ranks); break;
      case What::kWindow: going = window(report, *comm, call, number); break;
      case What::kCollective: going = collective(report, *comm, call, number, me, ranks); break;
    }
    return going;
  }

  static bool makes_communicator(const Call& call) {
    return call.what == What::kSplit || call.what == What::kWindow;
  }

  void make_odd(Call& call) {
    if (call.what == What::kWindow) call.what = What::kCollective;
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
    call.varied = call.varied && has_variant(call.collective);
  }

  bool finish(CallReport& report, const Status& status) {
    report.end = world->now;
    report.done = true;
    note("returns", report.number, status ? 0 : static_cast<int>(status.error().code));
    if (status) report.ok_begin = report.begin;
    if (!status) fill(report, status.error());
    return bool(status);
  }

  bool collective(CallReport& report, Communicator& comm, const Call& call, int number, int me,
                  int ranks) {
    Running running(call, number, me, ranks);
    std::optional<Status> status;
    if (call.started) {
      auto work = comm.start(running.request());
      maybe_fork();
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

  /// The same short call again and again, which the library makes by a shorter way.
  bool repeats(CallReport& report, Communicator& comm, const Call& call, int number, int me,
               int ranks) {
    Running running(call, number, me, ranks);
    // In a long run each nap takes a tenth of the deadline more (scheduler.cc): more of them would
    // be a rank that is late by itself.
    int naps = 2;
    for (int i = 0; i < call.times; ++i) {
      if (random_.one_in(4) && naps-- > 0)
        std::this_thread::sleep_for(std::chrono::microseconds(random_.below(100)));
      running.renew(number + i);
      report.begin = world->now;
      if (!finish(report, comm.call(running.request()))) {
        watch(report, [&] { return running.sum(); });
        return false;
      }
      report.wrong |= !running.right();
    }
    return true;
  }

  /// After an error, a buffer is the caller's.
  template <class Sum>
  void watch(CallReport& report, Sum&& sum) {
    if (run_.recovers) return;  // The others wait for this rank.
    const std::uint64_t before = sum();
    std::this_thread::sleep_for(std::chrono::milliseconds(2 * run_.timeout_ms + 2000));
    report.touched = sum() != before;
  }

  static int ranks_of(const Communicator& comm) { return comm.rank_count(); }

  /// A call that a rank does not make, while the others exchange messages: these are no news of
  /// the call, so its deadline ends it.
  bool starve(CallReport& report, Communicator& comm, const Call& call, int number) {
    const int ranks = comm.rank_count(), me = comm.rank().value;
    std::snprintf(report.what, sizeof(report.what), "starved call");
    report.starved = true;
    Call starved = call;
    starved.collective = Collective::kAllReduce;
    starved.varied = false;
    Running running(starved, number, me, ranks);
    auto work = comm.start(running.request());
    if (!work) return finish(report, Status(work.error()));
    const int next = me + 1 == run_.absent_rank ? me + 2 : me + 1;
    const int before = me - 1 == run_.absent_rank ? me - 2 : me - 1;
    const Rank to{next % ranks == run_.absent_rank ? (next + 1) % ranks : next % ranks};
    const int from = (before + ranks) % ranks;
    const Rank of{from == run_.absent_rank ? (from + ranks - 1) % ranks : from};
    const Time enough = report.begin + 4 * static_cast<Time>(run_.timeout_ms) * kMilli;
    for (bool going = true; going && world->now < enough && !work->test();) {
      Group group;
      int sent = 1, got = 0;
      const auto out = comm.start_send(&sent, 1, DataType::kInt32, to);
      const auto in = comm.start_recv(&got, 1, DataType::kInt32, of);
      going = group.end() && out && in;
      std::this_thread::sleep_for(std::chrono::milliseconds(run_.timeout_ms / 20));
    }
    return finish(report, work->wait());
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
    std::int32_t mark = number, got_mark = ranks > 1 && number % 2 != 0 ? ~number : number;
    if (number % 2 != 0 && ranks > 1) {  // What was sent last is received first.
      auto sent = comm.start_send(out.data(), call.count, call.type, Rank{to}, Tag{1});
      auto marked = comm.start_send(&mark, 1, DataType::kInt32, Rank{to}, Tag{2});
      status = comm.recv(&got_mark, 1, DataType::kInt32, Rank{from}, Tag{2});
      if (status) status = comm.recv(in.data(), call.count, call.type, Rank{from}, Tag{1});
      for (auto* const work : {&sent, &marked}) {
        Status ended = *work ? (*work)->wait() : Status(work->error());
        if (!ended && status) status = std::move(ended);
      }
    } else {
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
    report.wrong = got_mark != number;
    for (std::size_t i = 0; i < call.count; ++i)
      report.wrong |= !is(in.data(), call.type, i, value_of(number, from, i));
    return true;
  }

  bool window(CallReport& report, Communicator& comm, const Call& call, int number) {
    WindowUse use(comm, call, number, random_);
    const bool going = finish(report, use.run());
    report.wrong = !use.right();
    if (!going) report_.stopped_at = use.stopped_at();
    if (!going) watch(report, [&] { return use.sum(); });
    return going;
  }

  bool split(CallReport& report, Communicator& whole) {
    const int colors = run_.ranks > 3 ? 2 : 1;
    part_color_ = me_ % colors;
    auto part = whole.split(part_color_, me_);
    const bool going = finish(report, part ? ok() : Status(part.error()));
    if (part) part_.emplace(*std::move(part));
    return going;
  }

  static constexpr int kMostForks = 3;
  static constexpr const char* kNames[] = {"collective", "barrier", "messages", "split",
                                           "batch",      "repeats", "window"};
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
  const Holdings before = count_holdings();
  RankRun(rank).run();
  RankReport& report = world->reports[rank];
  const bool made_id = rank == 0 && world->has_id;
  for (const auto linger : {kShortLinger, kLongLinger}) {
    std::this_thread::sleep_for(linger);
    say_leaks(before, made_id, report.leaks, sizeof(report.leaks));
    if (report.leaks[0] == 0) break;
  }
  report.finished = true;
  own_process().finished = true;
  note("finished", rank);
}

}  // namespace tutti::virt
