// What the ranks that are left do after a failure: health, revoke, agree, shrink; and grow. Ranks
// are threads, over every transport; a rank dies by destroying its communicator. Real deaths are in
// tests/process/recovery_ranks_test.cc.
#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <thread>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/said_aside.h"
#include "support/transports.h"
#include "transport/transport.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kF32 = DataType::kFloat32;

using Ranks = std::vector<std::optional<Communicator>>;
/// What a rank does; it may destroy its communicator. Returns its complaint.
using Body = std::function<std::string(std::optional<Communicator>&)>;

Ranks ranks_on(const Transport& transport, int count, std::chrono::milliseconds timeout = 60s) {
  Settings settings;
  settings.transport = transport.name;
  settings.timeout = timeout;
  auto comms = Communicator::in_process(count, settings);
  if (!comms) FAIL(comms.error().to_string());
  Ranks ranks;
  for (Communicator& comm : *comms) ranks.emplace_back(std::move(comm));
  return ranks;
}

/// Runs `body` on a thread for each rank. All complaints.
std::string on_ranks(Ranks& ranks, const Body& body) {
  std::vector<std::string> complaints(ranks.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank)
      threads.emplace_back([&, rank] { complaints[rank] = body(ranks[rank]); });
  }
  std::string all;
  for (std::size_t rank = 0; rank < complaints.size(); ++rank) {
    if (!complaints[rank].empty())
      all += "rank " + std::to_string(rank) + ": " + complaints[rank] + "\n";
  }
  return all;
}

Status all_reduce(Communicator& comm, std::vector<float>& data) {
  return comm.all_reduce(data.data(), data.data(), data.size(), kF32, ReduceOp::kSum);
}

/// "" if collectives of small and large messages are right.
std::string works(Communicator& comm) {
  for (const std::size_t count : {3U, 30000U}) {
    for (const Collective collective : {Collective::kAllReduce, Collective::kAllGather}) {
      const Case test{.collective = collective, .count = count, .ranks = comm.rank_count()};
      if (auto wrong = run_case(comm, test, 1); !wrong.empty()) return wrong;
    }
  }
  return "";
}

std::vector<int> numbers(const std::vector<Rank>& ranks) {
  std::vector<int> all;
  for (const Rank rank : ranks) all.push_back(rank.value);
  return all;
}

/// "" if the ranks of `members` get a communicator, which works, of just these.
std::string shrinks_to(Communicator& comm, const std::vector<int>& members,
                       std::span<const Rank> excluded = {}) {
  auto shrunk = comm.shrink(excluded);
  if (!shrunk) return shrunk.error().to_string();
  if (numbers(shrunk->members) != members)
    return "the first of " + std::to_string(shrunk->members.size()) + " members is rank " +
           std::to_string(shrunk->members.front().value);
  const auto me = static_cast<std::size_t>(shrunk->communicator.rank().value);
  if (shrunk->communicator.rank_count() != static_cast<int>(members.size()) ||
      members[me] != comm.rank().value)
    return "wrong rank or rank count";
  return works(shrunk->communicator);
}

std::vector<int> all_but(int ranks, std::initializer_list<int> gone) {
  std::vector<int> members;
  for (int rank = 0; rank < ranks; ++rank) {
    if (std::find(gone.begin(), gone.end(), rank) == gone.end()) members.push_back(rank);
  }
  return members;
}

std::string text_of(const Status& status) { return status ? "ok" : status.error().to_string(); }

/// "" if the status is of that code.
std::string fails_as(const Status& status, Code code) {
  return !status && status.error().code == code ? "" : text_of(status);
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("whichever rank dies, the others shrink, and know what all of them completed") {
  for (const Transport* transport : transports_here()) {
    for (int dead = 0; dead < 4; ++dead) {
      INFO(transport->name << ": rank " << dead);
      Ranks ranks = ranks_on(*transport, 4);
      CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
              std::vector<float> data(100);
              for (int i = 0; i < 3; ++i) {
                if (auto status = all_reduce(*comm, data); !status) return text_of(status);
              }
              if (comm->rank().value == dead) return comm.reset(), "";
              const std::string said = fails_as(all_reduce(*comm, data), Code::kPeerFailed);
              if (!said.empty()) return said;
              auto shrunk = comm->shrink();
              if (!shrunk) return shrunk.error().to_string();
              if (numbers(shrunk->members) != all_but(4, {dead})) return "wrong members";
              if (shrunk->completed != 3) return std::to_string(shrunk->completed);
              return works(shrunk->communicator);
            }) == "");
    }
  }
}

TEST_CASE("what one rank alone completed does not count as completed by all") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    Ranks ranks = ranks_on(*transport, 3);
    CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
            std::vector<float> data(10);
            Status status = all_reduce(*comm, data);
            if (status && comm->rank().value == 1)  // A root is done once it has given.
              status = comm->broadcast(data.data(), data.data(), 10, kF32, Rank{1});
            if (!status) return text_of(status);
            auto shrunk = comm->shrink();
            if (!shrunk) return shrunk.error().to_string();
            return shrunk->completed == 1 ? "" : std::to_string(shrunk->completed);
          }) == "");
  }
}

