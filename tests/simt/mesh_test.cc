// Plans on devices: every algorithm, data type, operation and slot format, on 1 to 8 devices, bit
// for bit what the host's reference says. Few slots (2) and small ones, so that rings come round;
// seeds, so that threads run in any order.
#include "cuda/mesh/mesh.h"

#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "algorithms/algorithm.h"
#include "plan/passes/passes.h"
#include "plan/verify/verify.h"
#include "simt/communicator/device_ranks.h"
#include "support/catch.h"
#include "support/kinds.h"
#include "support/plans.h"
#include "support/sample.h"

namespace tutti {
namespace {

using cuda::SlotFormat;
using plan::Plan;
using test::Case;
using test::DeviceRanks;
using test::said;

struct Arithmetic {
  DataType type;
  ReduceOp op;
};

std::vector<Arithmetic> all_arithmetic() {
  std::vector<Arithmetic> all;
  for (const DataType type : test::all_types()) {
    for (const ReduceOp op : test::all_ops()) {
      if (is_supported(type, op)) all.push_back({type, op});
    }
  }
  return all;
}

exec::CudaMeshOptions options_for(int ranks, SlotFormat format) {
  exec::CudaMeshOptions options;
  for (int rank = 0; rank < ranks; ++rank) options.devices.push_back(test::device_of(rank));
  options.lanes = 4;
  options.slot_count = 2;
  options.slot_bytes = 2048;
  options.format = format;
  if (format == SlotFormat::kSimple) {  // Plans take these rings and those in turn.
    options.more = {{SlotFormat::kPacked, 3, 1024}, {SlotFormat::kLine, 3, 1024}};
  }
  options.threads = 64;
  return options;
}

Case case_for(const Plan& plan, Arithmetic arithmetic, std::size_t count, std::uint64_t random) {
  Case test;
  test.collective = plan.shape.collective;
  test.type = arithmetic.type;
  test.op = arithmetic.op;
  test.count = count;
  test.ranks = plan.shape.rank_count;
  test.root = plan.shape.root;
  test.in_place = !plan.apart && random % 3 == 0;
  test.misalign = random % 5 == 0 ? size_of(arithmetic.type) : 0;
  test.exact = plan.contract == Contract::kRelaxed;
  return test;
}

/// Sizes at the edges: nothing, less than a unit, a tile and one more, several tiles and a prime.
std::size_t count_for(std::uint64_t random) {
  constexpr std::size_t kCounts[] = {0, 1, 3, 16, 127, 128, 129, 509, 1021, 2053};
  return kCounts[random % std::size(kCounts)];
}

// Says "unsupported" of what kernels don't take, which is no complaint.
std::string run_plan(DeviceRanks& ranks, const Plan& plan, const Case& test, std::uint64_t seed,
                     int& ran) {
  const auto& more = ranks.mesh().rings().options().more;
  const std::size_t turn = seed % (more.size() + 1);  // The own rings, or those of another format.
  auto loaded =
      turn == 0 ? ranks.mesh().load(plan) : ranks.mesh().load(plan, more[turn - 1].format);
  if (!loaded) {
    return loaded.error().code == Code::kUnsupported ? "" : loaded.error().to_string();
  }
  ++ran;
  return ranks.run(*loaded, test, seed, test.in_place ? 1 : 2);  // In place, inputs are gone.
}

TEST_CASE("every algorithm computes on devices what the reference says") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  const std::vector<Arithmetic> arithmetic = all_arithmetic();
  std::size_t next = random();
  std::set<std::string> ran_names;
  for (int n = 1; n <= 8; ++n) {
    for (const SlotFormat format : cuda::kSlotFormats) {
      std::string complaint;
      const auto ranks = DeviceRanks::open(options_for(n, format), complaint);
      REQUIRE(complaint == "");
      test::for_each_plan({n}, [&](const Plan& plan) {
        // A share of them, another one with each seed.
        if (random() % (test::kSanitized ? 8 : 2) != 0) return;
        const Case test =
            case_for(plan, arithmetic[next++ % arithmetic.size()], count_for(random()), random());
        test::shuffle_threads(random() % 2 == 0 ? 0 : random());
        // Its lock would hide races from the sanitizer.
        test::check_access(!test::kSanitized && random() % 8 == 0);
        INFO(plan.name << ", " << cuda::to_string(format) << ", " << test.to_string());
        int ran = 0;
        REQUIRE(run_plan(*ranks, plan, test, random(), ran) == "");
        if (ran > 0) ran_names.insert(plan.name);
      });
    }
  }
  REQUIRE(ran_names.size() > 5);
}

TEST_CASE("every type and operation, in every slot format") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  for (const char* name : {"one_shot", "two_shot", "doubling"}) {
    const Algorithm* algorithm = find_algorithm(Collective::kAllReduce, name);
    REQUIRE(algorithm != nullptr);
    for (const SlotFormat format : cuda::kSlotFormats) {
      const int n = 3 + static_cast<int>(random() % 3);
      const Plan plan = build(*algorithm, {Collective::kAllReduce, n});
      std::string complaint;
      const auto ranks = DeviceRanks::open(options_for(n, format), complaint);
      REQUIRE(complaint == "");
      auto loaded = ranks->mesh().load(plan);
      REQUIRE(loaded);
      test::Sample sample;
      for (const Arithmetic arithmetic : all_arithmetic()) {
        sample.add("", [&, arithmetic] {
          const Case test = case_for(plan, arithmetic, 1 + random() % 600, random());
          INFO(name << ", " << cuda::to_string(format));
          REQUIRE(ranks->run(*loaded, test, random()) == "");
        });
      }
      sample.run(random);
    }
  }
}

