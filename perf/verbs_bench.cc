// File: perf/verbs_bench.cc: frames over RDMA: how long a short one takes, how many bytes long ones
// bring. perf/rdma compares it with ib_write_lat and ib_write_bw.
//
// Two ranks, started by any launcher: `tutti run -n 2 -- verbs_bench`. Rank 0 prints.
#include <fmt/format.h>
#include <sched.h>

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "perf/command_line/command_line.h"
#include "perf/sweep/buffer.h"
#include "transport/verbs/connect.h"
#include "tutti/rendezvous.h"

namespace tutti {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kPlaces = 16;

struct Options {
  int pings = 1000, frames = 1000;
  std::size_t bytes = 65536;  // A long frame's.
  std::size_t pairs = verbs::kPairs;
  std::vector<std::string> devices;
  int timeout_s = 30;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Long payloads lie in the image, at `position`.
class Target final : public net::FrameSink {
 public:
  explicit Target(std::byte* replica) : replica_(replica) {}
  Result<std::optional<std::byte*>> place(const net::FrameHeader& header) override {
    return std::optional(header.bytes <= verbs::kShortBytes ? short_.data()
                                                            : replica_ + header.position);
  }
  Status arrived(const net::FrameHeader&) override {
    ++count;
    return ok();
  }
  std::uint64_t count = 0;

 private:
  std::byte* replica_;
  std::array<std::byte, verbs::kShortBytes> short_{};
};

class Bench {
 public:
  Bench(verbs::VerbsNetwork& network, int me, std::byte* near, std::byte* replica,
        const Options& options)
      : network_(network), me_(me), near_(near), target_(replica), options_(options), ready_(2) {}

  Status ping() {
    for (int i = 0; i < options_.pings; ++i) {
      if (me_ == 0) say();
      TUTTI_RETURN_IF_ERROR(wait_for(++due_));
      if (me_ == 1) say();
    }
    return me_ == 1 ? drain() : ok();
  }
  /// Rank 0 sends, rank 1 answers once it has them all.
  Status stream() {
    if (me_ == 1) {
      TUTTI_RETURN_IF_ERROR(wait_for(due_ += static_cast<std::uint64_t>(options_.frames)));
      say();
      return drain();
    }
    for (int i = 0; i < options_.frames; ++i) {
      while (carrier().held() >= net::Carrier::kMostQueued - 1) TUTTI_RETURN_IF_ERROR(look());
      const std::size_t position = static_cast<std::size_t>(i) % kPlaces * options_.bytes;
      carrier().send(
          {.bytes = static_cast<std::uint32_t>(options_.bytes), .kind = 1, .position = position},
          net::Piece(near_ + position, options_.bytes));
      TUTTI_RETURN_IF_ERROR(look());
    }
    return wait_for(++due_);
  }

 private:
  net::Carrier& carrier() { return *network_.carrier(1 - me_); }
  void say() { carrier().send({.bytes = 8, .kind = 1}, net::Piece(near_, 8)); }
  Status look() {
    network_.look(ready_);
    TUTTI_TRY(moved_, carrier().progress(target_));
    return ok();
  }
  Status wait_for(std::uint64_t count) {
    constexpr int kLooks = 1000;
    for (int fruitless = 0; target_.count < count;) {
      TUTTI_RETURN_IF_ERROR(look());
      fruitless = moved_ ? 0 : fruitless + 1;
      if (fruitless > kLooks) sched_yield();
    }
    return ok();
  }
  Status drain() {
    while (carrier().pending() != 0) TUTTI_RETURN_IF_ERROR(look());
    return ok();
  }

