// A script of any site can make the browser send requests to loopback, and other users of this host
// can connect to it. So the path has 128 random bits, and the Host header has to be this address: a
// name that another site has bound to 127.0.0.1 does not pass.
#include "tools/report/live.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <string_view>

#include "tools/command.h"

namespace tutti::tools {
namespace {

constexpr unsigned kMostConnections = 128, kIdleSeconds = 5;

struct Answer {
  unsigned code = MHD_HTTP_OK;
  const char* type = "text/plain; charset=utf-8";
  std::string text = {};
};

class Server {
 public:
  explicit Server(const LiveParts& parts) : parts_(parts) {}
  Status start(int port);
  std::string address() const { return "http://127.0.0.1:" + std::to_string(port_) + path_; }

 private:
  static MHD_Result answer(void* self, MHD_Connection* connection, const char* url,
                           const char* method, const char*, const char*, std::size_t* body_bytes,
                           void** seen);
  Answer answer_to(std::string_view host, std::string_view method, std::string_view url) const;

  const LiveParts& parts_;
  std::string path_;  // "/3f.../".
  int port_ = 0;
  std::unique_ptr<MHD_Daemon, void (*)(MHD_Daemon*)> daemon_{nullptr, MHD_stop_daemon};
};

Status Server::start(int port) {
  std::array<unsigned char, 16> secret{};
  if (getrandom(secret.data(), secret.size(), 0) != std::ssize(secret))
    return Error{Code::kSystem, fmt::format("random bytes: {}", std::strerror(errno))};
  path_ = "/";
  for (const unsigned char byte : secret) path_ += fmt::format("{:02x}", byte);
  path_ += "/";
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_port = htons(static_cast<std::uint16_t>(port));
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  daemon_.reset(MHD_start_daemon(
      MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO, static_cast<std::uint16_t>(port), nullptr,
      nullptr, answer, this, MHD_OPTION_SOCK_ADDR, &here, MHD_OPTION_CONNECTION_LIMIT,
      kMostConnections, MHD_OPTION_CONNECTION_TIMEOUT, kIdleSeconds, MHD_OPTION_END));
  if (daemon_ == nullptr)
    return Error{Code::kSystem,
                 fmt::format("port {} of 127.0.0.1: {}; without --port any free one is taken", port,
                             std::strerror(errno))};
  const auto* const bound = MHD_get_daemon_info(daemon_.get(), MHD_DAEMON_INFO_BIND_PORT);
  if (bound != nullptr) port_ = bound->port;
  return ok();
}

Answer Server::answer_to(std::string_view host, std::string_view method,
                         std::string_view url) const {
  // Browsers leave the usual port out.
  const std::string port = port_ == 80 ? "" : ":" + std::to_string(port_);
  if (host != "127.0.0.1" + port && host != "localhost" + port)
    return {.code = MHD_HTTP_FORBIDDEN,
            .text = "the page is at 127.0.0.1" + port + "; forward the same port number\n"};
  if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD)
    return {.code = MHD_HTTP_METHOD_NOT_ALLOWED, .text = "the page can only be read\n"};
  if (url == path_) return {.type = "text/html; charset=utf-8", .text = parts_.html};
  if (url == path_ + "status") return {.type = "application/json", .text = parts_.status()};
  return {.code = MHD_HTTP_NOT_FOUND,
          .text = "there is nothing here; tutti report --live prints the page's address\n"};
}

MHD_Result Server::answer(void* self, MHD_Connection* connection, const char* url,
                          const char* method, const char*, const char*, std::size_t* body_bytes,
                          void** seen) {
  if (*seen == nullptr) {  // Only the head has come. To answer now would close the connection.
    *seen = self;
    return MHD_YES;
  }
  if (*body_bytes != 0) {  // Nobody wants it, but it has to be taken before the answer can be sent.
    *body_bytes = 0;
    return MHD_YES;
  }
  const auto* const host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
  Answer answer{.code = MHD_HTTP_INTERNAL_SERVER_ERROR};
  try {
    answer = static_cast<const Server*>(self)->answer_to(host == nullptr ? "" : host, method, url);
  } catch (const std::exception&) {
    // The code says it. The library below is C, and must not see an exception.
  }
  MHD_Response* const response = MHD_create_response_from_buffer(
      answer.text.size(), answer.text.data(), MHD_RESPMEM_MUST_COPY);
  if (response == nullptr) return MHD_NO;
  for (const auto& [name, value] :
       {std::pair{"Content-Type", answer.type}, std::pair{"Cache-Control", "no-store"},
        std::pair{"X-Content-Type-Options", "nosniff"}, std::pair{"X-Frame-Options", "DENY"},
        std::pair{"Referrer-Policy", "no-referrer"}})
    MHD_add_response_header(response, name, value);
  if (answer.code == MHD_HTTP_METHOD_NOT_ALLOWED)
    MHD_add_response_header(response, "Allow", "GET, HEAD");
  const MHD_Result queued = MHD_queue_response(connection, answer.code, response);
  MHD_destroy_response(response);
  return queued;
}

}  // namespace

Status serve_live(const LiveParts& parts, int port,
                  const std::function<void(const std::string& address)>& announce) {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int one : {SIGINT, SIGTERM}) sigaddset(&ends, one);
  struct sigaction hangup {};
  if (sigaction(SIGHUP, nullptr, &hangup) == 0 && hangup.sa_handler != SIG_IGN)  // As by nohup.
    sigaddset(&ends, SIGHUP);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  Server server(parts);
  TUTTI_RETURN_IF_ERROR(server.start(port));
  announce(server.address());
  int which = 0;
  while (sigwait(&ends, &which) != 0) continue;
  return ok();
}

}  // namespace tutti::tools
