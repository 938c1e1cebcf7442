// File: perf/cuda_bench.cc: how fast the kernels are, on one device, next to what its memory
// allows.
//
// The measure is the device's own copy: what moves B bytes, each read or written once, can't take
// less than a copy that moves as many. Copies and kernels take turns, and each is compared with the
// copy of its own round; figures are medians. Several ranks on one device have its memory to share,
// so the bound of an all-reduce among them is that each input is read and each output written once.
//
// Built by nvcc's preset (scripts/gpu-check runs it), and for simulated devices, where it shows
// that it works, and nothing else.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "algorithms/algorithm.h"
#include "cuda/mesh/mesh.h"
#include "perf/command_line/command_line.h"
#include "perf/cuda_table.h"
#include "perf/cuda_timing.h"
#include "plan/passes/passes.h"
#include "tutti/device_communicator.h"

namespace tutti {
namespace {

using exec::cuda_status;
using exec::CudaCall;
using exec::CudaMemory;
using exec::CudaMesh;
using timing::median;
using timing::mesh_of;
using timing::Options;
using timing::rate;
using timing::spread;
using timing::Streams;
using timing::Table;

/// Any bits but zeros, of which some devices know that they are.
Status fill(CudaMemory& memory) {
  std::vector<std::uint64_t> words(std::min(memory.size(), std::size_t{64} << 20) / 8);
  std::uint64_t random = 1;
  for (std::uint64_t& word : words) {
    random = random * 6364136223846793005ULL + 1442695040888963407ULL;
    word = random;
  }
  for (std::size_t at = 0; at < memory.size();) {
    const std::size_t part = std::min(words.size() * 8, memory.size() - at);
    TUTTI_RETURN_IF_ERROR(memory.write(at, words.data(), part));
    at += part;
  }
  return ok();
}

/// The device's copy, and what is compared with it.
class Bench {
 public:
  Bench(const Options& options, Table& table) : options_(options), table_(table) {}

  Status prepare() {
    TUTTI_TRY(multiprocessors_, timing::multiprocessors_of(0));
    // Eight sources, eight targets; of 8 ranks each has a part of both.
    TUTTI_TRY(inputs_, CudaMemory::allocate(0, kMost * options_.bytes));
    TUTTI_TRY(outputs_, CudaMemory::allocate(0, kMost * options_.bytes));
    return fill(inputs_);
  }

  /// An idle device's clocks rise while it works.
  Status warm_up() const {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    while (std::chrono::steady_clock::now() < until) {
      TUTTI_TRY([[maybe_unused]] const double time, copy());
    }
    return ok();
  }

  Status copy_rate() {
    std::vector<double> times;
    for (int round = 0; round <= options_.rounds; ++round) {
      TUTTI_TRY(const double time, copy());
      if (round > 0) times.push_back(time);
    }
    const double time = median(times);
    table_.add({.what = "copy of the device, read and written",
                .microseconds = time,
                .gigabytes = rate(2 * options_.bytes, time),
                .spread = spread(times)});
    return ok();
  }

  /// A step with n sources and m targets, by all of the device.
  void step(DataType type, unsigned sources, unsigned targets) {
    const std::string what = "step, " + std::to_string(sources) + " to " + std::to_string(targets) +
                             ", " + std::string(to_string(type));
    table_.measure(what, [&]() -> Status {
      exec::CudaMeshOptions mesh_options = mesh_of({0});
      mesh_options.lanes = multiprocessors_;
      mesh_options.slot_count = 1;
      mesh_options.slot_bytes = 1024;
      mesh_options.area_bytes = 128;
      TUTTI_TRY(auto mesh, CudaMesh::create(mesh_options));
      TUTTI_TRY(const exec::CudaPlan plan, mesh->load(step_plan(sources, targets)));
      CudaCall call;
      call.type = type;
      call.count = options_.bytes / size_of(type);
      call.input = inputs_.data();
      call.output = outputs_.data();
      constexpr double kGoal = 0.92;
      return compare([&] { return timing::check(*mesh, 1); }, one_, what,
                     (sources + targets) * options_.bytes, sources > 1 && targets == 1 ? kGoal : -1,
                     [&](std::size_t) { return mesh->launch(0, plan, call, one_[0]); });
    });
  }