TEST_CASE("lowered, replicated and fused plans run on devices") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  int direct_count = 0, lanes_count = 0, fused_count = 0;
  for (const int n : {2, 3, 4, 8}) {
    std::string complaint;
    const auto ranks = DeviceRanks::open(options_for(n, SlotFormat::kSimple), complaint);
    REQUIRE(complaint == "");
    test::for_each_plan({n}, [&](const Plan& plan) {
      if (random() % (test::kSanitized ? 32 : 4) != 0) return;
      const auto check = [&](const Plan& made, int& ran) {
        constexpr Arithmetic kSum{DataType::kFloat32, ReduceOp::kSum};
        const Case test = case_for(made, kSum, count_for(random()), random());
        INFO(made.name << ", " << test.to_string());
        REQUIRE(run_plan(*ranks, made, test, random(), ran) == "");
      };
      if (const auto direct = plan::direct(plan)) check(*direct, direct_count);
      check(plan::replicate(plan, 2), lanes_count);
      const auto slots = static_cast<std::uint32_t>(ranks->mesh().rings().options().slot_count);
      if (const Plan fused = plan::fuse(plan, slots, cuda::kMostTargets); fused != plan)
        check(fused, fused_count);
    });
  }
  REQUIRE(direct_count > 2);
  REQUIRE(lanes_count > 2);
  REQUIRE(fused_count > 2);
}

TEST_CASE("several ranks share a device, and threads of their own enqueue") {
  exec::CudaMeshOptions options = options_for(4, SlotFormat::kPacked);
  options.devices = {0, test::device_of(1), 0, test::device_of(1)};
  std::string complaint;
  const auto ranks = DeviceRanks::open(options, complaint);
  REQUIRE(complaint == "");
  const Plan plan =
      build(*find_algorithm(Collective::kAllReduce, "two_shot"), {Collective::kAllReduce, 4});
  auto loaded = ranks->mesh().load(plan);
  REQUIRE(loaded);
  Case test;
  test.count = 1000;
  test.ranks = 4;
  const auto inputs = DeviceRanks::make_inputs(test, 7);
  std::vector<std::unique_ptr<DeviceRanks::DeviceBuffers>> buffers;
  for (std::size_t rank = 0; rank < 4; ++rank) {
    buffers.push_back(std::make_unique<DeviceRanks::DeviceBuffers>(ranks->device(rank), test, rank,
                                                                   inputs[rank]));
  }
  std::vector<std::string> said_by(4);
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 4; ++rank) {
      threads.emplace_back([&, rank] {
        const auto call = ranks->call_of(test, rank, buffers);
        for (int round = 0; round < 5; ++round) {
          said_by[rank] += said(
              ranks->mesh().launch(static_cast<int>(rank), *loaded, call, ranks->stream(rank)));
          ranks->in_step();
        }
        said_by[rank] += said(cudaStreamSynchronize(ranks->stream(rank)));
        said_by[rank] += said(ranks->mesh().rings().check(static_cast<int>(rank)));
      });
    }
  }
  for (const std::string& text : said_by) REQUIRE(text == "");
  REQUIRE(DeviceRanks::compare(test, inputs, buffers) == "");
}

