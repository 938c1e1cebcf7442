// File: python/csrc/devices/device_work.h: an operation on CUDA tensors that was put onto a stream.
//
// Model: as that of torch's own backend of NCCL. `wait` makes the caller's current stream wait for
// the operation, and not the host, unless it is given a time limit. Tensors are held until that, or
// until the operation is over (Devices::hold); record_stream is not used, which keeps memory for
// longer. An operation that is captured into a graph is never over: the link holds its tensors
// until it, or one behind it on the link's stream, is waited for. Futures are completed at once,
// for callbacks that run on streams which wait. Streams and events are torch's device-agnostic
// ones, so that no header of CUDA is needed.
#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "devices/device_library.h"
#include "work.h"

namespace tutti::python {

/// A communicator of devices and the stream on which its asynchronous calls take place. Any thread.
/// A launch may block (the stream's queue is full behind a call that hangs), so `check` and `abort`
/// do not wait for launches.
class DeviceLink {
 public:
  DeviceLink(DeviceComm comm, c10::Stream stream)
      : comm_(std::make_shared<const DeviceComm>(std::move(comm))), stream_(stream) {}

  const c10::Stream& stream() const { return stream_; }
  /// Calls body(const DeviceComm&), which returns a Status; only one at a time. An error once the
  /// link is closed.
  template <class Body>
  Status use(const Body& body) {
    const std::lock_guard calling(calling_);
    const auto comm = this->comm();
    return comm ? body(*comm) : last();
  }
  /// Ok, or why its calls have ended early; after closing too.
  Status check();
  void abort(const std::string& reason);
  /// Waits for what its device does, and a little for the other ranks. Once.
  void close();

  /// Holds the tensors of a call that was captured from the link's stream; the number is for
  /// `let_go`.
  std::uint64_t keep(std::vector<at::Tensor> tensors);
  /// Lets go of what was kept up to that number.
  void let_go(std::uint64_t number);

 private:
  std::shared_ptr<const DeviceComm> comm();
  Status last();

  std::mutex calling_;  // Held during a call. Before mutex_.
  std::mutex mutex_;    // Guards what follows; never held during a call.
  std::shared_ptr<const DeviceComm> comm_;
  Error last_{Code::kAborted, "the process group was shut down", {}, {}};
  std::uint64_t kept_number_ = 0;  // The number of the last one in the list.
  std::list<std::pair<std::uint64_t, std::vector<at::Tensor>>> kept_;
  const c10::Stream stream_;
};

/// The end of an operation on a link's stream.
struct DeviceEnd {
  std::shared_ptr<DeviceLink> link;
  std::shared_ptr<c10::Event> event;
  /// For an operation that was captured: what its link keeps.
  std::optional<std::uint64_t> kept = std::nullopt;
  /// Whether the event has happened; empty if that can't be known.
  std::optional<bool> come() const;
};

/// A Work whose tensors live on devices. Any thread.
class DeviceWork : public c10d::Work {
 public:
  struct What {
    const Operation& operation;
    int rank;
    bool stands_in;
    std::uint64_t number;
    std::string text;  // For errors: which operation of which group.
  };
  DeviceWork(What what, const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs,
             std::vector<DeviceEnd> ends)
      : c10d::Work(what.rank, what.operation.type,
                   what.stands_in ? what.operation.stand_in : what.operation.title, inputs),
        what_(std::move(what)),
        outputs_(std::move(outputs)),
        ends_(std::move(ends)) {}

  bool isCompleted() override;
  bool isSuccess() const override { return exception() == nullptr; }
  std::exception_ptr exception() const override;
  /// The current stream of each device waits. Throws what a link has failed with so far. With a
  /// time limit the host waits first; if it is not over by then, a DistBackendError, and it goes
  /// on.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  void synchronize() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::vector<at::Tensor> result() override { return outputs_; }
  std::uint64_t getSequencenumber() const override { return what_.number; }
  /// Ends the links that it is on.
  void abort() override;

  /// Whether a part of it is known to be under way.
  bool busy() const;
  const std::vector<DeviceEnd>& ends() const { return ends_; }
  const std::string& text() const { return what_.text; }
  /// What must not be used again before this is over, or is waited for.
  void keep(std::vector<at::Tensor> tensors);
  void let_go();

 private:
  const What what_;
  const std::vector<at::Tensor> outputs_;
  const std::vector<DeviceEnd> ends_;
  std::mutex own_mutex_;  // Guards what follows.
  std::vector<at::Tensor> kept_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace tutti::python
