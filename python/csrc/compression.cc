#include "compression.h"

#include <pybind11/chrono.h>

#include <ATen/Functions.h>

#include "backend.h"
#include "operations.h"
#include "tutti/compression.h"

namespace tutti::python {
namespace {

namespace py = pybind11;

std::span<float> values_of(const at::Tensor& tensor, const char* function) {
  TORCH_CHECK(
      tensor.device().is_cpu() && tensor.scalar_type() == at::kFloat && lies_in_a_row(tensor),
      "tutti: ", function, ": takes contiguous float32 tensors of the CPU, not ",
      tensor.scalar_type(), " on ", tensor.device(), "; wires take CUDA tensors too");
  return {tensor.data_ptr<float>(), static_cast<std::size_t>(tensor.numel())};
}

/// The arguments have no default meaning here: tutti_torch/compression.py names them.
template <class Compressor, class... Arguments>
void add(py::module_& module, const char* name) {
  py::class_<Compressor>(module, name)
      .def(py::init<Arguments...>())
      .def(
          "average",
          [](Compressor& self, TorchBackend& backend, const at::Tensor& tensor) {
            const std::span<float> gradient = values_of(tensor, "average");
            backend.run(kCompressed, [&](Communicator& communicator) {
              return self.average(communicator, gradient);
            });
          },
          py::call_guard<py::gil_scoped_release>())
      .def("state",
           [](const Compressor& self) {
             std::vector<float> state = self.state();
             return at::from_blob(state.data(), {static_cast<std::int64_t>(state.size())},
                                  at::kFloat)
                 .clone();
           })
      .def("restore", [](Compressor& self, const at::Tensor& state) {
        const Status status = self.restore(values_of(state, "restore"));
        TORCH_CHECK(status, "tutti: ", status.error().what);
      });
}

}  // namespace

void add_compression(py::module_& module) {
  add<TopK, std::size_t, std::size_t>(module, "TopK");
  add<OneBit, std::size_t>(module, "OneBit");
  add<PowerSgd, std::size_t, std::size_t, std::size_t>(module, "PowerSgd");
}

}  // namespace tutti::python