  /// All-reduces and what is fused with them, among ranks that share the device.
  void ranks(DataType type, std::size_t n) {
    const std::string of = ", " + std::to_string(n) + " ranks, " + std::string(to_string(type));
    table_.measure("all-reduces" + of, [&] { return ranks(type, n, of); });
    if (n == 1) return;
    table_.measure("communicators" + of, [&] { return communicators(type, n, of); });
  }

  /// A short call, again and again, as a graph.
  void latency(std::size_t n) {
    const std::string what = "one-shot of 8 bytes in a graph, " + std::to_string(n) + " ranks";
    table_.measure(what, [&]() -> Status {
      const exec::CudaMeshOptions mesh_options = mesh_of(std::vector<int>(n, 0));
      TUTTI_TRY(auto mesh, CudaMesh::create(mesh_options));
      const Streams streams(mesh_options.devices);
      const auto calls = calls_of(n, DataType::kFloat32, 2, 256);
      const auto enqueue = [&] { return timing::launch_one_shots(*mesh, calls, streams); };
      // A launch of long graphs may block where their device has several.
      const int replays = std::max(1, options_.replays * 2 / static_cast<int>(n));
      TUTTI_TRY(const auto times, streams.replayed(enqueue, replays, options_.rounds));
      TUTTI_RETURN_IF_ERROR(timing::check(*mesh, n));
      constexpr double kGoal = 6;
      table_.add({.what = what,
                  .microseconds = median(times),
                  .goal = n == 2 ? kGoal : -1,
                  .spread = spread(times)});
      return ok();
    });
  }

 private:
  static constexpr std::size_t kMost = cuda::kMostSources;
  static constexpr std::size_t kShort = std::size_t{64} << 10;  // Bytes of a short plain call.

  /// Ranks have their buffers at multiples of `stride` in inputs_ and outputs_.
  std::vector<CudaCall> calls_of(std::size_t ranks, DataType type, std::size_t count,
                                 std::size_t stride) const {
    const auto input = [&](std::size_t rank) { return inputs_.data() + rank * stride; };
    const auto output = [&](std::size_t rank) { return outputs_.data() + rank * stride; };
    return timing::calls_of(ranks, type, count, input, output);
  }

  Result<double> copy() const {
    return one_.microseconds([&](std::size_t) {
      return cuda_status(cudaMemcpyAsync(outputs_.data(), inputs_.data(), options_.bytes,
                                         cudaMemcpyDeviceToDevice, one_[0]),
                         "a copy");
    });
  }

  /// With a copy in each round; the first round is not counted.
  Status compare(const std::function<Status()>& has_ended, const Streams& streams,
                 const std::string& what, std::size_t moved, double goal,
                 const std::function<Status(std::size_t stream)>& enqueue) {
    std::vector<double> times, shares;
    for (int round = 0; round <= options_.rounds; ++round) {
      TUTTI_TRY(const double copied, copy());
      TUTTI_TRY(const double time, streams.microseconds(enqueue));
      TUTTI_RETURN_IF_ERROR(has_ended());
      if (round == 0) continue;
      times.push_back(time);
      const double bound =
          copied * static_cast<double>(moved) / static_cast<double>(2 * options_.bytes);
      shares.push_back(time > 0 ? bound / time : 0);
    }
    table_.add({.what = what,
                .microseconds = median(times),
                .gigabytes = rate(moved, median(times)),
                .share = median(shares),
                .goal = goal,
                .spread = spread(times)});
    return ok();
  }

