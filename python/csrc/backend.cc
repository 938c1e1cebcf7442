#include "backend.h"

#include <algorithm>
#include <cstdio>
#include <random>

#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "completions.h"
#include "errors.h"
#include "operations.h"

namespace tutti::python {
namespace {

/// How long a group that is given up waits for what is still under way.
constexpr std::chrono::seconds kGoodbye{10};

c10d::ErrorType error_type(Code code) {
  switch (code) {
    case Code::kTimeout: return c10d::ErrorType::TIMEOUT;
    case Code::kRevoked:  // By a rank that wants all others to shrink.
    case Code::kPeerFailed: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

/// By the rank with which the group is made, and a number of its own: a process that takes the
/// place of another has another one.
std::string make_handle(int rank) {
  std::random_device random;
  char number[20];
  std::snprintf(number, sizeof(number), ":%08x%08x", random(), random());
  return kHandlePrefix + std::to_string(rank) + number;
}

}  // namespace

TorchBackend::Ptr<TorchBackend> TorchBackend::create(const Ptr<c10d::Store>& store, int rank,
                                                     int size, const Ptr<Options>& options) {
  auto backend = create_apart(store, rank, size, options);
  StoreRendezvous rendezvous(store, rank);
  backend->join(rendezvous, "making process group '" + options->group_name + "' of " +
                                std::to_string(size) + " ranks");
  return backend;
}

TorchBackend::Ptr<TorchBackend> TorchBackend::create_apart(const Ptr<c10d::Store>& store, int rank,
                                                           int size, const Ptr<Options>& options) {
  return Ptr<TorchBackend>::unsafe_steal_from_new(new TorchBackend(store, rank, size, options));
}

TorchBackend::TorchBackend(Ptr<c10d::Store> store, int rank, int size, const Ptr<Options>& options)
    : LikeGloo(rank, size, options),
      store_(std::move(store)),
      stands_in_(options->backend == "gloo"),
      longest_(options->timeout),
      timeout_(options->timeout),
      shared_(new Shared{.group = options->group_name}),
      handle_(make_handle(rank)) {
  init();
}

TorchBackend::~TorchBackend() { shutdown(); }

void TorchBackend::setTimeout(std::chrono::milliseconds timeout) {
  TORCH_CHECK(timeout.count() > 0, "tutti: a time limit is more than 0 ms");
  if (bounded(timeout) > longest_)
    TORCH_WARN("tutti: group '", shared_->group, "' keeps the time limit of ", longest_.count(),
               " ms that it was made with: it can be lowered, not raised; make a group with "
               "timeout=");
  options_->timeout = std::min(bounded(timeout), longest_);
  timeout_.store(options_->timeout, std::memory_order_relaxed);
}

void TorchBackend::Shared::note(Code code) { error = error_type(code); }

c10d::ErrorType TorchBackend::getError() {
  const auto devices = members().devices;
  if (const Status status = devices ? devices->check() : ok(); !status)
    shared_->note(status.error().code);
  return shared_->error;
}

std::string TorchBackend::describe() {
  const Members now = members();
  if (now.collectives == nullptr) return no_ranks().what + "\n";
  return now.collectives->describe() + now.devices->describe();
}

Counters TorchBackend::counters() {
  const auto communicator = this->communicator();
  if (communicator == nullptr) raise("group '" + shared_->group + "'", no_ranks());
  const auto counters = communicator->counters();
  TORCH_CHECK_WITH(DistBackendError, counters, counters.error().to_string());
  return *counters;
}

std::string TorchBackend::flight_record() {
  const auto communicator = this->communicator();
  if (communicator == nullptr) raise("group '" + shared_->group + "'", no_ranks());
  auto record = communicator->flight_record();
  TORCH_CHECK_WITH(DistBackendError, record, record.error().to_string());
  return *std::move(record);
}

std::string TorchBackend::describe(const char* name, std::uint64_t number, const Shared& shared) {
  return std::string(name) + " (number " + std::to_string(number) + " of group '" + shared.group +
         "')";
}

TorchBackend::JobPtr TorchBackend::make_job(const Operation& operation,
                                            std::chrono::milliseconds timeout) {
  auto job = std::make_shared<Job>(operation, timeout == c10d::kUnsetTimeout ? limit() : timeout);
  job->communicator = communicator();
  return job;
}

TorchBackend::Ptr<TorchWork> TorchBackend::make_work(const Operation& operation,
                                                     const Tensors& inputs, Tensors outputs,
                                                     std::uint64_t number) {
  auto work = c10::make_intrusive<TorchWork>(rank_, operation, stands_in_, inputs,
                                             std::move(outputs), number);
  work->set_abort([weak = c10::weak_intrusive_ptr<c10d::Backend>(
                       Ptr<c10d::Backend>::unsafe_reclaim_from_nonowning(this)),
                   of = std::weak_ptr(communicator())] {
    const auto backend = weak.lock();
    // Not those that the group has now.
    if (backend && static_cast<TorchBackend&>(*backend).communicator() == of.lock())
      backend->abort();
  });
  return work;
}

/// Ends the group if the work is not over in time. The group's own limit is kept by Tutti, which
/// can say more.
void TorchBackend::limit(const Ptr<TorchWork>& work, std::chrono::milliseconds timeout) {
  if (timeout >= longest_) return;
  const std::string what = describe(work->name(), work->getSequencenumber(), *shared_);
  const Members now = members();
  const auto end = [weak = c10::weak_intrusive_ptr<TorchWork>(work), what, timeout,
                    communicator = std::weak_ptr(now.collectives), messages = now.messages] {
    const auto late = weak.lock();
    if (!late || late->isCompleted()) return;
    const std::string reason =
        "Timed out after " + std::to_string(timeout.count()) + " ms, its own time limit: " + what;
    if (const auto still = communicator.lock()) still->abort(reason);
    messages->abort(reason);
  };
  Completions::instance().post_at(std::chrono::steady_clock::now() + timeout, end);
}

TorchBackend::WorkPtr TorchBackend::issue(const JobPtr& job, bool async) {
  const std::lock_guard order(issue_);
  const auto communicator = this->communicator();
  job->shared = shared_;
  job->number = number_++;
  if (communicator == nullptr)
    raise(describe(job->operation.name, job->number, *shared_), no_ranks());
  if (job->communicator.lock() != communicator) {
    raise(describe(job->operation.name, job->number, *shared_),
          {Code::kAborted, "the group was reconfigured meanwhile", Rank{rank_}});
  }
  if (const auto device = device_of(*job)) return issue_on_device(job, *device, async);
  bool joined = false;
  const auto make_work = [&] {
    job->work = this->make_work(job->operation, job->inputs, job->outputs, job->number);
  };
  {
    const std::lock_guard lock(mutex_);
    joined = coalesced_.has_value();
    if (joined) {
      make_work();
      coalesced_->works.push_back(job->work);
    }
  }
  const bool waited_for = !async && !joined;
  if (waited_for && job->timeout >= longest_ && !at::hasCallbacks()) {
    run(*communicator, job);
    return nullptr;
  }
  if (!joined) make_work();
  limit(job->work, job->timeout);
  if (waited_for)
    run(*communicator, job);
  else
    start(*communicator, job);
  return job->work;
}

/// On this thread; throws.
void TorchBackend::run(Communicator& communicator, const JobPtr& job) {
  for (const Request& request : job->requests) {
    if (Status status = communicator.call(request); !status) {
      job->error = std::move(status.error());
      break;
    }
  }
  if (auto failure = finish(job); failure != nullptr) std::rethrow_exception(failure);
}

void TorchBackend::run(const Operation& operation,
                       const std::function<Status(Communicator&)>& call) {
  const std::lock_guard order(issue_);
  const auto communicator = this->communicator();
  const std::string what = describe(operation.name, number_++, *shared_);
  if (communicator == nullptr) raise(what, no_ranks());
  if (const Status status = call(*communicator); !status) {
    shared_->note(status.error().code);
    raise(what, status.error());
  }
}

void TorchBackend::start(Communicator& communicator, const JobPtr& job) {
  ++shared_->under_way;
  job->open = job->requests.size() + 1;
  for (const Request& request : job->requests) {
    auto started = communicator.start(request);
    if (started)
      started->then([job](const Status& status) { note(job, status); });
    else
      note(job, started.error());
  }
  note(job, ok());
}

/// A request of the job is over; or all have been started.
void TorchBackend::note(const JobPtr& job, const Status& status) {
  {
    const std::lock_guard lock(job->mutex);
    if (!status && !job->error) job->error = status.error();
    if (--job->open != 0) return;
  }
  const auto over = [](const JobPtr& done) {
    finish(done);
    --done->shared->under_way;
  };
  if (!job->copies.empty()) return Completions::instance().post([job, over] { over(job); });
  over(job);
  // Letting tensors of Python go may wait for the interpreter: not on the progress thread.
  Completions::instance().post([job] {});
}

/// The failure of the job, or null.
std::exception_ptr TorchBackend::finish(const JobPtr& job) {
  std::exception_ptr failure;
  if (job->error) {
    failure = exception_of(describe(job->operation.name, job->number, *job->shared), *job->error);
    job->shared->note(job->error->code);
  } else if (!job->copies.empty()) {
    try {
      for (const auto& [to, from] : job->copies) copy_over(to, from);
    } catch (...) {
      failure = std::current_exception();
    }
  }
  if (job->work) job->work->complete(failure);
  return failure;
}

TorchBackend::WorkPtr TorchBackend::message(const Operation& operation, Tensors& tensors, int peer,
                                            int tag, bool sends) {
  const at::Tensor tensor = only(tensors, operation.name);
  const auto messages = members().messages;
  const int ranks = messages ? messages->ranks() : size_;
  TORCH_CHECK(peer < ranks, "tutti: ", operation.name, ": rank ", peer, " is not one of the ",
              ranks, " ranks");
  if (!tensor.device().is_cpu())
    return message_on_device({operation, tensor, peer, sends, number_++});
  const bool in_a_row = lies_in_a_row(tensor);
  const auto work = make_work(operation, tensors, sends ? Tensors{} : tensors, number_++);
  limit(work, limit());
  join(work);
  if (messages == nullptr) {
    // Not thrown: in a batch torch would go on collecting calls for ever.
    work->complete(
        exception_of(describe(work->name(), work->getSequencenumber(), *shared_), no_ranks()));
    return work;
  }
  if (sends) {
    messages->send(in_a_row ? tensor : tensor.contiguous(), peer, tag, work);
    return work;
  }
  if (in_a_row) {
    messages->recv(tensor, peer, tag, work);
    return work;
  }
  const at::Tensor copy = at::empty(tensor.sizes(), tensor.options());
  const auto inner = c10::make_intrusive<TorchWork>(rank_, operation, stands_in_, tensors,
                                                    Tensors{}, work->getSequencenumber());
  inner->then([inner = inner.get(), work, tensor, copy](std::exception_ptr failure) {
    work->set_source(inner->sourceRank());
    Completions::instance().post([work, tensor, copy, failure] {
      if (failure != nullptr) return work->complete(failure);
      try {
        copy_over(tensor, copy);
      } catch (...) {
        return work->complete(std::current_exception());
      }
      work->complete();
    });
  });
  messages->recv(copy, peer, tag, inner);
  return work;
}

TorchBackend::WorkPtr TorchBackend::send(Tensors& tensors, int to, int tag) {
  return message(kSend, tensors, to, tag, true);
}

TorchBackend::WorkPtr TorchBackend::recv(Tensors& tensors, int from, int tag) {
  return message(kRecv, tensors, from, tag, false);
}

TorchBackend::WorkPtr TorchBackend::recvAnysource(Tensors& tensors, int tag) {
  return message(kRecvAny, tensors, -1, tag, false);
}

void TorchBackend::join(const Ptr<TorchWork>& work) {
  const std::lock_guard lock(mutex_);
  if (coalesced_) coalesced_->works.push_back(work);
}

void TorchBackend::startCoalescing() {
  const std::lock_guard lock(mutex_);
  TORCH_CHECK(!coalesced_, "tutti: coalescing has begun already");
  coalesced_.emplace();
}

TorchBackend::WorkPtr TorchBackend::endCoalescing() {
  Coalesced coalesced;
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(coalesced_, "tutti: coalescing has not begun");
    coalesced = *std::exchange(coalesced_, std::nullopt);
  }
  if (!coalesced.on_devices.empty() || !coalesced.messages.empty())
    return end_coalescing_on_devices(coalesced);
  const std::vector<Ptr<TorchWork>>& works = coalesced.works;
  Tensors outputs;
  for (const auto& work : works) {
    const Tensors results = work->result();
    outputs.insert(outputs.end(), results.begin(), results.end());
  }
  const auto joined = make_work(kCoalesced, outputs, outputs, number_++);
  struct Open {
    std::mutex mutex;
    std::size_t count;
    std::exception_ptr failure;
  };
  const auto open = std::make_shared<Open>();
  open->count = works.size() + 1;
  const auto one_over = [open, joined](std::exception_ptr failure) {
    {
      const std::lock_guard lock(open->mutex);
      if (open->failure == nullptr) open->failure = failure;
      if (--open->count != 0) return;
    }
    joined->complete(open->failure);
  };
  for (const auto& work : works) work->then(one_over);
  one_over(nullptr);
  return joined;
}

/// By way of the store, so that a rank which does not come leaves the group usable.
void TorchBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_for_all) {
  if (communicator() == nullptr)
    raise("monitored_barrier of group '" + shared_->group + "'", no_ranks());
  const auto limit =
      options.timeout == c10d::kUnsetTimeout ? this->limit() : bounded(options.timeout);
  const auto end = std::chrono::steady_clock::now() + limit;
  const std::string key = members().prefix + "monitored/" + std::to_string(monitored_++) + "/";
  const auto came = [&](const std::string& name) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now());
    try {
      store_->wait({key + name}, std::max(left, std::chrono::milliseconds(1)));
    } catch (const c10::Error&) {  // Stores throw different ones when the time is over.
      return false;
    }
    return true;
  };
  if (rank_ != 0) {
    store_->set(key + std::to_string(rank_), "here");
    if (came("all") && store_->get_to_str(key + "all") == "here") return;
    C10_THROW_ERROR(DistBackendError,
                    c10::str("Rank ", rank_,
                             " successfully reached monitoredBarrier, but received errors while "
                             "waiting for send/recv from rank 0. Please check rank 0 logs for "
                             "faulty rank."));
  }
  std::vector<std::string> missing;
  for (int rank = 1; rank < size_ && (missing.empty() || wait_for_all); ++rank) {
    if (missing.empty() && std::chrono::steady_clock::now() >= end) {
      store_->set(key + "all", "missing");
      C10_THROW_ERROR(DistBackendError, c10::str("Rank 0 timed out in monitoredBarrier after ",
                                                 limit.count(), " ms, before rank ", rank));
    }
    if (!came(std::to_string(rank))) missing.push_back(std::to_string(rank));
  }
  store_->set(key + "all", missing.empty() ? "here" : "missing");
  if (missing.empty()) return;
  std::string names = missing.front();
  for (std::size_t i = 1; i < missing.size(); ++i) names += ", " + missing[i];
  C10_THROW_ERROR(DistBackendError,
                  c10::str("[Rank 0]: Rank", wait_for_all ? "s " : " ", names,
                           " failed to pass monitoredBarrier in ", limit.count(), " ms"));
}

