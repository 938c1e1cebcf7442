/* A program in C over what is installed: an all-reduce among all GPUs of the process, through the
 * second names of some functions too, which tools use. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#define COUNT 100
#define MOST 8

/* A name that the library has inside, too: the program's is its own. */
int tutti_all_reduce(void);
int tutti_all_reduce(void) { return 7; }

static void require(int fine, const char* what) {
  if (fine) return;
  fprintf(stderr, "%s: %s\n", what, ncclGetLastError(NULL));
  exit(1);
}
#define NCCL(call) require((call) == ncclSuccess, #call)
#define CUDA(call) require((call) == cudaSuccess, #call)

int main(void) {
  int gpus = 0, version = 0;
  ncclComm_t comms[MOST];
  cudaStream_t streams[MOST];
  float* data[MOST];
  CUDA(cudaGetDeviceCount(&gpus));
  require(gpus <= MOST, "GPUs");
  NCCL(pncclGetVersion(&version));
  require(version >= NCCL_VERSION_CODE, "the library is older than its header");
  NCCL(ncclCommInitAll(comms, gpus, NULL));
  for (int i = 0; i < gpus; ++i) {
    float mine[COUNT];
    for (int j = 0; j < COUNT; ++j) mine[j] = (float)(i + 1);
    CUDA(cudaSetDevice(i));
    CUDA(cudaStreamCreate(&streams[i]));
    CUDA(cudaMalloc((void**)&data[i], sizeof mine));
    CUDA(cudaMemcpy(data[i], mine, sizeof mine, cudaMemcpyDefault));
  }
  NCCL(ncclGroupStart());
  for (int i = 0; i < gpus; ++i)
    NCCL(pncclAllReduce(data[i], data[i], COUNT, ncclFloat, ncclSum, comms[i], streams[i]));
  NCCL(ncclGroupEnd());
  for (int i = 0; i < gpus; ++i) {
    float found[COUNT];
    CUDA(cudaSetDevice(i));
    CUDA(cudaStreamSynchronize(streams[i]));
    CUDA(cudaMemcpy(found, data[i], sizeof found, cudaMemcpyDefault));
    for (int j = 0; j < COUNT; ++j)
      require(found[j] == (float)(gpus * (gpus + 1) / 2), "the sum is wrong");
    NCCL(ncclCommDestroy(comms[i]));
  }
  require(tutti_all_reduce() == 7, "another function by the program's name");
  printf("%d GPUs: right\n", gpus);
  return 0;
}