  Status ranks(DataType type, std::size_t n, const std::string& of) {
    exec::CudaMeshOptions mesh_options = mesh_of(std::vector<int>(n, 0));
    mesh_options.lanes = std::max<std::uint32_t>(1, multiprocessors_ / static_cast<unsigned>(n));
    TUTTI_TRY(auto mesh, CudaMesh::create(mesh_options));
    const auto calls = calls_of(n, type, options_.bytes / size_of(type), options_.bytes);
    const Streams streams(mesh_options.devices);
    const std::size_t moved = 2 * n * options_.bytes;
    constexpr double kGoal = 0.85;
    const auto has_ended = [&] { return timing::check(*mesh, n); };
    TUTTI_RETURN_IF_ERROR(compare(has_ended, streams, "two-shot all-reduce" + of, moved,
                                  n == 8 ? kGoal : -1, [&](std::size_t rank) {
                                    return mesh->launch_two_shot(static_cast<int>(rank),
                                                                 calls[rank], streams[rank]);
                                  }));
    if (n == 1) return rms_norm(*mesh, streams, calls, of);  // Nothing is lowered for one.
    const auto two_shot = build(*find_algorithm(Collective::kAllReduce, "two_shot"),
                                {Collective::kAllReduce, static_cast<int>(n)});
    const auto direct = plan::direct(two_shot);
    if (!direct) return Error{Code::kInvalidArgument, "two_shot can't be lowered"};
    TUTTI_TRY(const exec::CudaPlan plan, mesh->load(plan::replicate(*direct, mesh_options.lanes)));
    TUTTI_RETURN_IF_ERROR(
        compare(has_ended, streams, "the same, interpreted" + of, moved, -1, [&](std::size_t rank) {
          return mesh->launch(static_cast<int>(rank), plan, calls[rank], streams[rank]);
        }));
    return rms_norm(*mesh, streams, calls, of);
  }

  /// The same by communicators, as programs call them, on memory that ranks have registered; with
  /// the lanes that they take where ranks share a device.
  Status communicators(DataType type, std::size_t n, const std::string& of) {
    Settings settings;
    settings.timeout = std::chrono::seconds(5);
    settings.lanes = static_cast<int>(std::max<std::size_t>(1, multiprocessors_ / n / 2));
    const std::vector<int> devices(n, 0);
    TUTTI_TRY(auto comms, DeviceCommunicator::in_process(devices, settings));
    if (n == cuda::kMostSources && type == DataType::kFloat32) {
      for (const std::size_t bytes : {std::min(options_.bytes, kShort), options_.bytes}) {
        for (int collective = 0; collective < kCollectiveCount; ++collective)
          plain(comms, static_cast<Collective>(collective), bytes);
      }
      messages(comms);
    }
    TUTTI_RETURN_IF_ERROR(register_buffers(comms));
    const auto request = [&](std::size_t rank) {
      return Request{.input = inputs_.data() + rank * options_.bytes,
                     .output = outputs_.data() + rank * options_.bytes,
                     .count = options_.bytes / size_of(type),
                     .type = type};
    };
    for (std::size_t rank = 0; rank < n; ++rank)
      TUTTI_RETURN_IF_ERROR(comms[rank].prepare(request(rank)));
    const Streams streams(devices);
    return compare(
        [&] { return check(comms); }, streams, "all-reduce of communicators, registered" + of,
        2 * n * options_.bytes, n == 8 ? 0.85 : -1,
        [&](std::size_t rank) { return comms[rank].call(request(rank), streams[rank]); });
  }

  /// Buffers that no rank has registered, as most programs have them. The larger of a rank's input
  /// and output has so many bytes.
  void plain(std::vector<DeviceCommunicator>& comms, Collective collective, std::size_t bytes) {
    const std::size_t n = comms.size();
    const CollectiveTraits traits = traits_of(collective);
    const bool each = traits.input_each || traits.output_each;
    const auto request = [&](std::size_t rank) {
      return Request{.collective = collective,
                     .input = inputs_.data() + rank * options_.bytes,
                     .output = outputs_.data() + rank * options_.bytes,
                     .count = bytes / size_of(DataType::kFloat32) / (each ? n : 1),
                     .type = DataType::kFloat32};
    };
    const std::string what = fmt::format("{} of communicators, plain, {} KiB, {} ranks",
                                         to_string(collective), bytes >> 10, n);
    table_.measure(what, [&]() -> Status {
      for (std::size_t rank = 0; rank < n; ++rank)
        TUTTI_RETURN_IF_ERROR(comms[rank].prepare(request(rank)));
      const Streams streams(std::vector<int>(n, 0));
      return compare(
          [&] { return check(comms); }, streams, what, 2 * n * bytes, -1,
          [&](std::size_t rank) { return comms[rank].call(request(rank), streams[rank]); });
    });
  }

