// Kernels of a program's own around NCCL's and between devices: fills, reduces and checks on
// devices, in one process or as one rank of several (ranks FILE; rank 0 leaves the unique id in the
// file).
#include <nccl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "../programs/said.h"

constexpr size_t kCount = 40000;

__constant__ int rank_here;
__device__ unsigned wrong;

__device__ float value(size_t i, int rank) { return float((i * 7 + size_t(rank) * 13) % 101); }

__global__ void fill(float* data, size_t count) {
  const size_t step = size_t(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step)
    data[i] = value(i, rank_here);
}
__global__ void check_sum(const float* data, size_t count, int ranks) {
  const size_t step = size_t(gridDim.x) * blockDim.x;
  for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
    float sum = 0;
    for (int rank = 0; rank < ranks; ++rank) sum += value(i, rank);
    if (data[i] != sum) atomicAdd(&wrong, 1u);
  }
}
/// Reads a peer's memory.
__global__ void check_peer(const float* peers, size_t count, int peer) {
  const size_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count && peers[i] != value(i, peer)) atomicAdd(&wrong, 1u);
}
__global__ void spoil(float* data, size_t at) { data[at] += 1; }

static void cuda(cudaError_t error, const char* what) {
  require(error == cudaSuccess, what, cudaGetErrorString(error));
}
static void nccl(ncclResult_t result, const char* what) {
  require(result == ncclSuccess, what, ncclGetLastError(nullptr));
}

struct Rank {
  int number, size, device;
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float *input = nullptr, *output = nullptr;

  void prepare() {
    cuda(cudaSetDevice(device), "cudaSetDevice");
    cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    cuda(cudaMalloc(&input, kCount * sizeof(float)), "cudaMalloc");
    cuda(cudaMalloc(&output, kCount * sizeof(float)), "cudaMalloc");
    cuda(cudaMemcpyToSymbol(rank_here, &number, sizeof number), "cudaMemcpyToSymbol");
    fill<<<8, 128, 0, stream>>>(input, kCount);
    cuda(cudaGetLastError(), "fill");
  }
  void reduce() const {
    cuda(cudaSetDevice(device), "cudaSetDevice");
    nccl(ncclAllReduce(input, output, kCount, ncclFloat, ncclSum, comm, stream), "ncclAllReduce");
  }
  void check() const {
    cuda(cudaSetDevice(device), "cudaSetDevice");
    if (std::getenv("SPOIL") != nullptr && number == 0) spoil<<<1, 1, 0, stream>>>(output, 77);
    check_sum<<<8, 128, 0, stream>>>(output, kCount, size);
    cuda(cudaStreamSynchronize(stream), "check_sum");
  }
  void finish() const {
    cuda(cudaSetDevice(device), "cudaSetDevice");
    unsigned found = 0;
    cuda(cudaMemcpyFromSymbol(&found, wrong, sizeof found), "cudaMemcpyFromSymbol");
    nccl(ncclCommDestroy(comm), "ncclCommDestroy");
    std::printf("rank %d of %d: %u wrong\n", number, size, found);
  }
};

static void run_all() {
  int size = 0;
  cuda(cudaGetDeviceCount(&size), "cudaGetDeviceCount");
  std::vector<ncclComm_t> comms(size);
  nccl(ncclCommInitAll(comms.data(), size, nullptr), "ncclCommInitAll");
  std::vector<Rank> ranks;
  for (int i = 0; i < size; ++i) {
    ranks.push_back(Rank{i, size, i, comms[i]});
    ranks.back().prepare();
  }
  nccl(ncclGroupStart(), "ncclGroupStart");
  for (const Rank& rank : ranks) rank.reduce();
  nccl(ncclGroupEnd(), "ncclGroupEnd");
  for (const Rank& rank : ranks) rank.check();
  for (int i = 0; i < size; ++i) {
    const int peer = (i + 1) % size;
    cuda(cudaSetDevice(i), "cudaSetDevice");
    if (peer != i) cuda(cudaDeviceEnablePeerAccess(peer, 0), "cudaDeviceEnablePeerAccess");
    check_peer<<<kCount / 64, 64>>>(ranks[peer].input, kCount, peer);
    cuda(cudaDeviceSynchronize(), "check_peer");
  }
  for (const Rank& rank : ranks) rank.finish();
}

static void run_process(const std::string& path) {
  Rank rank = {std::atoi(std::getenv("RANK")), std::atoi(std::getenv("WORLD_SIZE")),
               std::atoi(std::getenv("LOCAL_RANK"))};
  ncclUniqueId id;
  if (rank.number == 0) {
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
  rank.prepare();
  nccl(ncclCommInitRank(&rank.comm, rank.size, id, rank.number), "ncclCommInitRank");
  rank.reduce();
  rank.check();
  rank.finish();
}

int main(int argc, char** argv) {
  if (argc > 1) {
    run_process(argv[1]);
  } else {
    run_all();
  }
}