TorchBackend::Ptr<c10d::Backend> TorchBackend::split(const Ptr<c10d::Store>&,
                                                     const std::vector<int>& ranks,
                                                     const Ptr<c10d::Backend::Options>& options) {
  // All ranks of the group call this, in the same order. torch's store is named by the number of
  // groups that this process is in, which may differ: theirs would be other stores.
  const std::string name =
      members().prefix + "split/" + std::to_string(splits_++) + "/" + std::to_string(ranks.front());
  const auto mine = std::find(ranks.begin(), ranks.end(), rank_);
  if (mine == ranks.end()) return nullptr;
  auto own = c10::make_intrusive<Options>(options_->backend,
                                          options ? options->timeout : options_->timeout);
  if (options) {
    own->group_name = options->group_name;
    own->group_desc = options->group_desc;
    own->global_ranks_in_group = options->global_ranks_in_group;
  }
  return create(c10::make_intrusive<c10d::PrefixStore>(name, store_),
                static_cast<int>(mine - ranks.begin()), static_cast<int>(ranks.size()), own);
}

void TorchBackend::abort() {
  abort_members("rank " + std::to_string(rank_) + " aborted the process group");
}

void TorchBackend::abort_members(const std::string& reason) {
  const Members now = members();
  if (now.collectives) now.collectives->abort(reason);
  if (now.messages) now.messages->abort(reason);
  if (now.devices) now.devices->abort(reason);
}

void TorchBackend::shutdown() {
  {
    const std::lock_guard lock(mutex_);
    shut_down_ = true;
  }
  end_members(kGoodbye, "rank " + std::to_string(rank_) +
                            " shut the process group down while this was under way");
}

}  // namespace tutti::python
