// The Python module tutti_torch._C.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/version.h>

#include "allocator.h"
#include "backend.h"
#include "compression.h"

namespace tutti::python {

/// How Python holds a backend: it is let go without the interpreter's lock, as its end waits for
/// threads that may need that.
template <class T>
class Held {
 public:
  Held() = default;
  Held(c10::intrusive_ptr<T> pointer) : pointer_(std::move(pointer)) {}
  explicit Held(T* pointer) : pointer_(c10::intrusive_ptr<T>::unsafe_steal_from_new(pointer)) {}
  Held(const Held&) = default;
  Held(Held&&) noexcept = default;
  Held& operator=(const Held&) = default;
  Held& operator=(Held&&) noexcept = default;
  ~Held() {
    if (!pointer_) return;
    if (PyGILState_Check() == 0) {
      pointer_.reset();
      return;
    }
    const pybind11::gil_scoped_release release;
    pointer_.reset();
  }
  T& operator*() const { return *pointer_; }
  T* operator->() const { return pointer_.get(); }
  T* get() const { return pointer_.get(); }
  explicit operator bool() const { return static_cast<bool>(pointer_); }

 private:
  c10::intrusive_ptr<T> pointer_;
};

}  // namespace tutti::python

PYBIND11_DECLARE_HOLDER_TYPE(T, tutti::python::Held<T>, true)

namespace {

namespace py = pybind11;
using tutti::python::Held;
using tutti::python::TorchBackend;

Held<TorchBackend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                          std::chrono::milliseconds timeout, const std::string& name,
                          const std::string& group, const std::vector<std::uint64_t>& global_ranks,
                          bool apart) {
  // Not by a call guard: arguments must be let go with the interpreter's lock held.
  const py::gil_scoped_release release;
  auto options = c10::make_intrusive<TorchBackend::Options>(name, timeout);
  options->group_name = group;
  options->global_ranks_in_group = global_ranks;
  return apart ? TorchBackend::create_apart(store, rank, size, options)
               : TorchBackend::create(store, rank, size, options);
}

double seconds(std::chrono::nanoseconds time) {
  return std::chrono::duration<double>(time).count();
}

py::dict counters_of(TorchBackend& backend) {
  const auto counters = [&] {
    const py::gil_scoped_release release;
    return backend.counters();
  }();
  py::dict calls, bytes, waits;
  for (int i = 0; i < tutti::kCollectiveCount; ++i) {
    const auto which = static_cast<tutti::Collective>(i);
    const std::string name(tutti::to_string(which));
    calls[py::str(name)] = counters.of(which).calls;
    bytes[py::str(name)] = counters.of(which).bytes;
  }
  for (std::size_t rank = 0; rank < counters.waits.size(); ++rank) {
    py::dict wait;
    wait["calls"] = counters.waits[rank].calls;
    wait["seconds"] = seconds(counters.waits[rank].time);
    if (counters.waits[rank].calls != 0) waits[py::int_(rank)] = wait;
  }
  const int slowest = counters.slowest().value;
  py::dict all;
  all["calls"] = calls;
  all["bytes"] = bytes;
  all["age_seconds"] = seconds(counters.age);
  all["call_seconds"] = seconds(counters.in_calls);
  all["wait_seconds"] = seconds(counters.waited());
  all["waits"] = waits;
  all["slowest_rank"] = slowest < 0 ? py::object(py::none()) : py::object(py::int_(slowest));
  return all;
}

/// What torch calls of those that it takes for objects of gloo's or NCCL's class.
void add_stand_in(py::class_<TorchBackend, c10d::Backend, Held<TorchBackend>>& backend) {
  const auto nothing = [](const TorchBackend&) {};
  backend
      .def("_set_default_timeout", &TorchBackend::setTimeout, py::arg("timeout"))
      // What follows is NCCL's. Its groups have numbers; -1 is what torch says of all others.
      .def_property_readonly("uid", [](const TorchBackend&) { return -1; })
      .def("get_error", &TorchBackend::getError, py::call_guard<py::gil_scoped_release>())
      // Aborting a Tutti group waits for no other.
      .def("_group_start", nothing)
      .def("_group_end", nothing)
      .def(
          "_add_ephemeral_timeout",
          [](const TorchBackend&, std::chrono::milliseconds) {
            TORCH_WARN(
                "tutti: a group's time limit can't be raised for a while: make the group "
                "with a timeout= that is long enough");
          },
          py::arg("timeout"));
}

}  // namespace

PYBIND11_MODULE(_C, module) {
  module.doc() = "Tutti's process groups for PyTorch; use the package tutti_torch";
  module.attr("version") = TUTTI_VERSION;
  module.attr("torch_version") = TORCH_VERSION;
  module.attr("like_gloo") = TUTTI_LIKE_GLOO != 0;    // See like_gloo.h.
  py::module_::import("torch._C._distributed_c10d");  // The base class is registered there.
  module.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"),
             py::arg("timeout"), py::arg("name"), py::arg("group"), py::arg("global_ranks"),
             py::arg("apart") = false);
  // split_group copies those of the group that it splits, which torch's own class can't.
  using Options = TorchBackend::Options;
  py::class_<Options, c10d::Backend::Options, c10::intrusive_ptr<Options>>(module, "Options")
      .def("__deepcopy__", [](const Options& options, const py::dict&) {
        return c10::make_intrusive<Options>(options);
      });
  py::class_<TorchBackend, c10d::Backend, Held<TorchBackend>> backend(module, "ProcessGroupTutti");
  add_stand_in(backend);
  backend.def_property_readonly("options", &TorchBackend::getBackendOptions)
      .def(
          "describe", [](TorchBackend& self) { return self.describe(); },
          py::call_guard<py::gil_scoped_release>(),
          "Transports, memory, waiting and plans of the group, for people.")
      .def(
          "flight_record", [](TorchBackend& self) { return self.flight_record(); },
          py::call_guard<py::gil_scoped_release>(), "The latest collectives on CPU tensors, JSON.")
      .def("all_reduce_on_wire", &TorchBackend::all_reduce_on_wire, py::arg("tensor"),
           py::arg("wire"), py::call_guard<py::gil_scoped_release>(),
           "What tutti_torch.compression.wire_hook calls.")
      .def("lost_ranks", &TorchBackend::lost_ranks, py::arg("exclude"),
           py::call_guard<py::gil_scoped_release>(), "What tutti_torch.lost_ranks returns.")
      .def(
          "completed_calls",
          [](const TorchBackend& self) {
            const std::int64_t completed = self.completed();
            return completed < 0 ? std::nullopt : std::optional(completed);
          },
          "What tutti_torch.completed_calls returns.")
      .def("agree", &TorchBackend::agree, py::arg("flags"),
           py::call_guard<py::gil_scoped_release>(), "What tutti_torch.agree returns.")
      .def("health", &TorchBackend::health, py::call_guard<py::gil_scoped_release>(),
           "What tutti_torch.health returns.")
      .def("revoke", &TorchBackend::revoke, py::arg("reason"),
           py::call_guard<py::gil_scoped_release>(), "What tutti_torch.revoke does.")
      .def("counters", &counters_of, "What tutti_torch.stats returns.");
  tutti::python::add_compression(module);
  module.def("enable_shared_allocator", &tutti::python::enable_shared_allocator,
             py::arg("from_bytes"));
  module.def("shared_allocator_enabled", &tutti::python::shared_allocator_enabled);
  module.def("pool_use", [] {
    const auto use = tutti::python::pool_use();
    return std::pair(use.used, use.kept);
  });
}
