// File: simt/variables.h: the __device__ and __constant__ variables of programs that simt/nvcc
// compiles: a copy for each device.
#pragma once
#include <cstddef>

namespace tutti::simt {

constexpr int kMostVariableDevices = 64;

/// A variable as the program defines it, which is its handle on the host, and where its copies are.
struct DeviceVariable {
  void* host = nullptr;
  std::size_t bytes = 0;
  const char* name = nullptr;
  void* copies[kMostVariableDevices] = {};  // Null: nothing was launched on that device yet.
};

/// Makes a variable known. It has to live as long as the process.
void register_variable(DeviceVariable* variable);
/// Makes the copies of a device that there are not yet, with the values from the source.
void make_variables(int device);
/// The running thread's copy; on the host the variable itself.
void* variable_here(const DeviceVariable& variable);

}  // namespace tutti::simt