  verbs::VerbsNetwork& network_;
  int me_;
  std::byte* near_;
  Target target_;
  const Options& options_;
  std::vector<bool> ready_;
  std::uint64_t due_ = 0;
  bool moved_ = false;
};

Status run(const Options& options) {
  TUTTI_TRY(const LaunchInfo launch, detect_launch());
  if (launch.rank_count != 2) {
    return Error{Code::kInvalidArgument,
                 "verbs_bench: it takes two ranks: tutti run -n 2 -- verbs_bench"};
  }
  const int me = launch.rank.value;
  const auto soon = [&] { return Deadline::after(std::chrono::seconds(options.timeout_s)); };
  TUTTI_TRY(const auto rendezvous, launch_rendezvous(launch, soon()));
  const auto meet = [&](std::string_view phase, std::span<const std::byte> mine) {
    return exchange(*rendezvous, launch.rank, 2, phase, mine, soon());
  };
  const std::size_t bytes = kPlaces * std::max<std::size_t>(options.bytes, 4096);
  const perf::Buffer near(bytes), replica(bytes);
  std::fill_n(near.data(), bytes, std::byte{1});
  const Peer mine = this_process();
  TUTTI_TRY(const auto said, meet("peers", std::as_bytes(std::span(&mine, 1))));
  std::vector<Peer> peers(2);
  for (std::size_t rank = 0; rank < 2; ++rank)
    std::copy_n(said[rank].begin(), sizeof(Peer),
                std::as_writable_bytes(std::span(&peers[rank], 1)).begin());
  const auto at = static_cast<std::size_t>(me);
  const std::string devices = at < options.devices.size() ? options.devices[at] : "";
  const Opening opening{.me = me,
                        .peers = peers,
                        .rank = me,
                        .config = {},
                        .rdma_devices = devices,
                        .exchange = meet,
                        .deadline = soon()};
  TUTTI_TRY(const auto network, verbs::connect({.opening = opening,
                                                .far = {1 - me},
                                                .near = {near.data(), bytes},
                                                .replica = {replica.data(), bytes}},
                                               verbs::probe_ports(), {.pairs = options.pairs}));
  if (me == 0) fmt::print("# {}, {} queue pairs\n", network->link(1)->where(), options.pairs);
  Bench bench(*network, me, near.data(), replica.data(), options);
  auto start = Clock::now();
  TUTTI_RETURN_IF_ERROR(bench.ping());
  if (me == 0) fmt::print("8 B, us: {:.2f}\n", seconds_since(start) / options.pings / 2 * 1e6);
  start = Clock::now();
  TUTTI_RETURN_IF_ERROR(bench.stream());
  const double total = static_cast<double>(options.bytes) * options.frames;
  if (me == 0)
    fmt::print("{} B, MB/s: {:.2f}\n", options.bytes, total / seconds_since(start) / 1e6);
  std::fflush(stdout);
  network->link(1 - me)->leave();
  while (!network->link(1 - me)->left()) sched_yield();
  // Rank 0 serves the rendezvous: it leaves last.
  TUTTI_TRY(const auto end, meet("end", {}));
  return ok();
}

int bench(int argc, char** argv) {
  Options options;
  perf::CommandLine app("Frames over RDMA; two ranks, started by a launcher.");
  app.add_option("-p,--pings", options.pings, "short frames").check(perf::range(1, 1'000'000));
  app.add_option("-n,--frames", options.frames, "long frames").check(perf::range(1, 1'000'000));
  app.add_option("-b,--bytes", options.bytes, "of a long frame")
      .check(perf::range(std::size_t{4096}, net::kMostFrameBytes));
  app.add_option("-q,--pairs", options.pairs, "queue pairs")
      .check(perf::range(std::size_t{1}, verbs::kMostPairs));
  app.add_option("-d,--devices", options.devices, "by rank, as TUTTI_RDMA_DEVICES").delimiter(',');
  app.add_option("-t,--timeout", options.timeout_s, "seconds, for joining")
      .check(perf::range(1, 1000));
  if (const auto code = app.parse_or_print(argc, argv)) return *code;
  const Status status = run(options);
  if (!status) fmt::print(stderr, "{}\n", status.error().to_string());
  return status ? 0 : 1;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::bench(argc, argv); }