  /// Each rank sends to the next and gets from the one before.
  void messages(std::vector<DeviceCommunicator>& comms) {
    const std::size_t n = comms.size(), count = options_.bytes;
    const std::string what =
        fmt::format("send and receive of communicators, {} KiB, {} ranks", count >> 10, n);
    table_.measure(what, [&]() -> Status {
      const Streams streams(std::vector<int>(n, 0));
      const auto exchange = [&](std::size_t rank) -> Status {
        Group group;
        const auto peer = [&](std::size_t steps) {
          return Rank{static_cast<int>((rank + steps) % n)};
        };
        TUTTI_RETURN_IF_ERROR(comms[rank].send(inputs_.data() + rank * count, count,
                                               DataType::kUint8, peer(1), streams[rank]));
        TUTTI_RETURN_IF_ERROR(comms[rank].recv(outputs_.data() + rank * count, count,
                                               DataType::kUint8, peer(n - 1), streams[rank]));
        return group.end();
      };
      return compare([&] { return check(comms); }, streams, what, 2 * n * count, -1, exchange);
    });
  }

  static Status check(const std::vector<DeviceCommunicator>& comms) {
    for (const DeviceCommunicator& comm : comms) TUTTI_RETURN_IF_ERROR(comm.check());
    return ok();
  }

  /// Each rank's part of inputs_ and outputs_, which takes all ranks at a time.
  Status register_buffers(std::vector<DeviceCommunicator>& comms) const {
    std::vector<Status> outcomes(comms.size());
    {
      std::vector<std::jthread> threads;
      for (std::size_t rank = 0; rank < comms.size(); ++rank) {
        threads.emplace_back([&, rank] {
          for (const CudaMemory* memory : {&inputs_, &outputs_}) {
            if (outcomes[rank])
              outcomes[rank] = comms[rank].register_memory(memory->data() + rank * options_.bytes,
                                                           options_.bytes);
          }
        });
      }
    }
    for (Status& outcome : outcomes) TUTTI_RETURN_IF_ERROR(std::move(outcome));
    return ok();
  }

  /// One rank's plan: block s of its input is source s, block t of its output target t, and each
  /// lane has a piece of them.
  plan::Plan step_plan(unsigned sources, unsigned targets) const {
    plan::Plan plan;
    plan.name = "a step";
    plan.shape = {Collective::kReduceScatter, 1};
    plan.pieces = multiprocessors_;
    for (std::uint32_t piece = 0; piece < plan.pieces; ++piece) {
      plan::Lane lane;
      for (unsigned s = 0; s < sources; ++s) {
        lane.locations.push_back(
            {plan::Place::kInput, Form::kContribution, 0, s * plan.pieces + piece});
      }
      for (unsigned t = 0; t < targets; ++t) {
        lane.locations.push_back({plan::Place::kOutput, Form::kResult, 0, t * plan.pieces + piece});
      }
      lane.steps.push_back({plan::StepKind::kMove, 0, static_cast<std::uint16_t>(sources),
                            static_cast<std::uint16_t>(targets), 0, piece});
      if (piece == 0) plan.ranks.resize(1);
      plan.ranks[0].lanes.push_back(std::move(lane));
    }
    return plan;
  }

