// The protocols of kernels/cuda under PTX's memory model: in no execution that it allows data are
// stale behind their flag, or written over before they are read; and without any one of a
// protocol's orders there is such an execution, so that none of them is superfluous.
//
// The programs call the kernels' own functions, so their orders are the kernels' (language.h). What
// is written down again here is what stands around these: the barriers, as Interpreter::run,
// two_shot_steps and tell have them. Ranks are on devices of their own.
#include "litmus/language.h"
// language.h has to come first.
#include "kernels/cuda/channel.h"
#include "kernels/cuda/meeting.h"
#include "kernels/cuda/one_shot.h"
#include "support/catch.h"
#include "tutti/device.cuh"

namespace tutti::litmus {
namespace {

using Results = std::vector<std::uint64_t>;
using Bad = std::function<bool(const Outcome&)>;

/// The forbidden outcome is not there, and it is there without any one of the program's orders.
/// `count`: how many orders there are.
void check_orders(const Program& program, const Bad& bad, std::size_t count) {
  Explorer explorer(program);
  CHECK_FALSE(explorer.any(bad));
  CHECK(explorer.asked() > 0);
  CHECK(explorer.any([](const Outcome& outcome) {  // It gets to its end.
    return std::none_of(outcome.begin(), outcome.end(),
                        [](const Trace& trace) { return trace.blocked; });
  }));
  CHECK(explorer.orders().size() == count);
  for (const Weakening& order : explorer.orders()) {
    INFO("superfluous: " << order);
    CHECK(Explorer(program, order).any(bad));
  }
}

/// Whether a thread that came to its end, or to where it waits, saw something else than this.
bool saw_other(const Trace& trace, const Results& wanted) {
  const std::size_t seen = std::min(trace.results.size(), wanted.size());
  return !std::equal(trace.results.begin(),
                     trace.results.begin() + static_cast<std::ptrdiff_t>(seen), wanted.begin());
}

/// The block's barrier behind a part of the step.
void barrier(bool source, const char* part) {
  recorder->barrier(std::string("no_barrier behind ") + part +
                    (source ? " (reader)" : " (writer)"));
}

// --- Rings of slots: channel.h, await_slot and pass_slot, as Interpreter::run calls them. A ring
// of one slot carries two tiles. The first thread of a block has the ring's end, the second one
// moves data.

struct Ring {
  std::uint64_t slot = 0, head = 0, tail = 0;
};

void ring_end(Ring& memory, bool source) {
  cuda::Arguments arguments;
  cuda::RingEnd end{reinterpret_cast<std::byte*>(&memory.slot), &memory.head, &memory.tail};
  arguments.slot_bytes = sizeof memory.slot;
  arguments.slot_count = 1;
  cuda::Watch watch{&arguments, 0};
  for (int tile = 0; tile < 2; ++tile) {
    cuda::Resolved at = {};
    cuda::await_slot(arguments, end, source, watch, at);
    barrier(source, "prepare");
    barrier(source, "do_work");
    cuda::pass_slot(arguments, source, watch, at, sizeof memory.slot);
  }
}
template <class Work>
void ring_work(bool source, Work work) {
  for (std::uint64_t tile = 0; tile < 2; ++tile) {
    barrier(source, "prepare");
    work(tile);
    barrier(source, "do_work");
  }
}

TEST_CASE("a slot is read after it is full, and written again after it was read") {
  cuda::reloads = GENERATE(false, true);
  Ring ring;
  const Where writer{0, 0}, reader{1, 1};
  const auto put = [&](std::uint64_t tile) { cuda::store(&ring.slot, tile + 1); };
  const Program program{
      {{&ring.slot, 8}, {&ring.head, 8}, {&ring.tail, 8}},
      {{writer, [&]() { ring_end(ring, false); }},
       {writer, [&]() { ring_work(false, put); }},
       {reader, [&]() { ring_end(ring, true); }},
       {reader, [&]() {
          ring_work(true, [&](std::uint64_t) { saw(cuda::load<std::uint64_t>(&ring.slot)); });
        }}}};
  // Two waits, two acquires, a release that both directions share, four barriers.
  check_orders(
      program,
      [](const Outcome& outcome) {
        return saw_other(outcome[3], {1, 2});
      },
      9);
}

// --- Signals: meeting.h, meet_peers, as two_shot_steps calls it. Rank 1 reads rank 0's input
// between two meetings; rank 0's kernel before wrote it, and the one after writes it again. Threads
// of a block share the work: one of them signals, the other one touches the data.

struct Meeting {
  std::uint64_t input = 0, to[2] = {};  // By rank: the signal to it.
};
/// A block's thread in a meeting; its ends of the signals last as long as the thread's run.
class Signals {
 public:
  Signals(Meeting& memory, unsigned rank, unsigned thread) : thread_(thread) {
    arguments_.ranks = 2;
    arguments_.rank = rank;
    arguments_.signals = ends_;
    ends_[1 - rank] = {&memory.to[1 - rank], &memory.to[rank]};
  }
  void meet() {
    threadIdx.x = thread_;
    cuda::meet_peers(arguments_, watch_);
    threadIdx.x = 0;
  }

