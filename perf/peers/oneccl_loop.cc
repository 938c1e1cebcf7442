// File: perf/peers/oneccl_loop.cc: oneCCL's collectives on host memory in the timing loop of
// loop.h. Intel MPI starts the ranks and tells them where to meet. oneCCL has no gather and no
// scatter.
//   mpiexec.hydra -n 2 oneccl_loop --sizes 8,1024
#include <mpi.h>

#include <memory>

#include "exit_code.h"
#include "loop.h"
#include "oneapi/ccl.hpp"

namespace {

constexpr char kProgram[] = "oneccl_loop";
constexpr auto kFloat = ccl::datatype::float32;

int call_unguarded(const ccl::communicator& all, const LoopCall& call) {
  const float* in = call.input;
  float* out = call.output;
  const size_t n = call.count;
  switch (call.collective) {
    case kAllReduce: ccl::allreduce(in, out, n, ccl::reduction::sum, all).wait(); return 0;
    case kReduceScatter: ccl::reduce_scatter(in, out, n, ccl::reduction::sum, all).wait(); return 0;
    case kAllGather: ccl::allgather(in, out, n, kFloat, all).wait(); return 0;
    case kBroadcast: ccl::broadcast(out, n, 0, all).wait(); return 0;
    case kReduce: ccl::reduce(in, out, n, ccl::reduction::sum, 0, all).wait(); return 0;
    case kAllToAll: ccl::alltoall(in, out, n, all).wait(); return 0;
    case kBarrier: ccl::barrier(all); return 0;
    default: return loop_not_there("oneccl", call.collective);
  }
}

int call(void* context, const LoopCall* call) {
  const auto& all = *static_cast<ccl::communicator*>(context);
  return exit_code_of(kProgram, [&] { return call_unguarded(all, *call); });
}

int barrier(void* context) {
  return exit_code_of(kProgram, [&] {
    ccl::barrier(*static_cast<ccl::communicator*>(context));
    return 0;
  });
}

int share(void*, double mine, double* of_all) {
  return MPI_Allgather(&mine, 1, MPI_DOUBLE, of_all, 1, MPI_DOUBLE, MPI_COMM_WORLD);
}

int run(const LoopOptions& options) {
  LoopPeer peer = {"oneccl", 0, 1, 0, nullptr, call, barrier, share};
  MPI_Comm_rank(MPI_COMM_WORLD, &peer.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &peer.rank_count);
  return exit_code_of(kProgram, [&] {
    ccl::init();
    ccl::kvs::address_type address{};
    std::shared_ptr<ccl::kvs> store;
    if (peer.rank == 0) {
      store = ccl::create_main_kvs();
      address = store->get_address();
    }
    MPI_Bcast(address.data(), static_cast<int>(address.size()), MPI_BYTE, 0, MPI_COMM_WORLD);
    if (peer.rank != 0) store = ccl::create_kvs(address);
    auto all = ccl::create_communicator(peer.rank_count, peer.rank, store);
    peer.context = &all;
    float *input = nullptr, *output = nullptr;
    MPI_Alloc_mem(static_cast<MPI_Aint>(options.largest), MPI_INFO_NULL, &input);
    MPI_Alloc_mem(static_cast<MPI_Aint>(options.largest), MPI_INFO_NULL, &output);
    return loop_run(&peer, &options, input, output);
  });
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &threads);  // oneCCL asks for it.
  LoopOptions options;
  int failure = loop_parse(argc, argv, &options);
  if (failure == 0) failure = run(options);
  if (failure != 0) MPI_Abort(MPI_COMM_WORLD, failure);
  MPI_Finalize();
  return 0;
}
