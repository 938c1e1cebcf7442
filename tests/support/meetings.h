// File: support/meetings.h: every kind of rendezvous, as a place for the ranks of a test.
#pragma once
#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>

#include "bootstrap/sockets.h"
#include "support/catch.h"
#include "tutti/rendezvous.h"

namespace tutti::test {

using namespace std::chrono_literals;

/// One job's place to meet: `join` makes the rendezvous object of one rank.
class Meeting {
 public:
  virtual ~Meeting() = default;
  virtual Result<std::unique_ptr<Rendezvous>> join(int rank) = 0;
};

/// The shared object, seen through one of its own.
class Shared : public Rendezvous {
 public:
  explicit Shared(std::shared_ptr<Rendezvous> target) : target_(std::move(target)) {}
  Status put(std::string_view key, std::span<const std::byte> value) override {
    return target_->put(key, value);
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    return target_->get(key, deadline);
  }
  Status fail(const Error& error) override { return target_->fail(error); }
  void enter(Rank me) override { target_->enter(me); }
  void leave() override { target_->leave(); }

 private:
  std::shared_ptr<Rendezvous> target_;
};

class MemoryMeeting : public Meeting {
 public:
  Result<std::unique_ptr<Rendezvous>> join(int) override {
    return std::unique_ptr<Rendezvous>(std::make_unique<Shared>(shared_));
  }

 private:
  std::shared_ptr<Rendezvous> shared_ = memory_rendezvous();
};

class FileMeeting : public Meeting {
 public:
  FileMeeting() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tutti-test-XXXXXX").string();
    directory_ = mkdtemp(pattern.data());
  }
  ~FileMeeting() override {
    CHECK(std::filesystem::is_empty(directory_));  // The last rank to leave removes the job.
    std::filesystem::remove_all(directory_);
  }
  Result<std::unique_ptr<Rendezvous>> join(int) override {
    return file_rendezvous(directory_, "a job / of ours");
  }

 private:
  std::string directory_;
};

inline int free_port(const std::string& host) {
  const auto listening = bootstrap::listen_at(host, 0, Deadline::after(10s));
  return listening ? listening->port : 0;
}

class TcpMeeting : public Meeting {
 public:
  explicit TcpMeeting(std::string host) : host_(std::move(host)), port_(free_port(host_)) {}
  Result<std::unique_ptr<Rendezvous>> join(int rank) override {
    return tcp_rendezvous(host_, port_, Rank{rank}, Deadline::after(10s));
  }

 private:
  std::string host_;
  int port_;
};

class IdMeeting : public Meeting {
 public:
  Result<std::unique_ptr<Rendezvous>> join(int) override {
    if (!id_) return std::move(id_.error());
    return unique_id_rendezvous(*id_, Deadline::after(10s));
  }

 private:
  Result<UniqueId> id_ = make_unique_id();
};

struct Kind {
  const char* name;
  std::unique_ptr<Meeting> (*make)();
};
inline constexpr Kind kKinds[] = {
    {"memory", [] { return std::unique_ptr<Meeting>(std::make_unique<MemoryMeeting>()); }},
    {"file", [] { return std::unique_ptr<Meeting>(std::make_unique<FileMeeting>()); }},
    {"tcp, IPv4",
     [] { return std::unique_ptr<Meeting>(std::make_unique<TcpMeeting>("127.0.0.1")); }},
    {"tcp, IPv6", [] { return std::unique_ptr<Meeting>(std::make_unique<TcpMeeting>("::1")); }},
    {"unique id", [] { return std::unique_ptr<Meeting>(std::make_unique<IdMeeting>()); }},
};

inline bool has_ipv6() {
  return static_cast<bool>(bootstrap::listen_at("::1", 0, Deadline::after(10s)));
}

using Make = std::unique_ptr<Meeting> (*)();

/// Runs `body(make)` once for every kind; each call of `make` gives a new meeting.
template <class Body>
void for_each_kind(Body&& body) {
  for (const Kind& kind : kKinds) {
    if (std::string_view(kind.name) == "tcp, IPv6" && !has_ipv6()) continue;
    INFO("kind: " << kind.name);
    body(kind.make);
  }
}

inline Bytes bytes_of(std::string_view text) {
  const auto view = std::as_bytes(std::span(text.data(), text.size()));
  return {view.begin(), view.end()};
}

}  // namespace tutti::test
