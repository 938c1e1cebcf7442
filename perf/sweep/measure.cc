#include "perf/sweep/measure.h"

#include <ctime>

#include "base/cpus.h"
#include "kernels/host/reduce.h"
#include "perf/sweep/buffer.h"
#include "perf/sweep/interrupt.h"

namespace tutti::perf {
namespace {

constexpr std::uint64_t kSeed = 20261121;

double now_us(bool cpu) {
  timespec time{};
  clock_gettime(cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

Result<double> reduce_scalar(Communicator& comm, double value, ReduceOp op) {
  TUTTI_RETURN_IF_ERROR(comm.all_reduce(&value, &value, 1, DataType::kFloat64, op));
  return value;
}

double bus_factor(const Shape& shape) {
  const double n = shape.ranks;
  switch (shape.collective) {
    case Collective::kAllReduce: return 2 * (n - 1) / n;
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kScan:
    case Collective::kExclusiveScan: return 1;
    default: return (n - 1) / n;
  }
}

/// Calls with one way of placing the buffers. With `separate` buffers the input outlives the calls.
struct Placed {
  Communicator& comm;
  const Options& options;
  const Shape& shape;
  std::byte* input;
  std::byte* output;
  bool separate;

  /// So many calls, blocking or not.
  Status iterate(int calls) const {
    if (interrupt_overdue()) {
      comm.abort("interrupted");  // The other ranks wait for this one's calls.
      return Error{Code::kAborted, "interrupted", comm.rank()};
    }
    Reduction reduction(shape.op);
    reduction.scale = scale_of(comm.rank().value);
    Request request{shape.collective, input,     output,          shape.count,
                    shape.type,       reduction, Rank{shape.root}};
    request.wire = options.wire;
    if (options.blocking != 0 && calls == 1) return comm.call(request);
    std::vector<Work> works;
    for (int i = 0; i < calls; ++i) {
      TUTTI_TRY(auto work, comm.start(request));
      works.push_back(std::move(work));
    }
    for (Work& work : works) TUTTI_RETURN_IF_ERROR(work.wait());
    return ok();
  }

  /// The time of `iterations` iterations between two barriers, combined over ranks as -a says.
  Result<double> timed(int iterations) const {
    TUTTI_RETURN_IF_ERROR(comm.barrier());
    const bool cpu = options.report_cpu != 0;
    const double begin = now_us(cpu);
    for (int i = 0; i < iterations; ++i) TUTTI_RETURN_IF_ERROR(iterate(options.aggregate));
    double us = (now_us(cpu) - begin) / iterations / options.aggregate;
    if (options.average == 0) {
      TUTTI_RETURN_IF_ERROR(comm.broadcast(&us, &us, 1, DataType::kFloat64, Rank{0}));
      return us;
    }
    constexpr ReduceOp kHow[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax};
    return reduce_scalar(comm, us, kHow[options.average]);
  }

  /// Calls that fit about 10 ms, agreed by all ranks.
  Result<int> choose_iterations() const {
    if (options.iterations > 0) return options.iterations;
    TUTTI_TRY(const double trial, timed(3));
    TUTTI_TRY(const double us, reduce_scalar(comm, trial, ReduceOp::kMax));
    return static_cast<int>(
        std::clamp(10'000 / std::max(us, 0.01) / options.aggregate, 20.0, 20'000.0));
  }

  Status percentiles(int iterations, Timing* timing) const {
    std::vector<double> singles;
    for (int i = 0; i < iterations; ++i) {
      const double begin = now_us(false);
      TUTTI_RETURN_IF_ERROR(iterate(options.aggregate));
      singles.push_back((now_us(false) - begin) / options.aggregate);
    }
    std::ranges::sort(singles);
    const auto worst = [&](std::size_t at) {
      return reduce_scalar(comm, singles[at], ReduceOp::kMax);
    };
    TUTTI_TRY(timing->p50_us, worst(singles.size() / 2));
    TUTTI_TRY(timing->p99_us, worst(singles.size() * 99 / 100));
    TUTTI_TRY(timing->max_us, worst(singles.size() - 1));
    return ok();
  }

  /// Adds the wrong elements of all ranks to `timing`.
  Status verify(std::uint64_t seed, Timing* timing) const {
    if (!options.wire.is_plain()) {
      const Deviation mine = deviation_of(shape, options.wire, comm.rank().value, seed, output);
      TUTTI_TRY(const double worst, reduce_scalar(comm, mine.largest, ReduceOp::kMax));
      timing->error = std::max(timing->error, worst);
      timing->allowed_error = mine.allowed;
      timing->wrong += worst > mine.allowed ? 1 : 0;
      return ok();
    }
    const std::size_t wrong = count_wrong(shape, options.check, comm.rank().value, seed, output);
    TUTTI_TRY(const double all, reduce_scalar(comm, static_cast<double>(wrong), ReduceOp::kSum));
    timing->wrong += static_cast<long long>(all);
    return ok();
  }

  /// Where the input is still there, the result of the timed calls is verified too: they follow one
  /// another without a pause, which the verified ones before did not.
  Result<Timing> measure() const {
    Timing timing;
    std::uint64_t seed = kSeed;
    if (options.check != Check::kOff) {
      timing.wrong = 0;
      for (int round = 0; round < options.check_rounds; ++round) {
        fill(shape, options.check, comm.rank().value, ++seed, input);
        // One: in place, a second call would reduce what the first one did.
        TUTTI_RETURN_IF_ERROR(iterate(1));
        TUTTI_RETURN_IF_ERROR(verify(seed, &timing));
      }
    }
    for (int i = 0; i < options.warmup; ++i) TUTTI_RETURN_IF_ERROR(iterate(options.aggregate));
    TUTTI_TRY(const int iterations, choose_iterations());
    TUTTI_TRY(timing.us, timed(iterations));
    if (options.percentiles) TUTTI_RETURN_IF_ERROR(percentiles(iterations, &timing));
    if (options.check != Check::kOff && separate) TUTTI_RETURN_IF_ERROR(verify(seed, &timing));
    const auto bytes = static_cast<double>(shape.bytes());
    timing.algbw = timing.us > 0 ? bytes / timing.us / 1e3 : 0;
    timing.busbw = timing.algbw * bus_factor(shape);
    return timing;
  }
};

/// The rate of the memory: bytes read and written a microsecond, all ranks together
/// (sweep/bound.h).
Result<double> memory_rate(Communicator& comm, const Shape& shape, std::size_t bytes,
                           const std::byte* from, std::byte* to) {
  const std::size_t n = static_cast<std::size_t>(shape.ranks);
  const kernels::Stores stores = 4 * n * bytes >= last_level_cache_bytes()
                                     ? kernels::Stores::kStreaming
                                     : kernels::Stores::kCached;
  const kernels::Source source{from, Form::kResult, false};
  const kernels::Target target{to, Form::kResult};
  const int rounds = static_cast<int>(
      std::clamp<std::size_t>((std::size_t{8} << 20) / std::max<std::size_t>(bytes, 1), 3, 2000));
  double best = 0;
  for (int attempt = 0; attempt < 3; ++attempt) {
    TUTTI_RETURN_IF_ERROR(comm.barrier());
    const double begin = now_us(false);
    for (int i = 0; i < rounds; ++i) {
      kernels::reduce({.type = DataType::kUint8}, std::span(&source, 1), std::span(&target, 1),
                      bytes, stores);
    }
    const double rate =
        2.0 * static_cast<double>(bytes) * rounds / std::max(now_us(false) - begin, 1e-3);
    TUTTI_TRY(const double all, reduce_scalar(comm, rate, ReduceOp::kSum));
    best = std::max(best, all);
  }
  return best;
}

}  // namespace

Result<Line> measure(Communicator& comm, const Options& options, const Shape& shape,
                     const LinksBound& links) {
  Line line;
  line.shape = shape;
  line.bytes = shape.bytes();
  const Buffer separate(line.bytes, options.registered), shared(line.bytes, options.registered);
  if (separate.data() == nullptr || shared.data() == nullptr) {
    return Error{Code::kSystem, "no memory for buffers of " + std::to_string(line.bytes) + " bytes",
                 comm.rank()};
  }
  TUTTI_TRY(line.out_of_place,
            Placed{comm, options, shape, separate.data(), shared.data(), true}.measure());
  const std::size_t own =
      static_cast<std::size_t>(comm.rank().value) * shape.count * size_of(shape.type);
  // In place: the smaller buffer is this rank's block of the larger one.
  const CollectiveTraits traits = traits_of(shape.collective);
  std::byte* in = shared.data() + (traits.output_each && !traits.input_each ? own : 0);
  std::byte* out = shared.data() + (traits.input_each && !traits.output_each ? own : 0);
  TUTTI_TRY(line.in_place, Placed{comm, options, shape, in, out, false}.measure());
  if (options.bound) {
    TUTTI_TRY(const double rate,
              memory_rate(comm, shape, line.bytes, separate.data(), shared.data()));
    const double memory_us = memory_traffic(shape) / rate;
    const double links_us = static_cast<double>(line.bytes) * links.us_per_byte;
    line.bound_us = std::max(memory_us, links_us);
    line.bound_by = memory_us >= links_us ? "memory" : "links";
  }
  return line;
}

}  // namespace tutti::perf
