// File: perf/peers/socket_floor.cc: the speed that the network between two hosts allows: two ranks
// and nothing but send and recv on one plain TCP connection, in the timing loop of loop.h.
//
//   all_reduce   each sends its input to the other while it receives the other's, and adds it up
//   broadcast    rank 0 sends, rank 1 receives; bytes go in one direction only
//   barrier      a byte there and a byte back: a ping-pong, so half of its time is one way
//
//   socket_floor --rank 0 --meet 10.77.0.1:29500
// Rank 0 listens at that IPv4 address, rank 1 goes there. A rank that waits asks again and again,
// and sleeps after a while.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "loop.h"

namespace {

constexpr std::size_t kPieceBytes = std::size_t{128} << 10;  // As iperf3's: what one recv gets.
constexpr int kAsks = 400;

struct Pair {
  int socket = -1;
  int rank = 0;
  std::vector<float> received = std::vector<float>(kPieceBytes / sizeof(float));
};

int fail(const char* what) {
  std::fprintf(stderr, "socket_floor: %s: %s\n", what, std::strerror(errno));
  return 1;
}

/// Sends and receives at the same time, where there is something of each; `take` gets what came.
template <class Take>
int exchange(int socket, const char* out, std::size_t out_bytes, char* in, std::size_t in_bytes,
             std::size_t in_piece, Take take) {
  std::size_t sent = 0, got = 0;
  for (int fruitless = 0; sent != out_bytes || got != in_bytes;) {
    bool moved = false;
    if (sent != out_bytes) {
      const ssize_t count =
          ::send(socket, out + sent, out_bytes - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (count < 0 && errno != EAGAIN) return fail("send");
      if (count > 0) sent += static_cast<std::size_t>(count), moved = true;
    }
    if (got != in_bytes) {
      const std::size_t at = got % in_piece;
      const std::size_t most = std::min(in_piece - at, in_bytes - got);
      const ssize_t count = ::recv(socket, in + at, most, MSG_DONTWAIT);
      if (count == 0 || (count < 0 && errno != EAGAIN)) return fail("recv");
      if (count > 0) {
        got += static_cast<std::size_t>(count), moved = true;
        if (got % in_piece == 0 || got == in_bytes) take(got);
      }
    }
    if (moved) {
      fruitless = 0;
    } else if (++fruitless > kAsks) {
      const int events = (sent != out_bytes ? POLLOUT : 0) | (got != in_bytes ? POLLIN : 0);
      pollfd polled{socket, static_cast<short>(events), 0};
      ::poll(&polled, 1, 1000);
    }
  }
  return 0;
}

int one_way(const Pair& pair, int from, char* data, std::size_t bytes) {
  const auto ignore = [](std::size_t) {};
  if (pair.rank == from) return exchange(pair.socket, data, bytes, nullptr, 0, 1, ignore);
  return exchange(pair.socket, nullptr, 0, data, bytes, std::max<std::size_t>(1, bytes), ignore);
}

int all_reduce(Pair& pair, const LoopCall& call) {
  const std::size_t bytes = call.count * sizeof(float);
  std::size_t done = 0;
  return exchange(pair.socket, reinterpret_cast<const char*>(call.input), bytes,
                  reinterpret_cast<char*>(pair.received.data()), bytes, kPieceBytes,
                  [&](std::size_t got) {
                    for (std::size_t i = 0; done + i < got / sizeof(float); ++i)
                      call.output[done + i] = call.input[done + i] + pair.received[i];
                    done = got / sizeof(float);
                  });
}

int ping_pong(const Pair& pair) {
  char byte = 0;
  const int failure = one_way(pair, 0, &byte, 1);
  return failure != 0 ? failure : one_way(pair, 1, &byte, 1);
}

int call(void* context, const LoopCall* call) {
  auto& pair = *static_cast<Pair*>(context);
  switch (call->collective) {
    case kAllReduce: return all_reduce(pair, *call);
    case kBroadcast:
      return one_way(pair, 0, reinterpret_cast<char*>(call->output), call->count * sizeof(float));
    case kBarrier: return ping_pong(pair);
    default: return loop_not_there("socket_floor", call->collective);
  }
}

int barrier(void* context) { return ping_pong(*static_cast<Pair*>(context)); }

int share(void* context, double mine, double* of_all) {
  const auto& pair = *static_cast<Pair*>(context);
  of_all[pair.rank] = mine;
  return exchange(pair.socket, reinterpret_cast<const char*>(&mine), sizeof(mine),
                  reinterpret_cast<char*>(&of_all[1 - pair.rank]), sizeof(mine), sizeof(mine),
                  [](std::size_t) {});
}

/// Rank 0 waits at the address, rank 1 goes there. The socket, or -1 after a word on stderr.
int meet(int rank, const sockaddr_in& address) {
  const auto* name = reinterpret_cast<const sockaddr*>(&address);
  int one = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int on = 1;
  if (rank == 0) {
    ::setsockopt(one, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (::bind(one, name, sizeof(address)) != 0 || ::listen(one, 1) != 0) return fail("listen"), -1;
    const int door = one;
    one = ::accept(door, nullptr, nullptr);
    ::close(door);
  } else {
    for (int attempt = 0; ::connect(one, name, sizeof(address)) != 0; ++attempt) {
      if (attempt == 500) return fail("connect"), -1;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  ::setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return one;
}

}  // namespace

int main(int argc, char** argv) {
  LoopOptions options;
  if (const int failure = loop_parse(argc, argv, &options); failure != 0) return failure;
  const std::string place = options.meet != nullptr ? options.meet : "";
  const std::size_t colon = place.rfind(':');
  sockaddr_in address{};
  address.sin_family = AF_INET;
  if (options.rank < 0 || options.rank > 1 || colon == std::string::npos ||
      ::inet_pton(AF_INET, place.substr(0, colon).c_str(), &address.sin_addr) != 1) {
    std::fputs("socket_floor: needs --rank 0 or 1 and --meet with an IPv4 ADDRESS:PORT\n", stderr);
    return 2;
  }
  address.sin_port = htons(static_cast<std::uint16_t>(std::atoi(place.c_str() + colon + 1)));
  Pair pair;
  pair.rank = options.rank;
  pair.socket = meet(pair.rank, address);
  if (pair.socket < 0) return 1;
  const std::size_t count = std::max<std::size_t>(1, options.largest / sizeof(float));
  std::vector<float> input(count), output(count);
  const LoopPeer peer{"socket_floor", pair.rank, 2, 0, &pair, call, barrier, share};
  return loop_run(&peer, &options, input.data(), output.data());
}
