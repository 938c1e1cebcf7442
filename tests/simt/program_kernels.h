// File: simt/program_kernels.h: kernels of a program that communicate (tutti/device.cuh), as
// handles for cudaLaunchKernel. Each takes one ProgramCall.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tutti/device_handle.h"

namespace tutti::test {

struct ProgramCall {
  DeviceHandle handle;
  std::byte* data = nullptr;    // Memory of this rank's device.
  std::byte* result = nullptr;  // The same.
  std::uint64_t count = 0;      // Elements, or bytes of a block.
  std::uint32_t rounds = 0;
  std::uint32_t peer = 0;
};

/// Each block's `count` bytes of `data` go to the next rank, `rounds` times, by put, signal and
/// wait.
const void* pass_on_kernel();
/// Each block puts a share of `data`, `count` elements, into this rank's window; then the ranks
/// meet, all of them reduce all inputs to `result`, and each its part of them to the second half of
/// all windows, which has to begin at a multiple of 16. Null: not one of kProgramReductions.
const void* reduce_kernel(DataType type, ReduceOp op);
struct ProgramReduction {
  DataType type;
  ReduceOp op;
};
inline constexpr ProgramReduction kProgramReductions[] = {
    {DataType::kFloat32, ReduceOp::kSum},  {DataType::kBfloat16, ReduceOp::kSum},
    {DataType::kFloat16, ReduceOp::kAvg},  {DataType::kInt8, ReduceOp::kMax},
    {DataType::kFloat64, ReduceOp::kProd}, {DataType::kUint32, ReduceOp::kXor},
};
constexpr std::uint64_t second_half(std::uint64_t bytes) { return (bytes + 15) / 16 * 16; }
/// Ranks write to all windows and meet, `rounds` times; then `rounds` is in `result`, if each rank
/// saw what all others had written. One block, of any size.
const void* meet_kernel();
/// Waits for a signal of `peer`.
const void* await_kernel();
/// Puts `count` bytes at 64 of the window of `peer`.
const void* put_kernel();
/// Asks for the address of `count` doubles at byte 64 of the peer's window.
const void* ask_kernel();

}  // namespace tutti::test
