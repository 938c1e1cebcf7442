// Graphs and calls of one communicator, in any combination and on any streams: every call takes
// place in the order in which it was launched, and its results are right.
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"

namespace tutti {
namespace {

using test::DeviceCluster;
using test::new_stream;
using test::said;

constexpr std::size_t kRanks = 2;
constexpr std::size_t kMost = 60000;

/// What a rank does: one call of each way that kernels go.
enum class Way { kOneShot, kInterpreted, kRegistered, kFused, kMessages };
constexpr Way kWays[] = {Way::kOneShot, Way::kInterpreted, Way::kRegistered, Way::kFused,
                         Way::kMessages};
constexpr const char* name_of(Way way) {
  constexpr const char* kNames[] = {"one_shot", "interpreted", "registered", "fused", "messages"};
  return kNames[static_cast<std::size_t>(way)];
}
constexpr std::size_t count_of(Way way) {
  constexpr std::size_t kCounts[] = {20, kMost, 20000, 4096, 6000};
  return kCounts[static_cast<std::size_t>(way)];
}

/// A rank's buffers for calls of one place: a graph, or what is called beside it.
class Part {
 public:
  Part(DeviceCommunicator& comm, float base) : comm_(comm), base_(base) {
    auto made = exec::CudaMemory::allocate_for_peers(comm.device(), 5 * kMost * sizeof(float));
    if (made) memory_ = *std::move(made);
    std::vector<float> ones(kMost, 1);
    fill(0);
    complaint_ += said(memory_.write(2 * kMost * sizeof(float), ones.data(), bytes()));
  }

  std::string join() {
    return complaint_ + said(comm_.register_memory(memory_.data(), 2 * bytes()));
  }

  std::string call(Way way, cudaStream_t stream) {
    const std::size_t count = count_of(way);
    if (way == Way::kMessages) {
      Group group;
      const Rank other{1 - comm_.rank().value};
      std::string wrong = said(comm_.send(input(), count, DataType::kFloat32, other, stream));
      wrong += said(comm_.recv(output(), count, DataType::kFloat32, other, stream));
      return wrong + said(group.end());
    }
    if (way == Way::kFused) {
      return said(
          comm_.all_reduce_rms_norm({input(), output() + kMost / 2, output(), input() + 2 * kMost,
                                     4, count / 4, DataType::kFloat32, 1e-6F},
                                    stream));
    }
    const bool slots = way == Way::kInterpreted;  // On memory that is not registered.
    return said(
        comm_.call({.collective = slots ? Collective::kReduceScatter : Collective::kAllReduce,
                    .input = slots ? input() + 3 * kMost : input(),
                    .output = slots ? input() + 4 * kMost : output(),
                    .count = slots ? count / kRanks : count,
                    .type = DataType::kFloat32},
                   stream));
  }

  /// Checks the results of the last call, then overwrites them with wrong values.
  std::string compare(Way way) {
    const bool slots = way == Way::kInterpreted;
    std::vector<float> got(count_of(way) / (slots ? kRanks : 1));
    std::string wrong = said(memory_.read((slots ? 4 : 1) * bytes(), got.data(), got.size() * 4));
    const float me = static_cast<float>(comm_.rank().value);
    float want = 2 * base_ + 1;                          // The sum of both ranks.
    if (way == Way::kMessages) want = base_ + (1 - me);  // The other's.
    std::size_t others = 0;
    for (const float one : got) {
      const float apart = one - (way == Way::kFused ? 1 : want);
      others += apart > 1e-3F || apart < -1e-3F ? 1 : 0;
    }
    if (others != 0)
      wrong += std::to_string(others) + " wrong of " + name_of(way) + ", base " +
               std::to_string(base_) + ": " + std::to_string(got[0]);
    fill(-1000);
    return wrong;
  }

 private:
  static constexpr std::size_t bytes() { return kMost * sizeof(float); }
  float* input() const { return reinterpret_cast<float*>(memory_.data()); }
  float* output() const { return input() + kMost; }
  void fill(float output_value) {
    const std::vector<float> in(kMost, base_ + static_cast<float>(comm_.rank().value));
    std::vector<float> out(kMost, output_value);
    std::fill(out.begin() + kMost / 2, out.end(), 0.0F);  // The residual.
    complaint_ += said(memory_.write(0, in.data(), bytes()));
    complaint_ += said(memory_.write(bytes(), out.data(), bytes()));
    complaint_ += said(memory_.write(3 * bytes(), in.data(), bytes()));
    complaint_ += said(memory_.write(4 * bytes(), out.data(), bytes()));
  }

  DeviceCommunicator& comm_;
  float base_;
  exec::CudaMemory memory_;
  std::string complaint_;
};

/// A rank's graph of one call.
cudaGraphExec_t capture(Part& part, Way way, cudaStream_t stream, std::string& wrong) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  wrong += said(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  wrong += part.call(way, stream);
  wrong += said(cudaStreamEndCapture(stream, &graph));
  if (graph == nullptr) return nullptr;
  wrong += said(cudaGraphInstantiate(&executable, graph, 0));
  cudaGraphDestroy(graph);
  return executable;
}

/// A cluster of two ranks, with three parts each: two for graphs, one for calls.
struct Fixture {
  explicit Fixture(const Settings& settings = test::small_settings()) : cluster({0, 1}, settings) {
    complaint = cluster.complaint;
    if (!complaint.empty()) return;
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      for (const float base : {1.0F, 100.0F, 1000.0F})
        parts[rank].push_back(std::make_unique<Part>(cluster.comms[rank], base));
      beside[rank] = new_stream(cluster.comms[rank].device());
    }
    complaint = each(cluster, [&](std::size_t rank) {
      std::string wrong;
      for (const auto& part : parts[rank]) wrong += part->join();
      return wrong;
    });
  }
  ~Fixture() {
    cluster.comms.clear();
    for (const cudaStream_t stream : beside) cudaStreamDestroy(stream);
  }
  Fixture(const Fixture&) = delete;
  Fixture& operator=(const Fixture&) = delete;

