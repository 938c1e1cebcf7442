// A program that uses NCCL as programs do, built against NVIDIA's header and libraries where there
// are any. Nothing in it knows of simulated GPUs.
//   nccl_program all              one thread, a communicator for each GPU
//   nccl_program threads          a thread for each GPU, met by a unique id
//   nccl_program processes FILE   one rank of many; rank 0 leaves the unique id in the file
#include <cuda_runtime_api.h>
#include <nccl.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "said.h"

namespace {

constexpr std::size_t kCount = 3000;

void cuda(cudaError_t error, const char* what) {
  require(error == cudaSuccess, what, cudaGetErrorString(error));
}
void nccl(ncclResult_t result, const char* what) {
  require(result == ncclSuccess, what, ncclGetLastError(nullptr));
}

/// A rank's buffers and stream, on its device.
struct Rank {
  int number, size, device;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float *input = nullptr, *output = nullptr;

  void prepare() {
    cuda(cudaSetDevice(device), "cudaSetDevice");
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    const std::vector<float> mine(kCount, static_cast<float>(1 << number));
    cuda(cudaMalloc(reinterpret_cast<void**>(&input), kCount * sizeof(float)), "cudaMalloc");
    cuda(cudaMalloc(reinterpret_cast<void**>(&output), kCount * sizeof(float)), "cudaMalloc");
    cuda(cudaMemcpy(input, mine.data(), kCount * sizeof(float), cudaMemcpyHostToDevice),
         "cudaMemcpy");
  }
  void reduce() const {
    cuda(cudaSetDevice(device), "cudaSetDevice");
    nccl(ncclAllReduce(input, output, kCount, ncclFloat, ncclSum, comm, stream), "ncclAllReduce");
  }
  /// The reduced numbers go to the next rank, and those of the one before come.
  void pass_on() const {
    cuda(cudaSetDevice(device), "cudaSetDevice");
    nccl(ncclSend(output, kCount, ncclFloat, (number + 1) % size, comm, stream), "ncclSend");
    nccl(ncclRecv(input, kCount, ncclFloat, (number + size - 1) % size, comm, stream), "ncclRecv");
  }
  void look(const float* at) const {
    cuda(cudaSetDevice(device), "cudaSetDevice");
    cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    std::vector<float> found(kCount);
    cuda(cudaMemcpy(found.data(), at, kCount * sizeof(float), cudaMemcpyDeviceToHost),
         "cudaMemcpy");
    for (const float value : found) require(value == static_cast<float>((1 << size) - 1), "sum");
  }
  void finish() {
    cuda(cudaFree(input), "cudaFree");
    cuda(cudaFree(output), "cudaFree");
    nccl(ncclCommDestroy(comm), "ncclCommDestroy");
    char bus[32] = {};
    cuda(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "cudaDeviceGetPCIBusId");
    std::printf("rank %d of %d on GPU %d at %s: right\n", number, size, device, bus);
  }
};

void live(Rank rank, const ncclUniqueId& id) {
  rank.prepare();
  nccl(ncclCommInitRank(&rank.comm, rank.size, id, rank.number), "ncclCommInitRank");
  rank.reduce();
  rank.look(rank.output);
  nccl(ncclGroupStart(), "ncclGroupStart");
  rank.pass_on();
  nccl(ncclGroupEnd(), "ncclGroupEnd");
  rank.look(rank.input);
  rank.finish();
}

int devices() {
  int count = 0;
  cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  return count;
}

void run_all() {
  const int size = devices();
  std::vector<ncclComm_t> comms(static_cast<std::size_t>(size));
  nccl(ncclCommInitAll(comms.data(), size, nullptr), "ncclCommInitAll");
  std::vector<Rank> ranks;
  for (int i = 0; i < size; ++i) {
    ranks.push_back({i, size, i});
    ranks.back().comm = comms[static_cast<std::size_t>(i)];
    ranks.back().prepare();
  }
  nccl(ncclGroupStart(), "ncclGroupStart");
  for (const Rank& rank : ranks) rank.reduce();
  nccl(ncclGroupEnd(), "ncclGroupEnd");
  for (const Rank& rank : ranks) rank.look(rank.output);
  for (Rank& rank : ranks) rank.finish();
}

void run_threads() {
  const int size = devices();
  ncclUniqueId id;
  nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
  std::vector<std::thread> threads;
  for (int i = 0; i < size; ++i) threads.emplace_back([=] { live({i, size, i}, id); });
  for (std::thread& thread : threads) thread.join();
}

int of_environment(const char* name) {
  const char* text = std::getenv(name);
  require(text != nullptr, name, "is not set");
  return std::atoi(text);
}

void run_process(const std::string& path) {
  const int number = of_environment("RANK"), size = of_environment("WORLD_SIZE");
  ncclUniqueId id;
  if (number == 0) {
    nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    std::ofstream(path + ".new", std::ios::binary).write(id.internal, sizeof id.internal);
    require(std::rename((path + ".new").c_str(), path.c_str()) == 0, "rename");
  }
  std::ifstream file;
  while (!file.is_open()) {  // The test that starts this has a time limit.
    file.open(path, std::ios::binary);
    if (!file.is_open()) usleep(1000);
  }
  require(static_cast<bool>(file.read(id.internal, sizeof id.internal)), "the file of the id");
  live({number, size, of_environment("LOCAL_RANK") % devices()}, id);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "all") {
    run_all();
  } else if (mode == "threads") {
    run_threads();
  } else if (mode == "processes" && argc == 3) {
    run_process(argv[2]);
  } else {
    require(false, "nccl_program", "all, threads, or processes FILE");
  }
}
