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

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "algorithms/algorithm.h"
#include "exec/cuda_mesh.h"
#include "perf/cuda_timing.h"
#include "plan/passes.h"

namespace tutti {
namespace {

using exec::cuda_status;
using exec::CudaCall;
using exec::CudaMemory;
using exec::CudaMesh;
using timing::median;
using timing::rate;
using timing::Row;
using timing::Streams;

struct Options {
  std::size_t bytes = std::size_t{256} << 20;
  int rounds = 9;
  int replays = 200;
  bool alone = false;
  std::string json;
};

/// The device's copy, and what is compared with it.
class Bench {
 public:
  Bench(const Options& options, std::vector<Row>& rows) : options_(options), rows_(rows) {}

  Status prepare() {
    int multiprocessors = 0;
    TUTTI_CHECK_OK(cuda_status(
        cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "the device"));
    multiprocessors_ = static_cast<std::uint32_t>(multiprocessors);
    // Eight sources, eight targets; of 8 ranks each has a part of both.
    TUTTI_TRY(inputs_, CudaMemory::allocate(0, kMost * options_.bytes));
    TUTTI_TRY(outputs_, CudaMemory::allocate(0, kMost * options_.bytes));
    return ok();
  }

  Status copy_rate() {
    std::vector<double> times;
    for (int round = 0; round <= options_.rounds; ++round) {
      TUTTI_TRY(const double time, copy());
      if (round > 0) times.push_back(time);
    }
    const double time = median(times);
    rows_.push_back({"copy of the device, read and written", time, rate(2 * options_.bytes, time)});
    return ok();
  }

  /// A step with n sources and m targets, by all of the device.
  Status step(DataType type, unsigned sources, unsigned targets) {
    exec::CudaMeshOptions mesh_options;
    mesh_options.devices = {0};
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
    const std::string what = std::to_string(sources) + " to " + std::to_string(targets) + ", " +
                             std::string(to_string(type));
    constexpr double kGoal = 0.92;
    return compare(one_, "step, " + what, (sources + targets) * options_.bytes,
                   sources > 1 && targets == 1 ? kGoal : -1,
                   [&](std::size_t) { return mesh->launch(0, plan, call, one_[0]); });
  }

  /// All-reduces and what is fused with them, among ranks that share the device.
  Status ranks(DataType type, std::size_t n) {
    exec::CudaMeshOptions mesh_options;
    mesh_options.devices.assign(n, 0);
    mesh_options.lanes = std::max<std::uint32_t>(1, multiprocessors_ / static_cast<unsigned>(n));
    TUTTI_TRY(auto mesh, CudaMesh::create(mesh_options));
    const std::size_t count = options_.bytes / size_of(type);
    std::vector<CudaCall> calls(n);
    for (CudaCall& call : calls) {
      const auto rank = static_cast<std::size_t>(&call - calls.data());
      call.type = type;
      call.count = count;
      call.input = inputs_.data() + rank * options_.bytes;
      call.output = outputs_.data() + rank * options_.bytes;
      for (std::size_t peer = 0; peer < n; ++peer) {
        call.peer_inputs.push_back(inputs_.data() + peer * options_.bytes);
        call.peer_outputs.push_back(outputs_.data() + peer * options_.bytes);
      }
    }
    const Streams streams(mesh_options.devices);
    const std::string of = ", " + std::to_string(n) + " ranks, " + std::string(to_string(type));
    const std::size_t moved = 2 * n * options_.bytes;
    constexpr double kGoal = 0.85;
    TUTTI_CHECK_OK(compare(
        streams, "two-shot all-reduce" + of, moved, n == 8 ? kGoal : -1, [&](std::size_t rank) {
          return mesh->launch_two_shot(static_cast<int>(rank), calls[rank], streams[rank]);
        }));
    if (n == 1) return rms_norm(*mesh, streams, calls, of);  // Nothing is lowered for one.
    const auto two_shot = build(*find_algorithm(Collective::kAllReduce, "two_shot"),
                                {Collective::kAllReduce, static_cast<int>(n)});
    const auto direct = plan::direct(two_shot);
    if (!direct) return Error{Code::kInvalidArgument, "two_shot can't be lowered"};
    TUTTI_TRY(const exec::CudaPlan plan, mesh->load(plan::replicate(*direct, mesh_options.lanes)));
    TUTTI_CHECK_OK(compare(streams, "the same, interpreted" + of, moved, -1, [&](std::size_t rank) {
      return mesh->launch(static_cast<int>(rank), plan, calls[rank], streams[rank]);
    }));
    return rms_norm(*mesh, streams, calls, of);
  }

  /// A short call, again and again, as a graph.
  Status latency(std::size_t n) {
    exec::CudaMeshOptions mesh_options;
    mesh_options.devices.assign(n, 0);
    TUTTI_TRY(auto mesh, CudaMesh::create(mesh_options));
    const Streams streams(mesh_options.devices);
    const auto enqueue = [&]() -> Status {
      for (std::size_t rank = 0; rank < n; ++rank) {
        CudaCall call;
        call.count = 2;
        call.input = inputs_.data() + rank * 256;
        call.output = outputs_.data() + rank * 256;
        TUTTI_CHECK_OK(mesh->launch_one_shot(static_cast<int>(rank), call, streams[rank]));
      }
      return ok();
    };
    TUTTI_TRY(const auto times, streams.replayed(enqueue, options_.replays, options_.rounds));
    for (std::size_t rank = 0; rank < n; ++rank) {
      TUTTI_CHECK_OK(mesh->check(static_cast<int>(rank)));
    }
    constexpr double kGoal = 6;
    rows_.push_back({"one-shot of 8 bytes in a graph, " + std::to_string(n) + " ranks",
                     median(times), 0, -1, n == 2 ? kGoal : -1});
    return ok();
  }