  std::string finish(std::size_t rank) {
    return said(cudaStreamSynchronize(cluster.streams[rank])) +
           said(cudaStreamSynchronize(beside[rank])) + said(cluster.comms[rank].check());
  }

  DeviceCluster cluster;
  std::array<std::vector<std::unique_ptr<Part>>, kRanks> parts;
  std::array<cudaStream_t, kRanks> beside{};
  std::string complaint;
};

/// Rounds of: a call on one stream, a graph on another, the second graph, the first one again.
std::string mix(Fixture& fixture, std::size_t rank, Way graph_way, Way call_way) {
  std::string wrong;
  auto& parts = fixture.parts[rank];
  const cudaStream_t first = fixture.cluster.streams[rank], second = fixture.beside[rank];
  const cudaGraphExec_t one = capture(*parts[0], graph_way, first, wrong);
  const cudaGraphExec_t two = capture(*parts[1], call_way, first, wrong);
  for (int round = 0; round < 4 && wrong.empty(); ++round) {
    wrong += parts[2]->call(call_way, second);
    wrong += said(cudaGraphLaunch(one, first));
    wrong += said(cudaGraphLaunch(two, second));
    if (round % 2 == 1) wrong += said(cudaGraphLaunch(one, second));
    wrong += parts[2]->call(call_way, first);
    wrong += fixture.finish(rank);
    wrong +=
        parts[0]->compare(graph_way) + parts[1]->compare(call_way) + parts[2]->compare(call_way);
  }
  for (const cudaGraphExec_t graph : {one, two}) cudaGraphExecDestroy(graph);
  return wrong;
}

TEST_CASE("calls beside replays, and two graphs, on two streams, are right for all ways") {
  const bool jitter = GENERATE(false, true);
  simt::settings().jitter = jitter;
  Fixture fixture;
  REQUIRE(fixture.complaint == "");
  for (const Way graph_way : kWays) {
    for (const Way call_way : kWays) {
      CAPTURE(jitter, name_of(graph_way), name_of(call_way));
      CHECK(each(fixture.cluster,
                 [&](std::size_t rank) { return mix(fixture, rank, graph_way, call_way); }) == "");
    }
  }
  simt::settings().jitter = false;
}

TEST_CASE("one thread that launches for two ranks mixes calls and replays") {
  simt::settings().jitter = true;
  Fixture fixture;
  REQUIRE(fixture.complaint == "");
  std::string wrong;
  std::array<cudaGraphExec_t, kRanks> graphs{};
  for (std::size_t rank = 0; rank < kRanks; ++rank)
    graphs[rank] =
        capture(*fixture.parts[rank][0], Way::kOneShot, fixture.cluster.streams[rank], wrong);
  for (int round = 0; round < 20 && wrong.empty(); ++round) {
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      const exec::OnDevice on(fixture.cluster.comms[rank].device());
      wrong += fixture.parts[rank][2]->call(Way::kOneShot, fixture.beside[rank]);
      wrong += said(cudaGraphLaunch(graphs[rank], fixture.cluster.streams[rank]));
    }
    for (std::size_t rank = 0; rank < kRanks; ++rank) {
      wrong += fixture.finish(rank);
      wrong += fixture.parts[rank][0]->compare(Way::kOneShot);
      wrong += fixture.parts[rank][2]->compare(Way::kOneShot);
    }
  }
  CHECK(wrong == "");
  for (const cudaGraphExec_t graph : graphs) cudaGraphExecDestroy(graph);
  simt::settings().jitter = false;
}

TEST_CASE("threads that take turns on their own default streams keep the order of calls") {
  simt::settings().jitter = true;
  Fixture fixture;
  REQUIRE(fixture.complaint == "");
  for (int turn = 0; turn < 10; ++turn) {
    CHECK(each(fixture.cluster, [&](std::size_t rank) {
            const exec::OnDevice on(fixture.cluster.comms[rank].device());
            std::string wrong;
            // Another thread's call is still under way when this one's comes.
            std::thread([&] {
              const exec::OnDevice there(fixture.cluster.comms[rank].device());
              wrong += fixture.parts[rank][0]->call(Way::kInterpreted, cudaStreamPerThread);
            }).join();
            wrong += fixture.parts[rank][2]->call(Way::kOneShot, cudaStreamPerThread);
            wrong += fixture.parts[rank][1]->call(Way::kInterpreted, cudaStreamPerThread);
            wrong += said(cudaStreamSynchronize(cudaStreamPerThread));
            wrong += said(fixture.cluster.comms[rank].check());
            return wrong + fixture.parts[rank][0]->compare(Way::kInterpreted) +
                   fixture.parts[rank][2]->compare(Way::kOneShot) +
                   fixture.parts[rank][1]->compare(Way::kInterpreted);
          }) == "");
  }
  simt::settings().jitter = false;
}

}  // namespace
}  // namespace tutti