TEST_CASE("two deaths, or all but one") {
  for (const Transport* transport : transports_here()) {
    for (const auto& dead : {std::vector{0, 2}, std::vector{1, 2, 3}, std::vector{0, 1, 2}}) {
      INFO(transport->name << ": " << dead.size() << " from " << dead.front());
      Ranks ranks = ranks_on(*transport, 4);
      const auto dies = [&](int rank) {
        return std::find(dead.begin(), dead.end(), rank) != dead.end();
      };
      std::vector<int> members = all_but(4, {});
      std::erase_if(members, dies);
      CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
              if (auto status = comm->barrier(); !status) return text_of(status);
              if (dies(comm->rank().value)) return comm.reset(), "";
              return shrinks_to(*comm, members);
            }) == "");
    }
  }
}

TEST_CASE("ranks that die while others shrink are left out as well") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    Ranks ranks = ranks_on(*transport, 5);
    CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
            if (auto status = comm->barrier(); !status) return text_of(status);
            const int me = comm->rank().value;
            if (me == 4) return comm.reset(), "";
            if (me == 1 || me == 3) {  // The others wait for it by then.
              std::this_thread::sleep_for(me * 100ms);
              return comm.reset(), "";
            }
            return shrinks_to(*comm, {0, 2});
          }) == "");
  }
}

TEST_CASE("a rank that leaves after a failure is not waited for") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    Ranks ranks = ranks_on(*transport, 3);
    CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
            std::vector<float> data(100);
            if (comm->rank().value == 0) comm->revoke("new ranks");
            Status status;
            while (status) status = all_reduce(*comm, data);
            if (comm->rank().value == 1) return comm.reset(), "";
            return shrinks_to(*comm, {0, 2});
          }) == "");
  }
}

TEST_CASE("after an abort or a revoke all ranks shrink to all ranks") {
  for (const Transport* transport : transports_here()) {
    for (const bool revoked : {false, true}) {
      INFO(transport->name << ": " << revoked);
      Ranks ranks = ranks_on(*transport, 3);
      CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
              if (comm->rank().value == 1)
                revoked ? comm->revoke("new ranks") : comm->abort("new ranks");
              std::vector<float> data(100);
              Status status;
              while (status) status = all_reduce(*comm, data);
              auto said = fails_as(status, revoked ? Code::kRevoked : Code::kAborted);
              said += fails_as(comm->health(), revoked ? Code::kRevoked : Code::kAborted);
              if (!said.empty()) return said;
              const std::string text = status.error().to_string();
              if (!has(text, "new ranks") || has(text, "shrink makes") != revoked ||
                  status.error().peer.value != 1)
                return text;
              return shrinks_to(*comm, {0, 1, 2});
            }) == "");
    }
  }
}

TEST_CASE("a communicator that works shrinks by exclusion, again, and is used on") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    Ranks ranks = ranks_on(*transport, 4);
    CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
            const int me = comm->rank().value;
            for (const int out : {1, 0, 1}) {
              const Rank excluded{out};
              if (me == out) continue;
              if (auto said = shrinks_to(*comm, all_but(4, {out}), std::span(&excluded, 1));
                  !said.empty())
                return said;
            }
            return works(*comm);
          }) == "");
  }
}

TEST_CASE("ranks that exclude different ranks, or agree instead, get an error") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    Ranks ranks = ranks_on(*transport, 4, 1s);
    CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
            const int me = comm->rank().value;
            if (me == 3) return "";
            const Rank excluded{me == 1 ? 3 : 2};
            auto shrunk = comm->shrink(std::span(&excluded, me == 2 ? 0U : 1U));
            return shrunk ? "no error" : fails_as(shrunk.error(), Code::kMismatch);
          }) == "");
    Ranks others = ranks_on(*transport, 2);
    CHECK(on_ranks(others, [&](std::optional<Communicator>& comm) -> std::string {
            if (comm->rank().value == 0) {
              auto agreed = comm->agree(1);
              return agreed ? "no error" : fails_as(agreed.error(), Code::kMismatch);
            }
            auto shrunk = comm->shrink();
            return shrunk ? "no error" : fails_as(shrunk.error(), Code::kMismatch);
          }) == "");
  }
}

TEST_CASE("the ranks that are left agree on flags, before and after a failure") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    Ranks ranks = ranks_on(*transport, 4);
    CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
            const int me = comm->rank().value;
            auto all = comm->agree(0xff00u | 1u << me);
            if (!all) return all.error().to_string();
            if (*all != 0xff00u) return std::to_string(*all);
            if (me == 0) return comm.reset(), "";
            for (std::uint64_t i = 0; i < 20; ++i) {
              auto left = comm->agree(~(std::uint64_t{1} << me) & (i << 8 | 0xff));
              if (!left) return left.error().to_string();
              if (*left != (i << 8 | 0xf1)) return std::to_string(*left);
            }
            return shrinks_to(*comm, {1, 2, 3});
          }) == "");
  }
}

