// File: cuda/mesh/tag.h: what ranks compare of their calls (kernels/cuda/calls.h), in words, and
// the error that a rank's report stands for.
#pragma once
#include <cstdint>
#include <string>

#include "kernels/cuda/interpreter.h"
#include "tutti/result.h"
#include "tutti/types.h"
#include "tutti/wire.h"

namespace tutti::exec {

/// A call as its peers see it: all of it has to be alike on all ranks.
struct CudaCallName {
  enum Kind : std::uint8_t {
    kCollective,
    kRmsNorm,
    kSgd,
    kMessage,
    kProgram = cuda::kProgramKernel
  };
  Kind kind = kCollective;
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  Wire wire = {};
  std::uint64_t count = 0;   // Elements, or bytes of a message.
  std::uint64_t places = 0;  // A hash of where its buffers are in registered memory.
};

cuda::CallTag tag_of(const CudaCallName& name);
/// "call 3, all_reduce of 100 float32 (sum)", as describe_call (exec/calls/call.h) names it.
std::string in_words(const cuda::KnownCall& call);
/// The error that ended the calls of `rank`.
Error error_of(const cuda::Report& report, int rank);

}  // namespace tutti::exec
