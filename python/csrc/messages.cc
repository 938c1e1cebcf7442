#include "messages.h"

#include <algorithm>

#include "allocator.h"
#include "errors.h"

namespace tutti::python {
namespace {

at::Tensor bytes_tensor(std::uint64_t bytes) {
  return make_mappable({static_cast<std::int64_t>(bytes)}, at::kByte);
}

/// Rewrites an error of the receive for the next header, which takes any rank's, for a receive from
/// `from` (less than 0: any).
Error of_receive(Error error, int from) {
  constexpr std::string_view kAny = "from any rank: ";
  if (const auto at = error.what.find(kAny); at != std::string::npos)
    error.what.erase(0, at + kAny.size());
  if (error.code == Code::kTimeout && error.peer.value < 0 && from >= 0) error.peer = Rank{from};
  return error;
}

}  // namespace

Messages::Messages(Communicator communicator)
    : me_(communicator.rank()),
      ranks_(communicator.rank_count()),
      communicator_(std::make_shared<Communicator>(std::move(communicator))),
      needed_(static_cast<std::size_t>(ranks_)) {}

std::string Messages::name(const TorchWork& work, bool sends, int peer, int tag) const {
  const std::string who = peer < 0 ? "any rank" : "rank " + std::to_string(peer);
  return std::string(work.name()) + (sends ? " to " : " from ") + who + " with tag " +
         std::to_string(tag) + " (number " + std::to_string(work.getSequencenumber()) + ")";
}

void Messages::send(const at::Tensor& tensor, int to, int tag,
                    const c10::intrusive_ptr<TorchWork>& work) {
  if (to == me_.value) {
    send_to_self(tensor, tag);
    return work->complete();
  }
  const std::string what = name(*work, true, to, tag);
  const auto header = std::make_shared<Header>();
  *header = {tensor.nbytes(), tag};
  std::optional<tutti::Work> last;
  {
    const std::lock_guard lock(mutex_);
    const auto start = [&](const void* data, std::size_t bytes) {
      auto started = communicator_->start_send(data, bytes, DataType::kUint8, Rank{to});
      if (!started)
        failure_ = failure_.value_or(started.error());
      else
        last = *started;
    };
    if (communicator_ == nullptr) failure_ = failure_.value_or(closed());
    // Both under one lock: other threads' messages must not come in between.
    if (!failure_) start(header.get(), sizeof(Header));
    if (!failure_ && header->bytes != 0) start(tensor.const_data_ptr(), header->bytes);
    if (failure_) return work->complete(exception_of(what, *failure_));
    ++sending_;
  }
  last->then([self = shared_from_this(), header, tensor, work, what](const Status& status) {
    {
      const std::lock_guard lock(self->mutex_);
      --self->sending_;
    }
    work->complete(status ? nullptr : exception_of(what, status.error()));
  });
}

void Messages::send_to_self(const at::Tensor& tensor, int tag) {
  const Header header{tensor.nbytes(), tag};
  ArrivalPtr arrival;
  {
    const std::lock_guard lock(mutex_);
    arrival = match(header, me_.value);
  }
  if (header.bytes != 0)
    std::memcpy(arrival->data.data_ptr(), tensor.const_data_ptr(), header.bytes);
  on_data(arrival, ok());
}

void Messages::recv(const at::Tensor& tensor, int from, int tag,
                    const c10::intrusive_ptr<TorchWork>& work) {
  ArrivalPtr ready;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find_if(arrivals_.begin(), arrivals_.end(), [&](const ArrivalPtr& one) {
      return one->tag == tag && (from < 0 || one->from == from);
    });
    if (found != arrivals_.end()) {
      const ArrivalPtr arrival = *found;
      arrivals_.erase(found);
      arrival->work = work;
      arrival->wanted = tensor;
      if (arrival->here) ready = arrival;
    } else {
      if (communicator_ == nullptr) failure_ = failure_.value_or(closed());
      if (failure_) return work->complete(exception_of(name(*work, false, from, tag), *failure_));
      posted_.push_back({from, tag, tensor, work});
      note_needed();
    }
  }
  if (ready) return deliver(*ready);
  listen();
}

/// Says which ranks somebody receives from by name. mutex_ is held.
void Messages::note_needed() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const bool needed = std::any_of(posted_.begin(), posted_.end(),
                                    [rank](const Posted& posted) { return posted.from == rank; });
    // relaxed: see Communicator::start_recv_any.
    needed_[static_cast<std::size_t>(rank)].store(needed, std::memory_order_relaxed);
  }
}

