// A TorchBackend with tensors of CUDA devices: it puts calls onto streams.
#include <algorithm>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "backend.h"
#include "errors.h"
#include "operations.h"

namespace tutti::python {
namespace {

c10::Stream current_stream(c10::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

/// Work that is put onto the stream from now on waits for the work that is on the other one now.
void let_wait(const c10::Stream& stream, const c10::Stream& other) {
  c10::Event event(other.device_type());
  event.record(other);
  event.block(stream);
}

DeviceEnd end_on(const Devices::LinkPtr& link, const c10::Stream& stream) {
  const auto event = std::make_shared<c10::Event>(stream.device_type());
  event->record(stream);
  return {link, event};
}

}  // namespace

/// The tensors' device; empty: the CPU. Throws a RuntimeError if they are on several devices.
std::optional<c10::Device> TorchBackend::device_of(const Job& job) {
  std::optional<c10::Device> device;
  for (const Tensors* list : {&job.inputs, &job.outputs, &job.keeps}) {
    for (const at::Tensor& tensor : *list) {
      if (!device) device = tensor.device();
      TORCH_CHECK(*device == tensor.device(), "tutti: ", job.operation.name, ": one tensor is on ",
                  *device, ", another on ", tensor.device());
    }
  }
  return device && !device->is_cpu() ? device : std::nullopt;
}

TorchBackend::Ptr<DeviceWork> TorchBackend::make_device_work(const Operation& operation,
                                                             const Tensors& inputs, Tensors outputs,
                                                             std::uint64_t number,
                                                             std::vector<DeviceEnd> ends) {
  return c10::make_intrusive<DeviceWork>(
      DeviceWork::What{operation, rank_, stands_in_, number,
                       describe(operation.name, number, *shared_)},
      inputs, std::move(outputs), std::move(ends));
}

/// Marks the end of a call that was just put onto the stream. Holds its tensors until it is over
/// or has taken longer than the limit.
TorchBackend::Ptr<DeviceWork> TorchBackend::end_on_device(const DeviceCall& call,
                                                          const Devices::LinkPtr& link,
                                                          const c10::Stream& stream,
                                                          Tensors tensors) {
  DeviceEnd end = end_on(link, stream);
  const bool captured = DeviceComm::is_capturing(stream.native_handle());
  if (captured) end.kept = link->keep(std::move(tensors));
  auto work = make_device_work(call.operation, call.inputs, call.outputs, call.number, {end});
  if (!captured)
    call.devices.hold(work, std::move(tensors),
                      call.limit < longest_ ? std::chrono::steady_clock::now() + call.limit
                                            : Devices::Time::max());
  return work;
}

void TorchBackend::fail_on_device(const Operation& operation, std::uint64_t number,
                                  const Error& error) {
  shared_->note(error.code);
  raise(describe(operation.name, number, *shared_), error);
}

/// `issue_` is held.
TorchBackend::WorkPtr TorchBackend::issue_on_device(const JobPtr& job, c10::Device device,
                                                    bool async) {
  bool joined = false;
  {
    const std::lock_guard lock(mutex_);
    joined = coalesced_.has_value();
  }
  const auto devices = this->devices();
  const Devices::LinkPtr link = devices->all(device);
  const c10::Stream current = current_stream(device);
  const bool own = async || joined;
  const c10::Stream stream = own ? link->stream() : current;
  if (own) let_wait(stream, current);
  const Status status = link->use([&](const DeviceComm& comm) -> Status {
    for (const Request& request : job->requests)
      TUTTI_RETURN_IF_ERROR(comm.call(request, stream.native_handle()));
    return ok();
  });
  if (status && !job->copies.empty()) {
    const c10::StreamGuard guard(stream);
    for (const auto& [to, from] : job->copies) copy_over(to, from);
  }
  // A call on the current stream is in order with all uses of its tensors. A captured call has no
  // limit of its own.
  const bool limited = job->timeout < longest_ && !DeviceComm::is_capturing(stream.native_handle());
  if (!own && !limited && status) return nullptr;
  Tensors tensors = std::move(job->keeps);
  for (const Tensors* list : {&job->inputs, &job->outputs})
    tensors.insert(tensors.end(), list->begin(), list->end());
  for (const auto& [to, from] : job->copies) tensors.push_back(from);
  const auto work = end_on_device(
      {job->operation, job->inputs, job->outputs, job->number, job->timeout, *devices}, link,
      stream, std::move(tensors));
  if (!status) fail_on_device(job->operation, job->number, status.error());
  if (joined) {
    const std::lock_guard lock(mutex_);
    if (coalesced_) coalesced_->on_devices.push_back(work);
  }
  return work;
}

TorchBackend::WorkPtr TorchBackend::message_on_device(const DeviceMessage& message) {
  TORCH_CHECK(message.peer >= 0, "tutti: ", message.operation.name,
              ": a CUDA tensor can't be received from any rank; name it");
  TORCH_CHECK(message.peer != rank_, "tutti: ", message.operation.name,
              ": a CUDA tensor can't be sent to oneself; copy it");
  {
    const std::lock_guard lock(mutex_);
    if (coalesced_) {
      coalesced_->messages.push_back(message);
      return nullptr;  // One Work stands for all of them, at the end.
    }
  }
  return start_on_device(message);
}

TorchBackend::Ptr<DeviceWork> TorchBackend::start_on_device(const DeviceMessage& message) {
  const at::Tensor& tensor = message.tensor;
  const Members now = members();
  if (now.collectives == nullptr)
    raise(describe(message.operation.name, message.number, *shared_), no_ranks());
  const auto link = now.devices->pair(message.peer, message.sends, tensor.device());
  const c10::Stream& stream = link->stream();
  const c10::NoGradGuard no_grad;
  at::Tensor row = tensor;
  if (!lies_in_a_row(tensor))
    row = message.sends ? tensor.contiguous().resolve_conj().resolve_neg()
                        : at::empty(tensor.sizes(), tensor.options());
  let_wait(stream, current_stream(tensor.device()));
  const Rank peer{message.peer < rank_ ? 0 : 1};  // Among the link's two.
  const Status status = link->use([&](const DeviceComm& comm) {
    return message.sends
               ? comm.send(row.const_data_ptr(), row.nbytes(), peer, stream.native_handle())
               : comm.recv(row.data_ptr(), row.nbytes(), peer, stream.native_handle());
  });
  if (status && !message.sends && !row.is_same(tensor)) {
    const c10::StreamGuard guard(stream);
    copy_over(tensor, row);
  }
  const Tensors outputs = message.sends ? Tensors{} : Tensors{tensor};
  const auto work =
      end_on_device({message.operation, {tensor}, outputs, message.number, limit(), *now.devices},
                    link, stream, {tensor, row});
  if (!status) fail_on_device(message.operation, message.number, status.error());
  return work;
}

TorchBackend::WorkPtr TorchBackend::end_coalescing_on_devices(const Coalesced& coalesced) {
  TORCH_CHECK(coalesced.works.empty(),
              "tutti: coalesced calls are on the CPU or on a device, not on both");
  std::vector<const DeviceMessage*> messages;
  for (const DeviceMessage& message : coalesced.messages) messages.push_back(&message);
  std::stable_sort(messages.begin(), messages.end(),
                   [devices = devices()](const DeviceMessage* one, const DeviceMessage* other) {
                     return devices->before(one->peer, other->peer);
                   });
  auto works = coalesced.on_devices;
  for (const DeviceMessage* message : messages) works.push_back(start_on_device(*message));
  Tensors outputs;
  std::vector<DeviceEnd> ends;
  for (const auto& work : works) {
    const Tensors results = work->result();
    outputs.insert(outputs.end(), results.begin(), results.end());
    ends.insert(ends.end(), work->ends().begin(), work->ends().end());
  }
  return make_device_work(kCoalesced, outputs, outputs, number_++, std::move(ends));
}

void TorchBackend::eagerConnectSingleDevice(at::Device device) {
  const std::lock_guard order(issue_);
  // torch asks for it when the group is made: one that has no ranks yet connects them later.
  const Members now = members();
  if (!device.is_cpu() && now.collectives != nullptr) now.devices->all(device);
}

}  // namespace tutti::python