 private:
  unsigned thread_;
  cuda::Arguments arguments_;
  cuda::SignalEnd ends_[2];
  cuda::Watch watch_{&arguments_, 0};
};

void meet_twice(Meeting& memory, unsigned thread, const std::function<void()>& work) {
  Signals signals(memory, 1, thread);
  signals.meet();
  recorder->barrier("no_barrier behind the first meeting");
  work();
  recorder->barrier("no_barrier before the second meeting");
  signals.meet();
}
/// Rank 0 has no work of its own between the meetings. Kernels of a stream come one after the
/// other.
void lend(Meeting& memory, unsigned thread, bool writes) {
  Signals signals(memory, 0, thread);
  if (writes) cuda::store(&memory.input, std::uint64_t{1});
  recorder->barrier();
  signals.meet();
  signals.meet();
  recorder->barrier();
  if (writes) cuda::store(&memory.input, std::uint64_t{2});
}

TEST_CASE("a peer's input is read after it was written, and before it is written again") {
  cuda::reloads = GENERATE(false, true);
  Meeting memory;
  const Where lender{0, 0}, reader{1, 1};
  const auto work = [&] { saw(cuda::load<std::uint64_t>(&memory.input)); };
  const Program program{{{&memory.input, 8}, {&memory.to[0], 8}, {&memory.to[1], 8}},
                        {{lender, [&] { lend(memory, 0, true); }},
                         {lender, [&] { lend(memory, 1, false); }},
                         {reader, [&] { meet_twice(memory, 0, [] {}); }},
                         {reader, [&] { meet_twice(memory, 1, work); }}}};
  // The wait, acquire and release of a signal, and two barriers.
  check_orders(
      program, [](const Outcome& outcome) { return saw_other(outcome[3], {1}); }, 5);
}

// --- A program's own kernels: tutti/device.cuh, signal and wait. Rank 0 writes into rank 1's
// window twice; rank 1 says when there is room.

struct Window {
  std::uint64_t data = 0;
  cuda::SignalLine lines[2][2];  // By rank, whose memory it is, and peer.
};
DeviceHandle handle_of(Window& memory, unsigned rank, cuda::Report& report) {
  DeviceHandle handle;
  handle.rank = rank;
  handle.ranks = 2;
  handle.channels = 1;
  handle.bytes = sizeof memory.data;
  handle.report = &report;
  handle.windows[1] = reinterpret_cast<std::byte*>(&memory.data);
  for (unsigned owner = 0; owner < 2; ++owner) handle.signals[owner] = memory.lines[owner];
  return handle;
}
/// What only this rank touches begins anew with each run.
void forget(Window& memory, unsigned rank) {
  cuda::SignalLine& own = memory.lines[rank][1 - rank];
  own.sent = own.taken = 0;
}

TEST_CASE("a program's data are there behind their signal, and not written over before another") {
  Window memory;
  const auto write = [&] {
    forget(memory, 0);
    cuda::Report report;
    const DeviceHandle handle = handle_of(memory, 0, report);
    device::Channel channel(handle);
    for (std::uint64_t round = 1; round <= 2; ++round) {
      cuda::store(channel.peer<std::uint64_t>(1, 0), round);
      channel.signal(1);
      channel.wait(1);
    }
  };
  const auto read = [&] {
    forget(memory, 1);
    cuda::Report report;
    const DeviceHandle handle = handle_of(memory, 1, report);
    device::Channel channel(handle);
    for (int round = 1; round <= 2; ++round) {
      channel.wait(0);
      saw(cuda::load<std::uint64_t>(channel.peer<std::uint64_t>(1, 0)));
      channel.signal(0);
    }
  };
  const Program program{
      {{&memory.data, 8}, {&memory.lines[0][1].incoming, 8}, {&memory.lines[1][0].incoming, 8}},
      {{Where{0, 0}, write}, {Where{1, 1}, read}}};
  check_orders(
      program,
      [](const Outcome& outcome) {
        return saw_other(outcome[1], {1, 2});
      },
      3);
}

// --- The one-shot all-reduce: one_shot.h, OneShot::run, a unit of eight bytes between two ranks.
// Lines say themselves that they are there, and two areas in turn stand for credit.

struct Areas {
  alignas(16) std::uint32_t words[2][2][2][4];  // Owner, turn, from, line.
};
std::uint64_t contribution(unsigned rank, unsigned call) { return 10 * (call + 1) + rank; }

/// Makes the calls; `step` 2: all of them in the same area.
void one_shot_rank(Areas& areas, unsigned rank, unsigned calls, unsigned step) {
  cuda::BlockState state;
  cuda::Report report;
  std::byte input[16] = {}, output[16] = {};
  cuda::OneShotArguments arguments;
  for (unsigned owner = 0; owner < 2; ++owner)
    arguments.areas[owner] = reinterpret_cast<std::byte*>(areas.words[owner]);
  arguments.area_bytes = 16;
  arguments.elements_per_block = arguments.common.count = 8;
  arguments.common.ranks = 2;
  arguments.common.rank = rank;
  arguments.common.input = input;
  arguments.common.output = output;
  arguments.common.states = &state;
  arguments.common.report = &report;
  arguments.common.tag.digest = 7;
  for (unsigned call = 0; call < calls; ++call) {
    input[0] = input[7] = std::byte(contribution(rank, call));  // In both halves of the line.
    cuda::OneShot<DataType::kUint8, ReduceOp::kSum>(arguments).run();
    for (const unsigned at : {0u, 7u}) saw(std::to_integer<std::uint64_t>(output[at]));
    state.one_shots += step - 1;
  }
}
Program one_shots(Areas& areas, unsigned calls, unsigned step = 1) {
  std::memset(&areas, 0, sizeof areas);
  Program program;
  for (unsigned owner = 0; owner < 2; ++owner) {
    for (auto& turn : areas.words[owner]) {
      const unsigned bytes = cuda::torn ? 4 : 8;
      for (unsigned at = 0; at < 16; at += bytes)
        program.locations.push_back({&turn[1 - owner][at / 4], bytes});
    }
    program.threads.push_back(
        {{owner, owner}, [=, &areas] { one_shot_rank(areas, owner, calls, step); }});
  }
  return program;
}
/// A sum that is wrong, or a rank that waits for a line that was written over.
bool loses_data(const Outcome& outcome, unsigned step = 1) {
  Results sums;
  for (unsigned call = 0; call < 3; ++call)
    sums.insert(sums.end(), 2, contribution(0, call) + contribution(1, call));
  for (const Trace& trace : outcome) {
    if (saw_other(trace, sums)) return true;
    if (!trace.blocked) continue;
    const std::uint64_t flag =
        trace.events[trace.events.size() - 2].value >> 32;  // The first half's.
    if (flag > trace.results.size() / 2 * step + 1) return true;
  }
  return false;
}

TEST_CASE("one-shot: no line is taken before it is there, nor written over before it is taken") {
  Areas areas;
  const Program program = one_shots(areas, 3);
  check_orders(
      program, [](const Outcome& outcome) { return loses_data(outcome); }, 2);  // The two flags.
}
TEST_CASE("one-shot: with one area instead of two a line is written over") {
  Areas areas;
  CHECK(Explorer(one_shots(areas, 2, 2)).any([](const Outcome& outcome) {
    return loses_data(outcome, 2);
  }));
}
TEST_CASE("one-shot: data and flag have to arrive together") {
  cuda::torn = true;
  Areas areas;
  const Program program = one_shots(areas, 1);
  const std::uint64_t sum = contribution(0, 0) + contribution(1, 0);
  CHECK(Explorer(program).any([sum](const Outcome& outcome) {
    return saw_other(outcome[0], {sum, sum});
  }));
  cuda::torn = false;
}

// --- Failures: calls.h, tell, to a peer (told_report) and to the host, which reads with acquire
// too (cuda/mesh/rings.cc).

struct Board {
  alignas(16) std::byte bytes[cuda::board_bytes(2, 1)] = {};
};
constexpr unsigned kWords = cuda::detail::kReportWords;

void fail_rank(Board& peers, cuda::Report& to_host) {
  Board own;
  cuda::Arguments arguments;
  arguments.ranks = 2;
  arguments.board_lanes = 1;
  arguments.boards[0] = own.bytes;
  arguments.boards[1] = peers.bytes;
  arguments.report = &to_host;
  cuda::Watch watch{&arguments, 0};
  watch.direction = 0;
  watch.message = {3, {4, 5, 6}};
  watch.fail(cuda::Why::kTimedOut, 1);
  cuda::tell(watch);
}
void hear(Board& board) {
  cuda::Arguments arguments;
  arguments.ranks = 2;
  arguments.rank = 1;
  arguments.boards[1] = board.bytes;
  const cuda::Report report = cuda::detail::told_report(arguments);
  for (const std::uint64_t value :
       {report.why, std::uint64_t{report.own.number}, std::uint64_t{report.own.words[2]}})
    saw(value);
}
void read_report(const cuda::Report& report) {
  const auto* words = reinterpret_cast<const std::uint64_t*>(&report);
  saw(cuda::load_acquire(words));
  saw(cuda::load_relaxed(words + 1) & 0xffffffff);
  saw(cuda::load_relaxed(words + 2) >> 32);
}

TEST_CASE("a report is whole where its flag is seen") {
  Board board;
  cuda::Report report;
  const auto word = [](auto& at, unsigned i) {
    return Location{reinterpret_cast<std::uint64_t*>(&at) + i, 8};
  };
  Program program;
  program.locations.push_back(word(board, 0));
  for (unsigned i = 0; i < kWords; ++i) {
    program.locations.push_back(word(board.bytes[cuda::kBoardHead], i));
    program.locations.push_back(word(report, i));
  }
  program.threads = {{{0, 0}, [&] { fail_rank(board, report); }},
                     {{1, 1}, [&] { hear(board); }},
                     {{2, 2}, [&] { read_report(report); }}};
  const Results whole{cuda::report_word(cuda::Why::kTimedOut, 0, 1), 3, 6};
  const auto bad = [&](const Outcome& outcome) {
    const bool told = outcome[1].events[0].value != 0 && saw_other(outcome[1], whole);
    return told || (outcome[2].results[0] != 0 && saw_other(outcome[2], whole));
  };
  check_orders(program, bad, 4);  // Two releases, two acquires.
}

}  // namespace
}  // namespace tutti::litmus