/// Opens the receive for the next header, if one is wanted and none is open.
void Messages::listen() {
  struct Incoming {
    Header header;
    Rank from;
  };
  const auto incoming = std::make_shared<Incoming>();
  std::optional<tutti::Work> work;
  std::optional<Error> error;
  {
    const std::lock_guard lock(mutex_);
    // A receive from oneself needs no other rank.
    const bool wanted = std::any_of(posted_.begin(), posted_.end(), [this](const Posted& posted) {
      return posted.from != me_.value;
    });
    if (listening_ || !wanted || ranks_ == 1 || communicator_ == nullptr) return;
    auto started = communicator_->start_recv_any(
        &incoming->header, sizeof(Header), DataType::kUint8, incoming->from, Tag{}, needed_.data());
    if (started) {
      listening_ = true;
      work = *started;
    } else {
      error = started.error();
    }
  }
  if (error) return fail_all(*error);
  work->then([self = shared_from_this(), incoming](const Status& status) {
    self->on_header(incoming->header, incoming->from.value, status);
  });
}

/// What a header stands for: the first receive that asked for it, or memory until one does. mutex_
/// is held.
Messages::ArrivalPtr Messages::match(const Header& header, int from) {
  const auto arrival = std::make_shared<Arrival>();
  arrival->from = from;
  arrival->tag = static_cast<int>(header.tag);
  const auto found = std::find_if(posted_.begin(), posted_.end(), [&](const Posted& posted) {
    return posted.tag == arrival->tag && (posted.from < 0 || posted.from == from);
  });
  if (found == posted_.end()) {
    arrival->data = bytes_tensor(header.bytes);
    arrivals_.push_back(arrival);
    return arrival;
  }
  arrival->work = found->work;
  if (found->tensor.nbytes() == header.bytes) {
    arrival->data = found->tensor;
  } else {
    arrival->data = bytes_tensor(header.bytes);
    arrival->wanted = found->tensor;
  }
  posted_.erase(found);
  note_needed();
  return arrival;
}

/// On the progress thread.
void Messages::on_header(const Header& header, int from, const Status& status) {
  if (!status) {
    {
      const std::lock_guard lock(mutex_);
      listening_ = false;
    }
    return fail_all(status.error());
  }
  ArrivalPtr arrival;
  std::optional<tutti::Work> work;
  std::optional<Error> error;
  {
    const std::lock_guard lock(mutex_);
    listening_ = false;
    if (communicator_ == nullptr) return;
    arrival = match(header, from);
    if (header.bytes != 0) {
      // Before the next header is listened for: the bytes come right behind this one.
      auto started = communicator_->start_recv(arrival->data.data_ptr(), header.bytes,
                                               DataType::kUint8, Rank{from});
      if (started)
        work = *started;
      else
        error = started.error();
    }
  }
  if (error) {
    on_data(arrival, *error);
    return fail_all(*error);
  }
  if (!work) {
    on_data(arrival, ok());
  } else {
    work->then([self = shared_from_this(), arrival](const Status& result) {
      self->on_data(arrival, result);
    });
  }
  listen();
}

void Messages::on_data(const ArrivalPtr& arrival, const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    arrival->here = true;
    if (!status) arrival->mismatch = status.error();
    if (!arrival->work) return;  // The receive that asks for it finds it here.
  }
  deliver(*arrival);
}

/// It is here, and somebody has asked for it.
void Messages::deliver(const Arrival& arrival) {
  const std::string what = std::string(arrival.work->name()) + " from rank " +
                           std::to_string(arrival.from) + " with tag " +
                           std::to_string(arrival.tag);
  arrival.work->set_source(arrival.from);
  if (arrival.mismatch) return arrival.work->complete(exception_of(what, *arrival.mismatch));
  const std::size_t sent = arrival.data.nbytes();
  if (arrival.wanted.defined() && arrival.wanted.nbytes() != sent) {
    return arrival.work->complete(exception_of(
        what, {Code::kMismatch, std::to_string(sent) + " bytes were sent, the tensor has " +
                                    std::to_string(arrival.wanted.nbytes()) +
                                    "; both ends need tensors of the same size"}));
  }
  if (arrival.wanted.defined() && sent != 0)
    std::memcpy(arrival.wanted.data_ptr(), arrival.data.const_data_ptr(), sent);
  arrival.work->complete();
}

void Messages::fail_all(const Error& error) {
  std::list<Posted> failed;
  {
    const std::lock_guard lock(mutex_);
    failure_ = failure_.value_or(error);
    failed.swap(posted_);
    note_needed();
  }
  for (const Posted& one : failed) {
    one.work->complete(
        exception_of(name(*one.work, false, one.from, one.tag), of_receive(error, one.from)));
  }
}

bool Messages::busy() {
  const std::lock_guard lock(mutex_);
  return sending_ != 0 || !posted_.empty();
}

void Messages::abort(const std::string& reason) {
  std::shared_ptr<Communicator> communicator;
  {
    const std::lock_guard lock(mutex_);
    communicator = communicator_;
  }
  if (communicator) communicator->abort(reason);
  fail_all({Code::kAborted, reason, me_});
}

void Messages::close() {
  std::shared_ptr<Communicator> communicator;
  {
    const std::lock_guard lock(mutex_);
    communicator.swap(communicator_);
  }
  communicator.reset();  // Waits for what is under way, without the lock.
  fail_all(closed());
}

}  // namespace tutti::python