 private:
  static constexpr std::size_t kMost = 8;

  Result<double> copy() const {
    return one_.microseconds([&](std::size_t) {
      return cuda_status(cudaMemcpyAsync(outputs_.data(), inputs_.data(), options_.bytes,
                                         cudaMemcpyDeviceToDevice, one_[0]),
                         "a copy");
    });
  }

  /// With a copy in each round; the first round is not counted.
  Status compare(const Streams& streams, const std::string& what, std::size_t moved, double goal,
                 const std::function<Status(std::size_t stream)>& enqueue) {
    std::vector<double> times, shares;
    for (int round = 0; round <= options_.rounds; ++round) {
      TUTTI_TRY(const double copied, copy());
      TUTTI_TRY(const double time, streams.microseconds(enqueue));
      if (round == 0) continue;
      times.push_back(time);
      const double bound =
          copied * static_cast<double>(moved) / static_cast<double>(2 * options_.bytes);
      shares.push_back(time > 0 ? bound / time : 0);
    }
    rows_.push_back({what, median(times), rate(moved, median(times)), median(shares), goal});
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
    return compare(streams, "with residual and RMSNorm" + of, moved, -1, [&](std::size_t rank) {
      return mesh.launch_rms_norm(static_cast<int>(rank), norms[rank], streams[rank]);
    });
  }

  const Options& options_;
  std::vector<Row>& rows_;
  const Streams one_{{0}};
  CudaMemory inputs_, outputs_;
  std::uint32_t multiprocessors_ = 1;
};

/// What a process waits for before its first call ends: the device, the mesh, a kernel.
Status first_mesh(std::vector<Row>& rows) {
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto since = [&](std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double, std::micro>(now() - start).count();
  };
  auto start = now();
  TUTTI_TRY(const CudaMemory touched, CudaMemory::allocate(0, 256));
  rows.push_back({"the device's first allocation in a process", since(start)});
  start = now();
  exec::CudaMeshOptions options;
  options.devices = {0, 0};
  TUTTI_TRY(auto mesh, CudaMesh::create(options));
  constexpr double kGoal = 200e3;
  rows.push_back({"the first mesh, 2 ranks", since(start), 0, -1, kGoal});
  start = now();
  const Streams streams(options.devices);
  TUTTI_TRY(const CudaMemory buffers, CudaMemory::allocate(0, 1024));
  TUTTI_TRY([[maybe_unused]] const double time, streams.microseconds([&](std::size_t rank) {
    CudaCall call;
    call.count = 2;
    call.input = buffers.data() + rank * 512;
    call.output = buffers.data() + rank * 512 + 256;
    return mesh->launch_one_shot(static_cast<int>(rank), call, streams[rank]);
  }));
  rows.push_back({"the first call, its kernel loaded", since(start)});
  return mesh->check(0);
}

Status run(const Options& options, std::vector<Row>& rows) {
  if (!options.alone) TUTTI_CHECK_OK(first_mesh(rows));
  Bench bench(options, rows);
  TUTTI_CHECK_OK(bench.prepare());
  TUTTI_CHECK_OK(bench.copy_rate());
  for (const DataType type : {DataType::kFloat32, DataType::kBfloat16}) {
    if (options.alone) TUTTI_CHECK_OK(bench.ranks(type, 1));
    for (const unsigned sources : {1u, 2u, 3u, 4u, 6u, 8u}) {
      TUTTI_CHECK_OK(bench.step(type, sources, 1));
    }
    TUTTI_CHECK_OK(bench.step(type, 2, 2));
  }
  if (options.alone) return ok();
  TUTTI_CHECK_OK(bench.ranks(DataType::kFloat32, 2));
  TUTTI_CHECK_OK(bench.ranks(DataType::kFloat32, 8));
  TUTTI_CHECK_OK(bench.ranks(DataType::kBfloat16, 8));
  for (const std::size_t n : {2, 4, 8}) TUTTI_CHECK_OK(bench.latency(n));
  return ok();
}

}  // namespace
}  // namespace tutti

int main(int count, char** words) {
  tutti::Options options;
  CLI::App app("How fast the CUDA kernels are on one device");
  app.add_option("--bytes", options.bytes, "of each source, target, and rank's buffer")
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--rounds", options.rounds, "of each measurement")->check(CLI::Range(1, 1000));
  app.add_option("--replays", options.replays, "calls in a graph")->check(CLI::Range(1, 500));
  app.add_flag("--alone", options.alone,
               "only kernels that wait for no other: what compute-sanitizer can run");
  app.add_option("--json", options.json, "file to write the figures to, too");
  CLI11_PARSE(app, count, words);
  if (options.bytes < 1024 || options.bytes % 1024 != 0) {
    std::fprintf(stderr, "cuda_bench: --bytes takes a multiple of 1024\n");
    return 2;
  }
  std::vector<tutti::timing::Row> rows;
  tutti::Status status = tutti::run(options, rows);
  tutti::timing::print(rows, "of bound");
  if (status && !options.json.empty())
    status = tutti::timing::write_json(options.json, rows, "share_of_bound", options.bytes,
                                       options.rounds);
  if (status) return 0;
  std::fprintf(stderr, "cuda_bench: %s\n", status.error().to_string().c_str());
  return 1;
}
