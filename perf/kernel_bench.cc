// File: perf/kernel_bench.cc: how fast the body of a data step is, by shape (sources to targets),
// bytes of one buffer, type and kind of stores. The figure to read is bytes_per_second: all bytes
// read plus all bytes written. `copy/memcpy` is the measure to hold 1:1 against.
//   kernel_bench --benchmark_filter='reduce/float32/.*/1048576'
#include <benchmark/benchmark.h>

#include <cstring>
#include <deque>
#include <string>
#include <vector>

#include "kernels/host/reduce.h"
#include "kernels/host/wire.h"
#include "perf/sweep/buffer.h"

namespace {

using tutti::DataType;
using tutti::Form;
using namespace tutti::kernels;  // NOLINT(google-build-using-namespace): all it measures.

// Buffers at the same offset within a page would compete for the same cache sets.
constexpr std::size_t kSkewed = 4096;
std::size_t skew(std::size_t index) { return index * 192 % kSkewed; }

struct Shape {
  DataType type;
  std::size_t sources, targets, bytes;
  Stores stores;
};

void run_step(benchmark::State& state, const Shape& shape) {
  std::deque<tutti::perf::Buffer> memory;
  std::vector<Source> sources;
  std::vector<Target> targets;
  for (std::size_t i = 0; i < shape.sources; ++i) {
    memory.emplace_back(shape.bytes + kSkewed);
    sources.push_back({memory.back().data() + skew(i), Form::kContribution});
  }
  const Form form = shape.sources == 1 ? Form::kContribution : Form::kResult;
  for (std::size_t i = 0; i < shape.targets; ++i) {
    memory.emplace_back(shape.bytes + kSkewed);
    targets.push_back({memory.back().data() + skew(shape.sources + i), form});
  }
  Arithmetic arithmetic;
  arithmetic.type = shape.type;
  const std::size_t count = shape.bytes / size_of(shape.type);
  for (auto _ : state) {
    reduce(arithmetic, sources, targets, count, shape.stores);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations()) *
                                                    shape.bytes * (shape.sources + shape.targets)));
}

void run_memcpy(benchmark::State& state, std::size_t bytes) {
  const tutti::perf::Buffer from(bytes + kSkewed), to(bytes + kSkewed);
  for (auto _ : state) {
    std::memcpy(to.data() + skew(1), from.data(), bytes);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(
      static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations()) * bytes * 2));
}

/// A step of a two-shot all-reduce on a wire: bytes_per_second counts float32, as if nothing were
/// encoded. "send": an input to a slot. "own": this rank's input and a slot, to the output.
/// "get": a slot to the output.
void run_wire_step(benchmark::State& state, tutti::Wire wire, const std::string& what,
                   std::size_t bytes) {
  const std::size_t count = bytes / sizeof(float);
  const tutti::perf::Buffer input(bytes), slot(bytes + kSkewed), output(bytes);
  float value = 1;
  for (std::size_t i = 0; i < count; ++i, value = value * -1.003F)
    std::memcpy(input.data() + i * sizeof(float), &value, sizeof(value));
  const Arithmetic arithmetic{DataType::kFloat32, tutti::ReduceOp::kSum, 2};
  const WireSource own{input.data(), WireSource::Kind::kInput, Form::kContribution};
  const WireSource from{slot.data(), WireSource::Kind::kEncoded, Form::kContribution};
  const WireSource done{slot.data(), WireSource::Kind::kEncoded, Form::kResult};
  const WireTarget to{slot.data(), true, Form::kContribution}, out{output.data()};
  const std::vector<WireSource> sources = what == "send"  ? std::vector{own}
                                          : what == "own" ? std::vector{own, from}
                                                          : std::vector{done};
  const std::vector<WireTarget> targets{what == "send" ? to : out};
  WireWork work(sources.size(), targets.size());
  for (auto _ : state) {
    run({arithmetic, wire, sources, targets, count, 0, 1, 2}, work);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<std::int64_t>(static_cast<std::size_t>(state.iterations()) *
                                                    bytes * (sources.size() + 1)));
}

void add_wires() {
  for (const char* const name : {"float16", "bfloat16", "bfloat16:stochastic", "int8:nearest",
                                 "int8", "float8:nearest", "float8"}) {
    for (const char* const what : {"send", "own", "get"}) {
      const std::size_t bytes = std::size_t{64} << 10;
      const auto wire = tutti::parse_wire(name).value();
      benchmark::RegisterBenchmark((std::string("wire/") + name + "/" + what).c_str(),
                                   [=](auto& state) { run_wire_step(state, wire, what, bytes); });
    }
  }
}

void add_shape(const std::string& group, const Shape& shape) {
  const std::string name = group + "/" + std::string(to_string(shape.type)) + "/" +
                           std::to_string(shape.sources) + "to" + std::to_string(shape.targets) +
                           "/" + (shape.stores == Stores::kCached ? "cached" : "streaming") + "/" +
                           std::to_string(shape.bytes);
  benchmark::RegisterBenchmark(name.c_str(), [shape](auto& state) { run_step(state, shape); });
}

void add_all() {
  constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;
  const std::size_t sizes[] = {4 * kKiB, 64 * kKiB, kMiB, 64 * kMiB};
  for (const std::size_t bytes : sizes) {
    const std::string name = "copy/memcpy/" + std::to_string(bytes);
    benchmark::RegisterBenchmark(name.c_str(), [bytes](auto& state) { run_memcpy(state, bytes); });
  }
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    for (const auto& [sources, targets] :
         {std::pair{1, 1}, {1, 2}, {2, 1}, {2, 2}, {4, 4}, {8, 8}}) {
      for (const Stores stores : {Stores::kCached, Stores::kStreaming}) {
        for (const std::size_t bytes : sizes) {
          add_shape("reduce", {type, static_cast<std::size_t>(sources),
                               static_cast<std::size_t>(targets), bytes, stores});
        }
      }
    }
  }
  // The eight-byte all-reduce and its neighbours: here the time counts, not the bandwidth.
  for (const std::size_t count : {1, 2, 3, 4, 8, 14, 16}) {
    add_shape("tiny", {DataType::kFloat32, 2, 1, count * 4, Stores::kCached});
    add_shape("tiny", {DataType::kBfloat16, 2, 1, count * 2, Stores::kCached});
  }
  for (const DataType type : {DataType::kFloat16, DataType::kFloat64, DataType::kInt32,
                              DataType::kInt8, DataType::kFloat8E4M3, DataType::kFloat8E5M2}) {
    add_shape("type", {type, 2, 2, 64 * kKiB, Stores::kCached});
  }
  for (const std::size_t sources : {3, 5, 7, 9, 16, 33}) {
    add_shape("sources", {DataType::kFloat32, sources, 1, 64 * kKiB, Stores::kCached});
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::AddCustomContext("instruction_set", instruction_set());
  add_all();
  add_wires();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
