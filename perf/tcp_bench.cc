// File: perf/tcp_bench.cc: frames over TCP against plain sockets, and against iperf3.
//
// Two ranks, started by any launcher: `scripts/netns run 2 1 -- build/release/perf/tcp_bench` for
// two hosts on this machine, `tutti run -n 2 -- ...` for loopback. Rank 0 prints a table. Both ways
// go through connections that were made alike, in the same run, in rounds that alternate; the ratio
// is the median of the rounds' ratios, so what else the machine does hits both sides.
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/json.h"
#include "perf/command_line/command_line.h"
#include "perf/sweep/noise.h"
#include "transport/net/rails.h"
#include "transport/tcp/mesh.h"
#include "transport/tcp/stream.h"
#include "tutti/rendezvous.h"
#include "tutti/settings.h"

namespace tutti::tcp {
namespace {

using Clock = std::chrono::steady_clock;
using perf::median;

constexpr std::size_t kWays = 4;

struct Options {
  int connections = 1;
  int rounds = 15;
  int pings = 3000;             // In a round.
  std::size_t mebibytes = 64;   // In a round.
  std::size_t frame = 262'144;  // Bytes.
  std::size_t spread = 65'536;
  std::string interfaces;
  int timeout_s = 20;  // For joining, and for the silence of a peer.
  bool iperf = false;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Puts all payloads into one piece of memory, and counts them.
class Target : public FrameSink {
 public:
  explicit Target(std::size_t bytes) : memory_(bytes) {}
  Result<std::optional<std::byte*>> place(const FrameHeader& header) override {
    if (header.position > memory_.size() || memory_.size() - header.position < header.bytes)
      return Error{Code::kMismatch, "tcp_bench: a frame outside of the memory"};
    return std::optional(memory_.data() + header.position);
  }
  Status arrived(const FrameHeader&) override {
    ++count;
    return ok();
  }
  std::uint64_t count = 0;

 private:
  std::vector<std::byte> memory_;
};

/// A rank's behaviour when nothing moves: it asks again and again, and lets others run after a
/// while, as the executor does at first; or it sleeps in poll until something comes.
class Waiting {
 public:
  explicit Waiting(bool asks) : asks_(asks) {}
  void moved() { fruitless_ = 0; }
  void wait(std::span<pollfd> polled) {
    constexpr int kAsks = 100;
    if (!asks_)
      ::poll(polled.data(), polled.size(), 1000);
    else if (++fruitless_ > kAsks)
      sched_yield();
  }

 private:
  bool asks_;
  int fruitless_ = 0;
};

/// One way to send: what is measured is the same for all of them.
class Way {
 public:
  explicit Way(std::string_view words) : name(words) {}
  virtual ~Way() = default;
  /// Sends `count` times 8 bytes there and back. Rank 0 begins.
  virtual Status ping(int me, int count) = 0;
  /// Rank 0 sends so many bytes from `memory`, rank 1 answers with 8 once it has them all.
  virtual Status stream(int me, std::span<const std::byte> memory) = 0;

  const std::string name;
  std::vector<double> ping_us, gigabytes;  // By round.
};

class Frames : public Way {
 public:
  Frames(std::vector<Connection> connections, const Options& options, bool asks)
      : Way(asks ? "frames, asking" : "frames, poll"),
        waiting_(asks),
        target_(options.mebibytes << 20),
        frame_(options.frame) {
    std::vector<std::unique_ptr<net::Carrier>> rails;
    for (Connection& one : connections) {
      auto stream = std::make_unique<Stream>(std::move(one));
      streams_.push_back(stream.get());
      rails.push_back(std::move(stream));
    }
    carrier_ = rails.size() == 1 ? std::move(rails.front())
                                 : std::make_unique<net::Rails>(std::move(rails), options.spread);
  }
  Status ping(int me, int count) override {
    const std::array<std::byte, 8> word{};
    for (int i = 0; i < count; ++i) {
      if (me == 0) carrier_->send({.bytes = 8, .kind = 1}, word);
      TUTTI_RETURN_IF_ERROR(wait_for(++due_));
      if (me == 1) carrier_->send({.bytes = 8, .kind = 1}, word);
    }
    return drain();
  }
  Status stream(int me, std::span<const std::byte> memory) override {
    const std::array<std::byte, 8> word{};
    const std::size_t frames = (memory.size() + frame_ - 1) / frame_;
    if (me == 1) {
      TUTTI_RETURN_IF_ERROR(wait_for(due_ += frames));
      carrier_->send({.bytes = 8, .kind = 1}, word);
      return drain();
    }
    for (std::size_t at = 0; at < memory.size(); at += frame_) {
      const auto payload = memory.subspan(at, std::min(frame_, memory.size() - at));
      TUTTI_RETURN_IF_ERROR(until([&] { return carrier_->held() < net::Carrier::kMostQueued; }));
      carrier_->send(
          {.bytes = static_cast<std::uint32_t>(payload.size()), .kind = 2, .position = at},
          payload);
    }
    return wait_for(++due_);
  }