TEST_CASE("a rank that does not come in time is left out, and learns that it was") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    Ranks ranks = ranks_on(*transport, 3, 1s);
    std::atomic<int> done{0};
    CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
            const int me = comm->rank().value;
            if (me != 1) {
              std::string said = shrinks_to(*comm, {0, 2});
              ++done;
              return said;
            }
            while (done != 2) std::this_thread::sleep_for(1ms);
            auto shrunk = comm->shrink();
            if (shrunk) return "no error";
            return has(shrunk.error().to_string(), "rank 1 was left out")
                       ? fails_as(shrunk.error(), Code::kPeerFailed)
                       : shrunk.error().to_string();
          }) == "");
  }
}

TEST_CASE("health is ok, or names the rank that has gone, and changes nothing") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    Ranks ranks = ranks_on(*transport, 3);
    std::atomic<int> looked{0}, gone{0};
    CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
            if (auto status = comm->barrier(); !status) return text_of(status);
            if (auto status = comm->health(); !status) return text_of(status);
            ++looked;
            while (looked != 3) std::this_thread::yield();
            if (comm->rank().value == 1) return comm.reset(), ++gone, "";
            while (gone != 1) std::this_thread::yield();
            Status status;
            for (int i = 0; i < 10000 && status; ++i) {
              status = comm->health();
              std::this_thread::sleep_for(1ms);
            }
            const std::string text = text_of(status);
            if (!has(text, "rank 1") || !has(text, "health") ||
                status.error().code != Code::kPeerFailed || status.error().peer.value != 1)
              return text;
            return shrinks_to(*comm, {0, 2});
          }) == "");
  }
}

TEST_CASE("started work ends before a shrink, and a group is no place for one") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    Ranks ranks = ranks_on(*transport, 3);
    CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
            std::vector<float> data(100);
            if (comm->rank().value == 2) return comm.reset(), "";
            auto work = comm->start_all_reduce(data.data(), data.data(), 100, kF32, ReduceOp::kSum);
            if (!work) return work.error().to_string();
            {
              Group group;
              auto grouped = comm->shrink();
              if (grouped) return "no error in a group";
              if (auto ended = group.end(); !ended) return text_of(ended);
            }
            std::string said = shrinks_to(*comm, {0, 1});
            return said + fails_as(work->wait(), Code::kPeerFailed);
          }) == "");
  }
}

TEST_CASE("an abort ends a shrink that waits, on all ranks") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    Ranks ranks = ranks_on(*transport, 3);
    std::atomic<int> done{0};
    CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
            if (comm->rank().value == 2) {  // Does not come.
              while (done != 2) std::this_thread::sleep_for(1ms);
              return "";
            }
            const std::jthread watch([&] {
              std::this_thread::sleep_for(100ms);
              if (comm->rank().value == 1) comm->abort("enough");
            });
            auto shrunk = comm->shrink();
            ++done;
            if (shrunk) return "no error";
            return has(shrunk.error().what, "rank 1 called abort")
                       ? fails_as(shrunk.error(), Code::kAborted)
                       : shrunk.error().to_string();
          }) == "");
  }
}

TEST_CASE("one rank after the other goes, and what is left goes on") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    Ranks ranks = ranks_on(*transport, 5);
    CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
            while (comm->rank_count() > 1) {
              // In turn the first, the last, one in the middle.
              const int count = comm->rank_count();
              const int dead = count % 3 == 0 ? 0 : count % 3 == 1 ? count - 1 : count / 2;
              if (auto said = works(*comm); !said.empty()) return said;
              if (comm->rank().value == dead) return comm.reset(), "";
              auto shrunk = comm->shrink();
              if (!shrunk) return shrunk.error().to_string();
              if (static_cast<int>(shrunk->members.size()) != count - 1) return "wrong members";
              comm = std::move(shrunk->communicator);
            }
            return works(*comm);
          }) == "");
  }
}

TEST_CASE("a communicator grows by ranks that come with the same id") {
  for (const Transport* transport : transports_here()) {
    INFO(transport->name);
    Ranks ranks = ranks_on(*transport, 2);
    ranks.resize(4);
    const auto id = make_unique_id();
    REQUIRE(id);
    std::atomic<int> newcomers{2};
    CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
            Settings settings;
            settings.transport = transport->name;
            auto grown = comm ? comm->grow(*id, 4)
                              : Communicator::create(*id, Rank{newcomers++}, 4, settings);
            if (!grown) return grown.error().to_string();
            if (comm && grown->rank().value != comm->rank().value) return "another rank";
            if (auto said = works(*grown); !said.empty()) return said;
            return comm ? works(*comm) : "";
          }) == "");
    CHECK(on_ranks(ranks, [&](std::optional<Communicator>& comm) -> std::string {
            if (!comm) return "";
            auto fewer = comm->grow(*id, 1);
            if (fewer) return "no error";
            comm->revoke("over");
            auto over = comm->grow(*id, 3);
            return fails_as(fewer.error(), Code::kInvalidArgument) +
                   (over ? "no error" : fails_as(over.error(), Code::kRevoked));
          }) == "");
  }
}

}  // namespace
}  // namespace tutti::test