TEST_CASE("two meshes on the same devices, their calls in opposite orders") {
  constexpr int kRanks = 3;
  Case test;
  test.count = 700;
  test.ranks = kRanks;
  const Plan plan =
      build(*find_algorithm(Collective::kAllReduce, "ring"), {Collective::kAllReduce, kRanks});
  test.exact = true;
  const auto inputs = DeviceRanks::make_inputs(test, 3);
  struct Side {
    std::unique_ptr<DeviceRanks> ranks;
    std::vector<std::unique_ptr<DeviceRanks::DeviceBuffers>> buffers;
    exec::CudaPlan plan;
  } sides[2];
  for (Side& side : sides) {
    std::string complaint;
    side.ranks = DeviceRanks::open(options_for(kRanks, SlotFormat::kSimple), complaint);
    REQUIRE(complaint == "");
    auto loaded = side.ranks->mesh().load(plan);
    REQUIRE(loaded);
    side.plan = std::move(*loaded);
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      side.buffers.push_back(std::make_unique<DeviceRanks::DeviceBuffers>(
          side.ranks->device(rank), test, rank, inputs[rank]));
    }
  }
  for (int round = 0; round < 4; ++round) {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      for (std::size_t turn = 0; turn < 2; ++turn) {
        Side& side = sides[(turn + rank) % 2];
        REQUIRE(said(side.ranks->mesh().launch(static_cast<int>(rank), side.plan,
                                               side.ranks->call_of(test, rank, side.buffers),
                                               side.ranks->stream(rank))) == "");
      }
    }
  }
  for (Side& side : sides) {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      REQUIRE(said(cudaStreamSynchronize(side.ranks->stream(rank))) == "");
    }
    REQUIRE(DeviceRanks::compare(test, inputs, side.buffers) == "");
  }
}

TEST_CASE("a captured call is replayed, on the data of then") {
  const int n = 3;
  std::string complaint;
  const auto ranks = DeviceRanks::open(options_for(n, SlotFormat::kLine), complaint);
  REQUIRE(complaint == "");
  const Plan plan =
      build(*find_algorithm(Collective::kAllReduce, "one_shot"), {Collective::kAllReduce, n});
  auto loaded = ranks->mesh().load(plan);
  REQUIRE(loaded);
  Case test;
  test.count = 77;
  test.ranks = n;
  auto inputs = DeviceRanks::make_inputs(test, 1);
  std::vector<std::unique_ptr<DeviceRanks::DeviceBuffers>> buffers;
  std::vector<cudaGraphExec_t> graphs;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    buffers.push_back(std::make_unique<DeviceRanks::DeviceBuffers>(ranks->device(rank), test, rank,
                                                                   inputs[rank]));
  }
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    const cudaStream_t stream = ranks->stream(rank);
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal) == cudaSuccess);
    const auto call = ranks->call_of(test, rank, buffers);
    REQUIRE(said(ranks->mesh().launch(static_cast<int>(rank), *loaded, call, stream)) == "");
    cudaGraph_t graph = nullptr;
    REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
    REQUIRE(cudaGraphInstantiate(&graphs.emplace_back(), graph, 0) == cudaSuccess);
    REQUIRE(cudaGraphDestroy(graph) == cudaSuccess);
  }
  for (std::uint64_t round = 2; round < 8; ++round) {  // More rounds than slots.
    inputs = DeviceRanks::make_inputs(test, round);
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      REQUIRE(said(buffers[rank]->input_memory.write(0, inputs[rank].data(),
                                                     inputs[rank].size())) == "");
    }
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      REQUIRE(cudaGraphLaunch(graphs[rank], ranks->stream(rank)) == cudaSuccess);
    }
    for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
      REQUIRE(said(cudaStreamSynchronize(ranks->stream(rank))) == "");
    }
    REQUIRE(DeviceRanks::compare(test, inputs, buffers) == "");
  }
  for (const cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
}

TEST_CASE("waits end: at their deadline, or when someone says so") {
  for (const SlotFormat format : cuda::kSlotFormats) {
    for (const bool abort : {false, true}) {
      exec::CudaMeshOptions options = options_for(2, format);
      options.timeout = abort ? std::chrono::seconds(300) : std::chrono::milliseconds(50);
      std::string complaint;
      const auto ranks = DeviceRanks::open(options, complaint);
      REQUIRE(complaint == "");
      const Plan plan =
          build(*find_algorithm(Collective::kAllReduce, "one_shot"), {Collective::kAllReduce, 2});
      auto loaded = ranks->mesh().load(plan);
      REQUIRE(loaded);
      Case test;
      test.count = 10;
      test.ranks = 2;
      const auto inputs = DeviceRanks::make_inputs(test, 1);
      std::vector<std::unique_ptr<DeviceRanks::DeviceBuffers>> buffers;
      for (std::size_t rank = 0; rank < 2; ++rank) {
        buffers.push_back(std::make_unique<DeviceRanks::DeviceBuffers>(ranks->device(rank), test,
                                                                       rank, inputs[rank]));
      }
      // Rank 0 never comes.
      REQUIRE(said(ranks->mesh().launch(1, *loaded, ranks->call_of(test, 1, buffers),
                                        ranks->stream(1))) == "");
      if (abort) ranks->mesh().rings().abort(1);
      REQUIRE(said(cudaStreamSynchronize(ranks->stream(1))) == "");
      const Status status = ranks->mesh().rings().check(1);
      REQUIRE(!status);
      INFO(cuda::to_string(format) << ": " << status.error().to_string());
      REQUIRE(status.error().code == (abort ? Code::kAborted : Code::kTimeout));
      if (!abort) REQUIRE(status.error().peer == Rank{0});
      REQUIRE(ranks->mesh().rings().check(0));
    }
  }
}

