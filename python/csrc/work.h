// File: python/csrc/work.h: an operation of a process group that was started, as torch sees it.
//
// Model: the code that runs the operation holds a reference until it is over, so a Work that the
// user drops goes on, and keeps its tensors alive. `complete` is called once. A future is made when
// it is first asked for; its callbacks run on a Completions thread, or at once if the work is done.
#pragma once
#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Work.hpp>

namespace tutti::python {

/// Cuts a user's time limit, which may be for ever, to what Tutti takes and can add to clocks.
inline std::chrono::milliseconds bounded(std::chrono::milliseconds limit) {
  return std::min(limit, std::chrono::milliseconds(1'000'000'000));
}

/// What an operation is called. Profilers show the titles; `stand_in` where we stand in for gloo.
struct Operation {
  c10d::OpType type;
  const char* name;
  const char* title;
  const char* stand_in;
};

class TorchWork : public c10d::Work {
 public:
  TorchWork(int rank, const Operation& operation, bool stands_in,
            const std::vector<at::Tensor>& inputs, std::vector<at::Tensor> outputs,
            std::uint64_t number)
      : c10d::Work(rank, operation.type, stands_in ? operation.stand_in : operation.title, inputs),
        name_(operation.name),
        number_(number),
        outputs_(std::move(outputs)) {}

  /// It is over. Any thread. Waiters go on at once, or once its future's callbacks have run, if
  /// somebody has asked for its future.
  void complete(std::exception_ptr failure = nullptr);

  /// Throws what the operation failed with, or a DistBackendError if it is not done by then; it
  /// goes on, and can be waited for again.
  bool wait(std::chrono::milliseconds timeout = kNoTimeout) override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  std::vector<at::Tensor> result() override { return outputs_; }
  std::uint64_t getSequencenumber() const override { return number_; }
  int sourceRank() const override { return source_; }
  /// Ends the group: an operation alone can't be ended, as its peers are in it.
  void abort() override;

  /// Calls it once this is over, with what it failed with, if it did; at once if it is over. Any
  /// thread. It must not block.
  void then(std::function<void(std::exception_ptr)> callback);
  /// For a receive from any rank, before it is completed.
  void set_source(int rank) { source_ = rank; }
  void set_abort(std::function<void()> abort) { abort_ = std::move(abort); }
  const char* name() const { return name_; }

 private:
  void tell(c10::ivalue::Future& future);

  const char* name_;
  std::uint64_t number_;
  std::vector<at::Tensor> outputs_;
  int source_ = -1;
  std::function<void()> abort_;
  std::mutex future_mutex_;  // Guards all below.
  bool over_ = false;
  std::exception_ptr failure_;
  std::vector<std::function<void(std::exception_ptr)>> callbacks_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace tutti::python