  /// The residual is the last rank's input: what it holds does not matter here.
  Status rms_norm(CudaMesh& mesh, const Streams& streams, const std::vector<CudaCall>& calls,
                  const std::string& of) {
    constexpr std::size_t kColumns = 4096;
    const std::size_t n = calls.size();
    TUTTI_TRY(const CudaMemory weight, CudaMemory::allocate(0, kColumns * size_of(calls[0].type)));
    TUTTI_TRY(const CudaMemory residuals, CudaMemory::allocate(0, n * options_.bytes));
    std::vector<exec::CudaRmsNorm> norms;
    for (const CudaCall& call : calls) {
      exec::CudaRmsNorm& norm = norms.emplace_back();
      norm.call = call;
      for (std::size_t rank = 0; rank < n; ++rank) {
        norm.residuals.push_back(residuals.data() + rank * options_.bytes);
      }
      norm.weight = weight.data();
      norm.columns = std::min(kColumns, call.count);
      norm.rows = call.count / norm.columns;
    }
    // Inputs and a residual are read, all residuals and outputs written.
    const std::size_t moved = (3 * n + 1) * options_.bytes;
    const auto has_ended = [&] { return timing::check(mesh, n); };
    return compare(
        has_ended, streams, "with residual and RMSNorm" + of, moved, -1, [&](std::size_t rank) {
          return mesh.launch_rms_norm(static_cast<int>(rank), norms[rank], streams[rank]);
        });
  }

  const Options& options_;
  Table& table_;
  const Streams one_{{0}};
  CudaMemory inputs_, outputs_;
  std::uint32_t multiprocessors_ = 1;
};

/// The parts of a process's start until its first call ends: the device, communicators, the call.
Status first_communicator(Table& table) {
  using Clock = std::chrono::steady_clock;
  const auto since = [](Clock::time_point start) {
    return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  };
  auto start = Clock::now();
  TUTTI_TRY(const CudaMemory touched, CudaMemory::allocate(0, 256));
  table.add({"the device's first allocation in a process", since(start)});
  start = Clock::now();
  const std::vector<int> devices{0, 0};
  Settings settings;
  settings.timeout = std::chrono::seconds(5);
  TUTTI_TRY(auto comms, DeviceCommunicator::in_process(devices, settings));
  constexpr double kGoal = 200e3;
  table.add({"the first communicator, 2 ranks", since(start), 0, -1, kGoal});
  start = Clock::now();
  const Streams streams(devices);
  TUTTI_TRY(const CudaMemory buffers, CudaMemory::allocate(0, 1024));
  TUTTI_TRY([[maybe_unused]] const double time, streams.microseconds([&](std::size_t rank) {
    const std::byte* const input = buffers.data() + rank * 512;
    return comms[rank].call({.input = input,
                             .output = buffers.data() + rank * 512 + 256,
                             .count = 2,
                             .type = DataType::kFloat32},
                            streams[rank]);
  }));
  table.add({"the first call", since(start)});
  for (const DeviceCommunicator& comm : comms) TUTTI_RETURN_IF_ERROR(comm.check());
  return ok();
}

void run(const Options& options, bool alone, Table& table) {
  if (!alone) table.measure("the first communicator", [&] { return first_communicator(table); });
  Bench bench(options, table);
  const bool there = table.measure("copy of the device, read and written", [&]() -> Status {
    TUTTI_RETURN_IF_ERROR(bench.prepare());
    TUTTI_RETURN_IF_ERROR(bench.warm_up());
    return bench.copy_rate();
  });
  if (!there) return;  // Nor is there memory for the others.
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    if (alone) bench.ranks(type, 1);
    for (unsigned sources = 1; sources <= cuda::kMostSources; ++sources)
      bench.step(type, sources, 1);
    bench.step(type, 2, 2);
  }
  if (alone) return;
  bench.ranks(DataType::kFloat32, 2);
  bench.ranks(DataType::kFloat32, 8);
  bench.ranks(DataType::kBfloat16, 8);
  for (const std::size_t n : {2, 4, 8}) bench.latency(n);
}

}  // namespace
}  // namespace tutti

int main(int count, char** words) {
  tutti::perf::CommandLine app("How fast the CUDA kernels are on one device");
  bool alone = false;
  app.add_flag("--alone", alone,
               "only kernels that wait for no other: what compute-sanitizer can run");
  return tutti::timing::run_program(
      app, count, words, {"of bound", "share_of_bound"},
      [&](const tutti::timing::Options& options, tutti::timing::Table& table) {
        tutti::run(options, alone, table);
      });
}