 private:
  /// Moves until the condition holds. It is looked at before waiting: what made it true may have
  /// been the last thing to happen.
  template <class Condition>
  Status until(const Condition& condition) {
    while (!condition()) {
      TUTTI_TRY(const bool more, carrier_->progress(target_));
      if (more)
        waiting_.moved();
      else if (!condition())
        wait();
    }
    return ok();
  }
  void wait() {
    std::array<pollfd, kMostConnections> polled{};
    std::size_t count = 0;
    for (const Stream* const one : streams_) {
      const int events = one->blocked() ? POLLIN | POLLOUT : POLLIN;
      polled[count++] = {one->descriptor(), static_cast<short>(events), 0};
    }
    waiting_.wait(std::span(polled).first(count));
  }
  Status wait_for(std::uint64_t count) {
    return until([&] { return target_.count >= count; });
  }
  Status drain() {
    return until([&] { return carrier_->pending() == 0; });
  }
  Waiting waiting_;
  std::vector<Stream*> streams_;  // The carrier's.
  std::unique_ptr<net::Carrier> carrier_;
  Target target_;
  std::size_t frame_;
  std::uint64_t due_ = 0;  // Frames that are to have come. Some may come early, while we drain.
};

/// Plain sockets.
class Plain : public Way {
 public:
  Plain(std::vector<Connection> connections, const Options& options, bool asks)
      : Way(asks ? "plain sockets, asking" : "plain sockets, poll"),
        waiting_(asks),
        connections_(std::move(connections)),
        memory_(options.mebibytes << 20) {}
  Status ping(int me, int count) override {
    std::array<std::byte, 8> word{};
    for (int i = 0; i < count; ++i) {
      if (me == 0) TUTTI_RETURN_IF_ERROR(give(word));
      TUTTI_RETURN_IF_ERROR(take(word));
      if (me == 1) TUTTI_RETURN_IF_ERROR(give(word));
    }
    return ok();
  }
  /// Over each connection an equal share.
  Status stream(int me, std::span<const std::byte> memory) override {
    const std::size_t count = connections_.size();
    std::vector<std::size_t> done(count);
    const auto end = [&](std::size_t i) { return memory.size() * (i + 1) / count; };
    for (std::size_t i = 0; i < count; ++i) done[i] = memory.size() * i / count;
    std::array<std::byte, 8> word{};
    for (std::size_t left = count; left != 0;) {
      bool moved = false;
      for (std::size_t i = 0; i < count; ++i) {
        if (done[i] == end(i)) continue;
        const int socket = connections_[i].socket.get();
        const std::size_t rest = end(i) - done[i];
        const ssize_t part = me == 0 ? ::send(socket, memory.data() + done[i], rest, MSG_NOSIGNAL)
                                     : ::recv(socket, memory_.data() + done[i], rest, 0);
        if (part <= 0 && (part == 0 || errno != EAGAIN)) return gone();
        if (part <= 0) continue;
        moved = true;
        done[i] += static_cast<std::size_t>(part);
        if (done[i] == end(i)) --left;
      }
      if (moved)
        waiting_.moved();
      else
        wait(me == 0 ? POLLOUT : POLLIN);
    }
    return me == 0 ? take(word) : give(word);
  }

