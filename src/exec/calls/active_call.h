// File: exec/calls/active_call.h: the call in progress, and what both paths derive from it.
#pragma once
#include <string>

#include "exec/calls/blocks.h"
#include "exec/calls/call.h"
#include "kernels/host/reduce.h"

namespace tutti::exec {

struct ActiveCall : Call {
  std::uint64_t word = 0;   // pack of it.
  std::size_t element = 1;  // Bytes of one.
  std::size_t in_bytes = 0, out_bytes = 0;
  bool scaled = false;  // Contributions are multiplied where they are read, and travel wide.
  kernels::Arithmetic arithmetic;
  Blocks blocks;  // Sizes and places, in a vector variant.

  explicit ActiveCall(std::size_t ranks) : blocks(ranks) {}

  void begin(const Call& call, int me) {
    static_cast<Call&>(*this) = call;
    const int ranks = static_cast<int>(blocks.gives.size());
    word = pack(call);
    element = size_of(call.type);
    scaled = call.op == ReduceOp::kPreMulSum && reduces(call.collective);
    arithmetic = {call.type, call.op, ranks, call.scale, static_cast<std::int64_t>(call.scale)};
    if (call.vector_variant) blocks.begin(call, me);
    in_bytes = call.vector_variant ? blocks.input_elements * element : input_bytes(call, ranks);
    out_bytes = call.vector_variant ? blocks.output_elements * element : output_bytes(call, ranks);
  }
  std::string describe() const { return describe_call(word, count); }
};

}  // namespace tutti::exec