TEST_CASE("calls that differ end at their first tile, in every slot format") {
  constexpr float kUntouched = -1e30F;
  for (const SlotFormat format : cuda::kSlotFormats) {
    std::string complaint;
    const auto ranks = DeviceRanks::open(options_for(2, format), complaint);
    REQUIRE(complaint == "");
    auto loaded = ranks->mesh().load(
        build(*find_algorithm(Collective::kAllReduce, "one_shot"), {Collective::kAllReduce, 2}));
    REQUIRE(loaded);
    Case test;
    test.count = 2053;  // Several tiles.
    test.ranks = 2;
    const auto inputs = DeviceRanks::make_inputs(test, 1);
    std::vector<std::unique_ptr<DeviceRanks::DeviceBuffers>> buffers;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      buffers.push_back(std::make_unique<DeviceRanks::DeviceBuffers>(ranks->device(rank), test,
                                                                     rank, inputs[rank]));
      REQUIRE(said(buffers[rank]->output_memory.write((test.count - 1) * sizeof kUntouched,
                                                      &kUntouched, sizeof kUntouched)) == "");
    }
    for (int rank = 0; rank < 2; ++rank) {
      const auto me = static_cast<std::size_t>(rank);
      exec::CudaCall call = ranks->call_of(test, me, buffers);
      if (rank == 1) call.op = ReduceOp::kMax;
      REQUIRE(said(ranks->mesh().launch(rank, *loaded, call, ranks->stream(me))) == "");
    }
    for (int rank = 0; rank < 2; ++rank) {
      REQUIRE(said(cudaStreamSynchronize(ranks->stream(static_cast<std::size_t>(rank)))) == "");
      const Status status = ranks->mesh().rings().check(rank);
      INFO(cuda::to_string(format) << ", rank " << rank << ": " << said(status));
      REQUIRE(!status);
      CHECK(status.error().code == Code::kMismatch);
      float last = 0;
      const auto& memory = buffers[static_cast<std::size_t>(rank)]->output_memory;
      REQUIRE(said(memory.read((test.count - 1) * sizeof last, &last, sizeof last)) == "");
      CHECK(last == kUntouched);
    }
  }
}

TEST_CASE("what can't run on devices is refused in a line") {
  exec::CudaMeshOptions options = options_for(2, SlotFormat::kSimple);
  std::string complaint;
  const auto ranks = DeviceRanks::open(options, complaint);
  REQUIRE(complaint == "");
  const Algorithm& one_shot = *find_algorithm(Collective::kAllReduce, "one_shot");
  const auto other_count = ranks->mesh().load(build(one_shot, {Collective::kAllReduce, 3}));
  REQUIRE(!other_count);
  REQUIRE(other_count.error().what == "plan one_shot is for 3 ranks, the mesh has 2");

  const auto refused = [](exec::CudaMeshOptions wanted) {
    const auto mesh = exec::CudaMesh::create(std::move(wanted));
    return mesh ? std::string() : mesh.error().what;
  };
  auto many = options;
  many.devices.assign(2, 0);
  const auto room = exec::blocks_of_device(0);
  REQUIRE(room);
  many.lanes = static_cast<std::uint32_t>(*room);
  REQUIRE(refused(many) == "a CUDA mesh: ranks on device 0 need " + std::to_string(2 * *room) +
                               " blocks at a time, it has room for " + std::to_string(*room) +
                               "; use fewer lanes");
  auto threads = options;
  threads.threads = 100;
  REQUIRE(refused(threads) ==
          "a CUDA mesh: 100 threads a block; a multiple of 32 up to 512 is possible");
  auto slots = options;
  slots.slot_bytes = 100;
  REQUIRE(refused(slots) == "a CUDA mesh: slots of 100 bytes; a multiple of 1024 is possible");
}

}  // namespace
}  // namespace tutti
