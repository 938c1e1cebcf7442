// Signs of life of a link, and its end.
#include <fmt/format.h>

#include "transport/verbs/link.h"

namespace tutti::verbs {
namespace {

// How long a rank that hears nothing waits before it asks; and for an answer, if it has another way
// there: a queue pair gives up before, if its device does what it should.
constexpr std::chrono::milliseconds kQuiet{500};
constexpr std::chrono::seconds kStuck{3};

}  // namespace

void Link::probe(Clock::time_point now) {
  asked_ = now;
  for (std::size_t pair = 0; pair < pairs_.size() && !failure_; ++pair) {
    ibv_send_wr& write = next_write(pair, true);
    write.sg_list = nullptr;
    write.num_sge = 0;
    write.wr.rdma.remote_addr = parts_.peer_in.address;
    write.wr.rdma.rkey = parts_.peer_in.key;
    pairs_[pair].probe = pairs_[pair].posted;
    pairs_[pair].bytes = 0;
  }
  hand_over();
}

void Link::greet(Clock::time_point now) {
  put_record(0, {.what = What::kCredit, .header = {.kind = 1}}, {});
  probe(now);
}

void Link::tick(Clock::time_point now) {
  if (failure_) return;
  std::uint64_t count = 0;
  for (const QueuePair& at : pairs_) count += at.arrived + at.done;
  if (count != heard_count_) {
    heard_ = now;
    heard_count_ = count;
  }
  if (probing()) {
    const std::chrono::duration<double> silent = now - asked_;
    if (silent > parts_.patience) fail(fmt::format("no answer for {:.1f} s", silent.count()));
  } else if (now - heard_ >= kQuiet) {
    probe(now);
  }
}

void Link::say_bye() {
  if (bye_said_ || taken_ != queued_ || !room(pairs_[0], 0, 1)) return;
  bye_said_ = true;
  put_record(
      0,
      {.what = What::kBye, .header = {.kind = 1, .sequence = static_cast<std::uint32_t>(queued_)}},
      {});
  probe(Clock::now());  // Once it is answered, all that was sent has arrived.
}

bool Link::peer_left() const {
  for (std::size_t pair = 0; pair < pairs_.size(); ++pair) {
    for (std::uint64_t at = pairs_[pair].consumed; at != pairs_[pair].arrived; ++at) {
      const auto record = parse_record(arrived_record(pair, at).first<kRecordHeadBytes>());
      if (record && record->what == What::kBye) return true;
    }
  }
  return false;
}

void Link::leave() {
  device_.poll();
  if (!failure_ && !peer_left()) (void)left();
}

bool Link::left() {
  device_.poll();
  if (failure_ || peer_left()) return true;  // It got all that it wanted.
  post();
  say_bye();
  return bye_said_ && !probing();
}

void Link::give_up() {
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_ERR;
  for (const QueuePair& at : pairs_) {
    if (at.pair != nullptr) (void)library().modify_qp(at.pair.get(), &attributes, IBV_QP_STATE);
  }
}

void Link::abandon() {
  fail("given up");
  abandoned_ = true;
  for (QueuePair& at : pairs_) at.pair.reset();
}

std::optional<Error> Link::stuck() {
  const std::chrono::duration<double> silent = Clock::now() - asked_;
  if (failure_ || !probing() || silent < kStuck) return std::nullopt;
  return Error{Code::kPeerFailed,
               fmt::format("{}: no answer for {:.1f} s", parts_.where, silent.count()),
               Rank{parts_.me}, Rank{parts_.peer}};
}

}  // namespace tutti::verbs
