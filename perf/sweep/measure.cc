#include "perf/sweep/measure.h"

#include <algorithm>
#include <ctime>

#include "base/cpus.h"
#include "kernels/host/reduce.h"
#include "perf/sweep/buffer.h"

namespace tutti::perf {
namespace {

constexpr std::uint64_t kSeed = 20261121;

double now_us(bool cpu) {
  timespec time{};
  clock_gettime(cpu ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_nsec) * 1e-3;
}

Request request_of(const Communicator& comm, const Shape& shape, const std::byte* input,
                   std::byte* output) {
  Reduction reduction(shape.op);
  reduction.scale = scale_of(comm.rank().value);
  return {shape.collective, input, output, shape.count, shape.type, reduction, Rank{shape.root}};
}

/// One "iteration": `aggregate` calls, blocking or not.
Status iterate(Communicator& comm, const Options& options, const Shape& shape,
               const std::byte* input, std::byte* output) {
  const Request request = request_of(comm, shape, input, output);
  if (options.blocking && options.aggregate == 1) return comm.call(request);
  std::vector<Work> works;
  for (int i = 0; i < options.aggregate; ++i) {
    TUTTI_TRY(auto work, comm.start(request));
    works.push_back(std::move(work));
  }
  for (Work& work : works) TUTTI_RETURN_IF_ERROR(work.wait());
  return ok();
}

Result<double> reduce_scalar(Communicator& comm, double value, ReduceOp op) {
  if (auto status = comm.all_reduce(&value, &value, 1, DataType::kFloat64, op); !status)
    return std::move(status.error());
  return value;
}

/// The time of `iterations` iterations between two barriers, combined over ranks as -a says.
Result<double> timed(Communicator& comm, const Options& options, const Shape& shape,
                     const std::byte* input, std::byte* output, int iterations) {
  TUTTI_RETURN_IF_ERROR(comm.barrier());
  const double begin = now_us(options.report_cpu);
  for (int i = 0; i < iterations; ++i)
    TUTTI_RETURN_IF_ERROR(iterate(comm, options, shape, input, output));
  double us = (now_us(options.report_cpu) - begin) / iterations / options.aggregate;
  if (options.average == 0) {
    TUTTI_RETURN_IF_ERROR(comm.broadcast(&us, &us, 1, DataType::kFloat64, Rank{0}));
    return us;
  }
  constexpr ReduceOp kHow[] = {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMin, ReduceOp::kMax};
  return reduce_scalar(comm, us, kHow[options.average]);
}

/// Calls that fit about 10 ms, agreed by all ranks.
Result<int> choose_iterations(Communicator& comm, const Options& options, const Shape& shape,
                              const std::byte* input, std::byte* output) {
  if (options.iterations > 0) return options.iterations;
  TUTTI_TRY(const double trial, timed(comm, options, shape, input, output, 3));
  TUTTI_TRY(const double us, reduce_scalar(comm, trial, ReduceOp::kMax));
  return static_cast<int>(
      std::clamp(10'000 / std::max(us, 0.01) / options.aggregate, 20.0, 20'000.0));
}

Status percentiles(Communicator& comm, const Options& options, const Shape& shape,
                   const std::byte* input, std::byte* output, int iterations, Timing* timing) {
  std::vector<double> singles;
  for (int i = 0; i < iterations; ++i) {
    const double begin = now_us(false);
    TUTTI_RETURN_IF_ERROR(iterate(comm, options, shape, input, output));
    singles.push_back((now_us(false) - begin) / options.aggregate);
  }
  std::sort(singles.begin(), singles.end());
  double* const all[] = {&timing->p50_us, &timing->p99_us, &timing->max_us};
  const std::size_t at[] = {singles.size() / 2, singles.size() * 99 / 100, singles.size() - 1};
  for (int i = 0; i < 3; ++i) {
    TUTTI_TRY(*all[i], reduce_scalar(comm, singles[at[i]], ReduceOp::kMax));
  }
  return ok();
}

double bus_factor(const Shape& shape) {
  const double n = shape.ranks;
  switch (shape.collective) {
    case Collective::kAllReduce: return 2 * (n - 1) / n;
    case Collective::kBroadcast:
    case Collective::kReduce: return 1;
    default: return (n - 1) / n;
  }
}

/// Adds the wrong elements of all ranks to `timing`.
Status verify(Communicator& comm, const Options& options, const Shape& shape, std::uint64_t seed,
              const std::byte* output, Timing* timing) {
  const auto wrong =
      static_cast<double>(count_wrong(shape, options.check, comm.rank().value, seed, output));
  TUTTI_TRY(const double all, reduce_scalar(comm, wrong, ReduceOp::kSum));
  timing->wrong += static_cast<long long>(all);
  return ok();
}

/// With `separate` buffers the input outlives the calls, so the result of the timed calls is
/// verified too: they follow one another without a pause, which the verified ones before did not.
Result<Timing> measure_placed(Communicator& comm, const Options& options, const Shape& shape,
                              std::size_t bytes, std::byte* input, std::byte* output,
                              bool separate) {
  Timing timing;
  std::uint64_t seed = kSeed;
  if (options.check != Check::kOff) {
    timing.wrong = 0;
    Options single = options;
    single.aggregate = 1;  // In place, the second call would reduce what the first one did.
    for (int round = 0; round < options.check_rounds; ++round) {
      fill(shape, options.check, comm.rank().value, ++seed, input);
      TUTTI_RETURN_IF_ERROR(iterate(comm, single, shape, input, output));
      TUTTI_RETURN_IF_ERROR(verify(comm, options, shape, seed, output, &timing));
    }
  }
  for (int i = 0; i < options.warmup; ++i)
    TUTTI_RETURN_IF_ERROR(iterate(comm, options, shape, input, output));
  TUTTI_TRY(const int iterations, choose_iterations(comm, options, shape, input, output));
  TUTTI_TRY(timing.us, timed(comm, options, shape, input, output, iterations));
  if (options.percentiles)
    TUTTI_RETURN_IF_ERROR(percentiles(comm, options, shape, input, output, iterations, &timing));
  if (options.check != Check::kOff && separate)
    TUTTI_RETURN_IF_ERROR(verify(comm, options, shape, seed, output, &timing));
  timing.algbw = timing.us > 0 ? static_cast<double>(bytes) / timing.us / 1e3 : 0;
  timing.busbw = timing.algbw * bus_factor(shape);
  return timing;
}

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
  const std::size_t element = size_of(shape.type);
  line.bytes = shape.bytes();
  const Buffer separate(line.bytes, options.registered), shared(line.bytes, options.registered);
  if (separate.data() == nullptr || shared.data() == nullptr) {
    return Error{Code::kSystem, "no memory for buffers of " + std::to_string(line.bytes) + " bytes",
                 comm.rank()};
  }
  TUTTI_TRY(line.out_of_place,
            measure_placed(comm, options, shape, line.bytes, separate.data(), shared.data(), true));
  const std::size_t own = static_cast<std::size_t>(comm.rank().value) * shape.count * element;
  // In place: the smaller buffer is this rank's block of the larger one.
  const CollectiveTraits traits = traits_of(shape.collective);
  std::byte* in = shared.data() + (traits.output_each && !traits.input_each ? own : 0);
  std::byte* out = shared.data() + (traits.input_each && !traits.output_each ? own : 0);
  TUTTI_TRY(line.in_place, measure_placed(comm, options, shape, line.bytes, in, out, false));
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
