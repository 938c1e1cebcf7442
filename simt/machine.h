// File: simt/machine.h: the machine that is pretended: its GPUs, as NVML and CUDA tell of them.
//
// It is that of SIMT_MACHINE, a model or a file as in topology/capture/machines.h; without it, GPUs
// of which each reaches all others by NVLink, and of which NVML knows no links. Settings::devices
// says how many of them there are. Read once, when it is first asked for; never changed.
#pragma once
#include "topology/capture/machines.h"

namespace tutti::simt {

/// An error in SIMT_MACHINE ends the process with a line that says so.
const topology::LibraryAnswers& machine();
/// Its graph; empty without SIMT_MACHINE.
const topology::Graph& machine_graph();
/// The facts of a device: `device` has to be one.
const topology::CudaGpu& cuda_gpu(int device);
const topology::NvmlGpu& nvml_gpu(int device);

}  // namespace tutti::simt