 private:
  static Status gone() { return Error{Code::kPeerFailed, "tcp_bench: the other rank has gone"}; }
  void wait(short events) {
    std::vector<pollfd> polled;
    for (const Connection& one : connections_) polled.push_back({one.socket.get(), events, 0});
    waiting_.wait(polled);
  }
  Status give(std::span<const std::byte> bytes) {
    const ssize_t count =
        ::send(connections_[0].socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    return count == static_cast<ssize_t>(bytes.size()) ? ok() : gone();
  }
  Status take(std::span<std::byte> bytes) {
    pollfd polled{connections_[0].socket.get(), POLLIN, 0};
    while (!bytes.empty()) {
      const ssize_t count = ::recv(polled.fd, bytes.data(), bytes.size(), 0);
      if (count == 0 || (count < 0 && errno != EAGAIN)) return gone();
      if (count < 0) {
        waiting_.wait(std::span(&polled, 1));
        continue;
      }
      waiting_.moved();
      bytes = bytes.subspan(static_cast<std::size_t>(count));
    }
    return ok();
  }
  Waiting waiting_;
  std::vector<Connection> connections_;
  std::vector<std::byte> memory_;
};

/// GB/s of iperf3 with as many streams, or what went wrong. Rank 1 serves, as it is the receiver.
std::string iperf(int me, const std::string& address, int streams, Rendezvous& rendezvous) {
  const auto output_of = [](const std::string& command) {
    std::string text;
    FILE* pipe = ::popen(command.c_str(), "r");  // NOLINT(cert-env33-c): a fixed command.
    std::array<char, 4096> buffer{};
    while (pipe != nullptr && std::fgets(buffer.data(), buffer.size(), pipe) != nullptr)
      text += buffer.data();
    if (pipe != nullptr) ::pclose(pipe);
    return text;
  };
  const auto report = [](const std::string& text) {
    const Json said = Json::parse(text).value_or(nullptr);
    const Json& rate = said["end"]["sum_received"]["bits_per_second"];
    if (!rate.is_number()) return std::string("iperf3 did not run");
    return fmt::format("{:.2f} GB/s", rate.get<double>() / 8e9);
  };
  if (me == 1) {
    (void)rendezvous.put("iperf", {});
    (void)output_of("iperf3 -s -1 -J 2>&1");
    return "";
  }
  (void)rendezvous.get("iperf", Deadline::after(std::chrono::seconds(10)));
  for (int attempt = 0;; ++attempt) {  // Its server needs a moment.
    std::string said =
        report(output_of(fmt::format("iperf3 -c {} -P {} -t 3 -J 2>&1", address, streams)));
    if (attempt == 5 || said != "iperf3 did not run") return said;
    ::poll(nullptr, 0, 200);
  }
}

Status measure(int me, const Options& options, std::span<Way* const> ways) {
  const std::vector<std::byte> memory(options.mebibytes << 20, std::byte{1});
  for (int round = -1; round < options.rounds; ++round) {  // The first one warms up.
    for (Way* const way : ways) {
      auto start = Clock::now();
      TUTTI_RETURN_IF_ERROR(way->ping(me, options.pings));
      if (round >= 0) way->ping_us.push_back(seconds_since(start) / options.pings / 2 * 1e6);
      start = Clock::now();
      TUTTI_RETURN_IF_ERROR(way->stream(me, memory));
      if (round >= 0)
        way->gigabytes.push_back(static_cast<double>(memory.size()) / seconds_since(start) / 1e9);
    }
  }
  return ok();
}

/// Rows come in pairs: frames, and what they are compared with.
void print(std::span<Way* const> ways) {
  fmt::print("{:<28}{:>12}{:>10}{:>12}{:>10}\n", "", "8 B, us", "ratio", "GB/s", "ratio");
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const Way& row = *ways[i];
    fmt::print("{:<28}{:>12.2f}", row.name, median(row.ping_us));
    std::vector<double> latency, bandwidth;
    for (std::size_t round = 0; round < row.ping_us.size(); ++round) {
      const Way& plain = *ways[i | 1];
      latency.push_back(row.ping_us[round] / plain.ping_us[round]);
      bandwidth.push_back(row.gigabytes[round] / plain.gigabytes[round]);
    }
    if (i % 2 == 0) {
      fmt::print("{:>10.2f}{:>12.2f}{:>10.2f}\n", median(latency), median(row.gigabytes),
                 median(bandwidth));
    } else {
      fmt::print("{:>22.2f}\n", median(row.gigabytes));
    }
  }
}

Status run(const Options& options) {
  TUTTI_TRY(const LaunchInfo launch, detect_launch());
  if (launch.rank_count != 2)
    return Error{Code::kInvalidArgument,
                 "tcp_bench: it takes two ranks: tutti run -n 2 -- tcp_bench"};
  const int me = launch.rank.value;
  const auto soon = [&] { return Deadline::after(std::chrono::seconds(options.timeout_s)); };
  TUTTI_TRY(const auto rendezvous, launch_rendezvous(launch, soon()));
  TUTTI_TRY(const auto facts, probe_interfaces());
  TUTTI_TRY(const auto chosen,
            choose_addresses(facts, {.rule = options.interfaces,
                                     .one_host = launch.local_rank_count == launch.rank_count}));
  Joining joining;
  joining.me = me;
  joining.rank_count = 2;
  joining.peers = {1 - me};
  joining.connections = static_cast<int>(kWays) * options.connections;
  joining.addresses = chosen.addresses;
  joining.deadline = soon();
  joining.exchange = [&](std::string_view phase, std::span<const std::byte> mine) {
    return exchange(*rendezvous, launch.rank, 2, phase, mine, soon());
  };
  // Rank 0's secret travels through the rendezvous.
  TUTTI_TRY(joining.secret, random_bytes());
  TUTTI_TRY(const auto secrets, joining.exchange("secret", joining.secret));
  std::copy_n(secrets[0].begin(), joining.secret.size(), joining.secret.begin());
  TUTTI_TRY(auto mesh, connect_mesh(joining));
  const std::string where = mesh.connections.front().where;
  const std::string address = far_end(mesh.connections.front().socket.get()).ip_text();

  std::array<std::vector<Connection>, kWays> shares;
  for (std::size_t i = 0; i < mesh.connections.size(); ++i) {
    Connection& one = mesh.connections[i];
    one.index = static_cast<int>(i / kWays);
    shares[i % kWays].push_back(std::move(one));
  }
  Frames asking(std::move(shares[0]), options, true),
      sleeping(std::move(shares[2]), options, false);
  Plain plain_asking(std::move(shares[1]), options, true),
      plain_sleeping(std::move(shares[3]), options, false);
  Way* const ways[] = {&asking, &plain_asking, &sleeping, &plain_sleeping};
  if (me == 0) {
    fmt::print(
        "{}\n{} connections, {} rounds of {} x 8 B there and back (half of it is shown) and "
        "{} MiB in frames of {} bytes\n",
        where, options.connections, options.rounds, options.pings, options.mebibytes,
        options.frame);
    std::fflush(stdout);
  }
  TUTTI_RETURN_IF_ERROR(measure(me, options, ways));
  if (me == 0) print(ways);
  if (options.iperf) {
    const std::string said = iperf(me, address, options.connections, *rendezvous);
    if (me == 0) fmt::print("iperf3 -P {}: {}\n", options.connections, said);
  }
  std::fflush(stdout);
  // Rank 0 serves the rendezvous: it leaves last.
  TUTTI_TRY(const auto end, joining.exchange("end", {}));
  return ok();
}

int bench(int argc, char** argv) {
  Options options;
  perf::CommandLine app("Frames over TCP against plain sockets; two ranks, started by a launcher.");
  app.add_option("-c,--connections", options.connections, "of each way")
      .check(perf::range(1, kMostConnections / static_cast<int>(kWays)));
  app.add_option("-r,--rounds", options.rounds, "that alternate").check(perf::range(1, 1000));
  app.add_option("-p,--pings", options.pings, "of a round").check(perf::range(1, 1'000'000));
  app.add_option("-m,--mebibytes", options.mebibytes, "that are streamed in a round")
      .check(perf::range(1, 1024));
  app.add_option("-f,--frame", options.frame, "bytes of a frame of the stream")
      .check(perf::range(std::size_t{1}, kMostFrameBytes));
  app.add_option("-s,--spread", options.spread, "frames from this size on use all connections");
  app.add_option("-i,--interfaces", options.interfaces, "as TUTTI_NET_INTERFACES");
  app.add_option("-t,--timeout", options.timeout_s, "seconds, for joining and of a peer's silence")
      .check(perf::range(1, 1000));
  app.add_flag("--iperf3", options.iperf, "runs iperf3 too, over the same interface");
  if (const auto code = app.parse_or_print(argc, argv)) return *code;
  const Status status = run(options);
  if (!status) fmt::print(stderr, "{}\n", status.error().to_string());
  return status ? 0 : 1;
}

}  // namespace
}  // namespace tutti::tcp

int main(int argc, char** argv) { return tutti::tcp::bench(argc, argv); }
