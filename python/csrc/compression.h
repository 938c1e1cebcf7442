// File: python/csrc/compression.h: averages with error feedback (tutti/compression.h) in Python.
#pragma once
#include <torch/csrc/utils/pybind.h>

namespace tutti::python {

/// Adds the classes TopK, OneBit and PowerSgd to the module. `average(backend, tensor)` is a
/// synchronous collective of the group on a tensor of float32 in this process' memory, which it
/// changes; `state()` is a tensor, which `restore(tensor)` takes.
void add_compression(pybind11::module_& module);

}  // namespace tutti::python
