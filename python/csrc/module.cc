// The Python module tutti_torch._C.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "allocator.h"
#include "backend.h"

namespace {

namespace py = pybind11;
using tutti::python::TorchBackend;

c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                         int size, std::chrono::milliseconds timeout,
                                         const std::string& name, const std::string& group,
                                         const std::vector<std::uint64_t>& global_ranks) {
  // Not by a call guard: arguments must be let go with the interpreter's lock held.
  const py::gil_scoped_release release;
  auto options = c10::make_intrusive<TorchBackend::Options>(name, timeout);
  options->group_name = group;
  options->global_ranks_in_group = global_ranks;
  return TorchBackend::create(store, rank, size, options);
}

std::string describe(const c10::intrusive_ptr<c10d::Backend>& backend) {
  auto* own = dynamic_cast<TorchBackend*>(backend.get());
  TORCH_CHECK_VALUE(own != nullptr, "tutti: describe: this group has another backend, ",
                    backend->getBackendName());
  const py::gil_scoped_release release;
  return own->describe();
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.doc() = "Tutti's process groups for PyTorch; use the package tutti_torch";
  module.attr("version") = TUTTI_VERSION;
  module.attr("torch_version") = TORCH_VERSION;
  module.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("timeout"), py::arg("name"), py::arg("group"), py::arg("global_ranks"));
  module.def("describe", &describe, py::arg("backend"));
  module.def("enable_shared_allocator", &tutti::python::enable_shared_allocator,
             py::arg("from_bytes"));
  module.def("shared_allocator_enabled", &tutti::python::shared_allocator_enabled);
  module.def("pool_use", [] {
    const auto use = tutti::python::pool_use();
    return std::pair(use.used, use.kept);
  });
}
