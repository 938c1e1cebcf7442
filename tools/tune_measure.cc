// Measuring for `tutti tune`.
//
// For each size a first look at every way drops those that take kHopeless times as long as the best
// one. (Of that size alone: what is slow for few bytes may be the best for many.) The others are
// measured in turns, round after round, so that whatever disturbs the machine disturbs all of them;
// a time is the median over rounds of the slowest rank's.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

#include "algorithms/algorithm.h"
#include "kernels/host/reduce.h"
#include "tune.h"

namespace tutti::tools {
namespace {

constexpr double kHopeless = 3;  // Times the best, after a first look.
constexpr double kRunnerUp = 2;  // Times the best, to be in the table.
constexpr std::size_t kMostListed = 6;
constexpr int kMostCalls = 2000;

using Clock = std::chrono::steady_clock;

double since_us(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

/// Memory of one rank: plain, or of a kind that peers can map.
class Buffer {
 public:
  Buffer(std::size_t bytes, bool mapped) : mapped_(mapped) {
    if (mapped) {
      if (auto memory = mem_alloc(bytes)) data_ = *memory;
    } else {
      data_ = std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    }
    if (data_ != nullptr) std::memset(data_, 0, bytes);
  }
  ~Buffer() {
    if (mapped_)
      (void)mem_free(data_);
    else
      std::free(data_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return data_; }

 private:
  bool mapped_;
  void* data_ = nullptr;
};

/// The slowest rank's.
Result<double> slowest(Communicator& comm, double us) {
  TUTTI_CHECK_OK(comm.all_reduce(&us, &us, 1, DataType::kFloat64, ReduceOp::kMax));
  return us;
}

/// Microseconds a call, of so many in a row.
Result<double> timed(Communicator& comm, const Request& request, int calls) {
  TUTTI_CHECK_OK(comm.barrier());
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) TUTTI_CHECK_OK(comm.call(request));
  return slowest(comm, since_us(start) / calls);
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

struct Contender {
  std::string_view name;
  bool deterministic = true;
  double first_us = 0;
  std::vector<double> rounds;
};

std::vector<Contender> contenders(const plan::Shape& shape) {
  std::vector<Contender> all;
  all.push_back({.name = planner::kPacketWay, .rounds = {}});
  for (const Algorithm* algorithm : algorithms()) {
    if (algorithm->collective != shape.collective || !algorithm->applies(shape)) continue;
    all.push_back({.name = algorithm->name,
                   .deterministic = algorithm->contract(shape) == Contract::kDeterministic,
                   .rounds = {}});
  }
  return all;
}

/// The ways of a size, best first: the best few, and the best one that keeps every contract.
std::vector<planner::Way> ranked(const std::vector<Contender*>& measured) {
  std::vector<std::pair<double, const Contender*>> order;
  for (const Contender* contender : measured)
    order.emplace_back(median(contender->rounds), contender);
  std::stable_sort(order.begin(), order.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<planner::Way> ways;
  bool deterministic = false;
  for (const auto& [us, contender] : order) {
    const bool near = ways.size() < kMostListed && us <= kRunnerUp * order.front().first;
    // A plan has to be there as well: packets are not for every call.
    const bool needed =
        contender->deterministic && !deterministic && contender->name != planner::kPacketWay;
    if (near || needed) ways.push_back({std::string(contender->name), 1, us});
    deterministic = deterministic || needed;
  }
  return ways;
}

/// One list of a table: sizes of one collective with one kind of buffers.
class List {
 public:
  List(Communicator& comm, const TuneOptions& options, Collective collective, bool mapped)
      : comm_(comm),
        options_(options),
        shape_{collective, comm.rank_count(), 0},
        contenders_(contenders(shape_)),
        input_(options.most_bytes, mapped),
        output_(options.most_bytes, mapped) {}

  Result<planner::Range> measure(std::size_t bytes) {
    if (input_.data() == nullptr || output_.data() == nullptr)
      return Error{Code::kSystem, "no memory for the buffers", comm_.rank()};
    const CollectiveTraits traits = traits_of(shape_.collective);
    const auto ranks = static_cast<std::size_t>(shape_.rank_count);
    const std::size_t blocks = traits.input_each || traits.output_each ? ranks : 1;
    Request request{.collective = shape_.collective,
                    .input = input_.data(),
                    .output = output_.data(),
                    .count = std::max<std::size_t>(1, bytes / sizeof(float) / blocks),
                    .type = DataType::kFloat32};
    const std::size_t whole = request.count * blocks * sizeof(float);
    std::vector<Contender*> looked_at;
    TUTTI_TRY(const double best, first_look(request, whole, looked_at));
    std::vector<Contender*> left;
    for (Contender* contender : looked_at) {
      const bool hopeless = contender->first_us > kHopeless * best;
      if (!hopeless || is_last_plan(contender, looked_at, best)) left.push_back(contender);
    }
    TUTTI_CHECK_OK(in_turns(request, left));
    return planner::Range{whole, ranked(left)};
  }

 private:
  Result<double> first_look(Request request, std::size_t bytes,
                            std::vector<Contender*>& looked_at) {
    double best = 0;
    for (Contender& contender : contenders_) {
      if (contender.name == planner::kPacketWay && bytes > packet_bytes_) continue;
      request.algorithm = contender.name;
      TUTTI_TRY(const double cold, timed(comm_, request, 1));  // Makes the plan, too.
      TUTTI_TRY(contender.first_us, timed(comm_, request, cold > 10 * options_.round_us ? 1 : 4));
      contender.rounds.clear();
      looked_at.push_back(&contender);
      if (best == 0 || contender.first_us < best) best = contender.first_us;
    }
    return best;
  }

  /// Whether it is the best of the plans that keep every contract, which a table always has.
  static bool is_last_plan(const Contender* contender, const std::vector<Contender*>& all,
                           double best) {
    if (!contender->deterministic || contender->name == planner::kPacketWay) return false;
    return std::none_of(all.begin(), all.end(), [&](const Contender* other) {
      return other->deterministic && other->name != planner::kPacketWay &&
             (other->first_us <= kHopeless * best || other->first_us < contender->first_us);
    });
  }

  Status in_turns(Request request, const std::vector<Contender*>& left) {
    for (int round = 0; round < options_.rounds; ++round) {
      for (Contender* contender : left) {
        const double us = std::max(contender->first_us, 0.05);
        const int calls =
            static_cast<int>(std::clamp(options_.round_us / us, 1.0, 1.0 * kMostCalls));
        request.algorithm = contender->name;
        auto took = timed(comm_, request, calls);
        if (!took) return std::move(took.error());
        contender->rounds.push_back(*took);
      }
    }
    return ok();
  }

  Communicator& comm_;
  const TuneOptions& options_;
  plan::Shape shape_;
  std::vector<Contender> contenders_;
  Buffer input_, output_;
  // Larger ones go by plans: planner::Knowledge has the communicator's own limit, which is not
  // less.
  std::size_t packet_bytes_ = 32768;
};

/// What 8 bytes take from rank 0 to rank 1: half of there and back.
Result<double> hop_us(Communicator& comm) {
  constexpr int kTimes = 200;
  std::uint64_t data = 0;
  std::vector<double> rounds;
  for (int round = 0; round < 5; ++round) {
    TUTTI_CHECK_OK(comm.barrier());
    const auto start = Clock::now();
    const int me = comm.rank().value;
    for (int i = 0; i < kTimes && me < 2; ++i) {
      for (const bool there : {true, false}) {
        const bool sends = (me == 0) == there;
        TUTTI_CHECK_OK(sends ? comm.send(&data, 1, DataType::kUint64, Rank{1 - me})
                             : comm.recv(&data, 1, DataType::kUint64, Rank{1 - me}));
      }
    }
    TUTTI_TRY(const double us, slowest(comm, me < 2 ? since_us(start) / kTimes / 2 : 0));
    rounds.push_back(us);
  }
  return median(rounds);
}

/// Bytes of another rank's that a rank copies, GB/s: all but one copy at once, on the CPUs that
/// there are.
Result<double> copy_rate(Communicator& comm, int cpus) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const Buffer in(kBytes, true), out(kBytes, true);
  if (in.data() == nullptr || out.data() == nullptr)
    return Error{Code::kSystem, "no memory for the buffers", comm.rank()};
  const Request request{.collective = Collective::kBroadcast,
                        .input = in.data(),
                        .output = out.data(),
                        .count = kBytes,
                        .algorithm = "direct"};
  TUTTI_TRY(double us, timed(comm, request, 1));  // Makes the plan, too.
  std::vector<double> rounds;
  for (int round = 0; round < 5; ++round) {
    TUTTI_TRY(us, timed(comm, request, 10));
    rounds.push_back(us);
  }
  const double turns = std::max(1.0, static_cast<double>(comm.rank_count() - 1) / cpus);
  return turns * static_cast<double>(kBytes) / median(rounds) * 1e-3;
}

/// Bytes read and written while two vectors are added, GB/s, on one rank while the others sleep.
Result<double> reduce_rate(Communicator& comm) {
  constexpr std::size_t kElements = 32768;
  double rate = 0;
  if (comm.rank().value == 0) {
    std::vector<float> a(kElements, 1), b(kElements, 2), sum(kElements);
    const kernels::Source sources[] = {
        {reinterpret_cast<const std::byte*>(a.data()), Form::kContribution, false},
        {reinterpret_cast<const std::byte*>(b.data()), Form::kContribution, false}};
    const kernels::Target target{reinterpret_cast<std::byte*>(sum.data()), Form::kResult};
    std::vector<double> rounds;
    for (int round = 0; round < 9; ++round) {
      const auto start = Clock::now();
      for (int i = 0; i < 20; ++i) {
        kernels::reduce({DataType::kFloat32, ReduceOp::kSum, 2, 1, 1}, sources,
                        std::span(&target, 1), kElements);
      }
      rounds.push_back(3.0 * 20 * kElements * sizeof(float) / std::max(since_us(start), 0.1) *
                       1e-3);
    }
    rate = median(rounds);
  }
  return slowest(comm, rate);  // Rank 0's is the only one.
}

Result<planner::HostCosts> measure_costs(Communicator& comm, int cpus) {
  planner::HostCosts costs;
  if (comm.rank_count() > 1) {
    TUTTI_TRY(costs.link.latency_us, hop_us(comm));
    TUTTI_TRY(costs.link.gigabytes_per_second, copy_rate(comm, cpus));
  }
  TUTTI_TRY(const double own, reduce_rate(comm));
  // What a rank adds comes from others, as a rule, no faster than it can be copied.
  costs.reduce_gigabytes_per_second = std::min(own, 2 * costs.link.gigabytes_per_second);
  return costs;
}

}  // namespace

std::vector<std::size_t> tune_sizes(const TuneOptions& options) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = options.least_bytes; bytes <= options.most_bytes;
       bytes *= options.factor)
    sizes.push_back(bytes);
  return sizes;
}

Result<planner::TuningTable> tune(Communicator& comm, const TuneOptions& options,
                                  const TuneProgress& progress) {
  planner::TuningTable table;
  TUTTI_TRY(table.costs, measure_costs(comm, options.cpus));
  const auto sizes = tune_sizes(options);
  const std::size_t all = options.collectives.size() * 2 * sizes.size();
  std::size_t done = 0;
  for (const Collective collective : options.collectives) {
    for (const bool mapped : {false, true}) {
      List list(comm, options, collective, mapped);
      auto& ranges = table.of(collective, mapped);
      for (const std::size_t bytes : sizes) {
        progress(done++, all, collective, mapped, bytes);
        TUTTI_TRY(auto range, list.measure(bytes));
        if (!ranges.empty() && range.up_to <= ranges.back().up_to) continue;  // An element a rank.
        ranges.push_back(std::move(range));
      }
    }
  }
  return table;
}

}  // namespace tutti::tools
