// File: support/c_ranks.h: ranks of the C API as threads, and what a bad argument has to bring.
#pragma once
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "support/catch.h"
#include "tutti/tutti.h"

namespace tutti::test {

/// `count` ranks of this process, given back at the end.
class Ranks {
 public:
  explicit Ranks(int count) : comms_(static_cast<std::size_t>(count)) {
    INFO(tutti_last_error());
    REQUIRE(tutti_comm_init_all(comms_.data(), count) == TUTTI_OK);
  }
  ~Ranks() {
    for (tutti_comm_t comm : comms_) tutti_comm_destroy(comm);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  tutti_comm_t operator[](std::size_t rank) const { return comms_[rank]; }

  /// Runs body(rank, comm) for every rank on a thread of its own; what each returned.
  std::vector<tutti_result_t> run(const std::function<tutti_result_t(int, tutti_comm_t)>& body) {
    std::vector<std::future<tutti_result_t>> running;
    for (std::size_t rank = 0; rank < comms_.size(); ++rank) {
      running.push_back(std::async(std::launch::async, body, static_cast<int>(rank), comms_[rank]));
    }
    std::vector<tutti_result_t> results;
    for (auto& result : running) results.push_back(result.get());
    return results;
  }
  bool all_ok(const std::function<tutti_result_t(int, tutti_comm_t)>& body) {
    const auto results = run(body);
    return results == std::vector<tutti_result_t>(comms_.size(), TUTTI_OK);
  }

 private:
  std::vector<tutti_comm_t> comms_;
};

/// Calls `bad` and checks that it says so in one line that names the function.
inline void check_invalid(const char* function, const std::function<tutti_result_t()>& bad) {
  INFO(function);
  REQUIRE(bad() == TUTTI_INVALID_ARGUMENT);
  const std::string said = tutti_last_error();
  INFO(said);
  const std::string name(function);
  const std::string bare = name.substr(name.starts_with("tutti_comm_") ? 11 : 6);
  REQUIRE(said.find(bare) != std::string::npos);
  REQUIRE(said.find('\n') == std::string::npos);
}

}  // namespace tutti::test
