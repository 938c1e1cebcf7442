// The C API's functions with a structure of options: joining, calls, and waiting for several works.
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/c_ranks.h"

using tutti::test::check_invalid;
using tutti::test::Ranks;

namespace {

/// A store as a C program may have one, for the ranks of this process.
struct Notes {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
  std::string broken;  // A part of a key: putting that fails.

  tutti_store_t store() { return {this, put, get}; }

  static int put(void* user, const char* key, const void* value, size_t bytes) {
    auto& notes = *static_cast<Notes*>(user);
    const std::lock_guard lock(notes.mutex);
    if (!notes.broken.empty() && std::strstr(key, notes.broken.c_str()) != nullptr) return -7;
    notes.values[key] = std::string(static_cast<const char*>(value), bytes);
    notes.changed.notify_all();
    return 0;
  }
  static int get(void* user, const char* key, int timeout_ms,
                 void (*take)(void* into, const void* value, size_t bytes), void* into) {
    auto& notes = *static_cast<Notes*>(user);
    std::unique_lock lock(notes.mutex);
    const auto there = [&] { return notes.values.count(key) != 0; };
    if (!notes.changed.wait_for(lock, std::chrono::milliseconds(timeout_ms), there)) return 1;
    const std::string& value = notes.values[key];
    take(into, value.data(), value.size());
    return 0;
  }
};

tutti_config_t config_of(const tutti_store_t* store, int rank, int rank_count) {
  tutti_config_t config = {};
  config.size = sizeof config;
  config.store = store;
  config.rank = rank;
  config.rank_count = rank_count;
  return config;
}

std::string described(tutti_comm_t comm) {
  std::string text(1 << 16, '\0');
  tutti_comm_describe(comm, text.data(), text.size(), nullptr);
  return text.c_str();
}

tutti_call_t sum_of(const float* input, float* output, size_t count) {
  tutti_call_t call = {};
  call.size = sizeof call;
  call.collective = TUTTI_ALL_REDUCE;
  call.input = input;
  call.output = output;
  call.count = count;
  call.type = TUTTI_FLOAT32;
  return call;
}

}  // namespace

TEST_CASE("ranks meet at a store of the program's, with settings of its own") {
  Notes notes;
  const tutti_store_t store = notes.store();
  const char* const settings[] = {"TUTTI_ALGORITHM=all_reduce=two_shot", "TUTTI_LANES=3", nullptr};
  const auto join = [&](int rank) {
    tutti_config_t config = config_of(&store, rank, 3);
    config.settings = settings;
    tutti_comm_t comm = nullptr;
    if (tutti_comm_init_config(&comm, &config) != TUTTI_OK) return std::string(tutti_last_error());
    std::vector<std::int32_t> sum(5000, rank + 1);
    std::string said = "ok";
    if (tutti_all_reduce(comm, sum.data(), sum.data(), sum.size(), TUTTI_INT32, TUTTI_SUM) !=
        TUTTI_OK)
      said = tutti_last_error();
    else if (sum != std::vector<std::int32_t>(5000, 6))
      said = "the sum is wrong";
    else if (described(comm).find("two_shot") == std::string::npos)
      said = "no two_shot: " + described(comm);
    tutti_comm_destroy(comm);
    return said;
  };
  auto one = std::async(std::launch::async, join, 1), two = std::async(std::launch::async, join, 2);
  CHECK(join(0) == "ok");
  CHECK(one.get() == "ok");
  CHECK(two.get() == "ok");
}

TEST_CASE("a store that fails, or a rank that never comes, fails all ranks that join") {
  const char* const settings[] = {"TUTTI_TIMEOUT_MS=700", nullptr};
  const auto join = [&](const tutti_store_t& store, int rank, int ranks) {
    tutti_config_t config = config_of(&store, rank, ranks);
    config.settings = settings;
    tutti_comm_t comm = nullptr;
    const auto result = tutti_comm_init_config(&comm, &config);
    return std::pair(result, result == TUTTI_OK ? "" : std::string(tutti_last_error()));
  };
  Notes notes;
  auto other = std::async(std::launch::async, join, notes.store(), 1, 3);
  const auto [late, why] = join(notes.store(), 0, 3);
  CHECK(late == TUTTI_TIMEOUT);
  CHECK(why.find("rank 2") != std::string::npos);
  const auto [told, same] = other.get();
  CHECK(told == TUTTI_TIMEOUT);
  CHECK(same.find("rank 2") != std::string::npos);

  Notes bad;
  bad.broken = "hello";
  const auto [failed, text] = join(bad.store(), 0, 2);
  CHECK(failed == TUTTI_SYSTEM);
  CHECK(text.find("put") != std::string::npos);
  CHECK(text.find("-7") != std::string::npos);
}

TEST_CASE("a configuration that makes no sense is refused in one line") {
  Notes notes;
  const tutti_store_t store = notes.store(), half = {nullptr, nullptr, Notes::get};
  tutti_comm_t comm = nullptr;
  const auto refuses = [&](const tutti_config_t& config, const char* says) {
    check_invalid("tutti_comm_init_config", [&] { return tutti_comm_init_config(&comm, &config); });
    INFO(tutti_last_error());
    CHECK(std::string(tutti_last_error()).find(says) != std::string::npos);
    CHECK(comm == nullptr);
  };
  check_invalid("tutti_comm_init_config", [&] { return tutti_comm_init_config(&comm, nullptr); });
  const tutti_config_t good = config_of(&store, 0, 1);
  CHECK(tutti_comm_init_config(nullptr, &good) == TUTTI_INVALID_ARGUMENT);
  tutti_config_t config = good;
  for (const size_t size : {size_t{0}, size_t{4}, sizeof config + 1}) {
    config.size = size;
    refuses(config, "size");
  }
  config = good;
  config.rendezvous = "/somewhere";
  refuses(config, "more than one");
  config = config_of(&store, 2, 2);
  refuses(config, "rank");
  config = config_of(&store, 1, 0);
  refuses(config, "rank");
  config = config_of(&half, 0, 1);
  refuses(config, "put");
  config = config_of(nullptr, 0, 1);
  config.rendezvous = "";
  refuses(config, "rendezvous");
  const char* const nothing[] = {"TUTTI_LANES", nullptr};
  config = good;
  config.settings = nothing;
  refuses(config, "NAME=VALUE");
}

TEST_CASE("a setting that there is not, or that takes something else, is named") {
  Notes notes;
  const tutti_store_t store = notes.store();
  tutti_config_t config = config_of(&store, 0, 1);
  const auto says = [&](const char* setting) {
    const char* const settings[] = {setting, nullptr};
    config.settings = settings;
    tutti_comm_t comm = nullptr;
    CHECK(tutti_comm_init_config(&comm, &config) == TUTTI_INVALID_ARGUMENT);
    return std::string(tutti_last_error());
  };
  CHECK(says("TUTTI_LANE=3").find("did you mean TUTTI_LANES?") != std::string::npos);
  CHECK(says("TUTTI_LANES=many").find("a number from 0 to 64") != std::string::npos);
}

TEST_CASE("a configuration of an older header joins, and an empty one as the launcher says") {
  tutti_config_t config = {};
  config.size = offsetof(tutti_config_t, settings);
  tutti_comm_t comm = nullptr;
  REQUIRE(tutti_comm_init_config(&comm, &config) == TUTTI_OK);
  int ranks = 0;
  CHECK(tutti_comm_count(comm, &ranks) == TUTTI_OK);
  CHECK(ranks == 1);
  tutti_comm_destroy(comm);
}

TEST_CASE("a call as a structure is the collective's own function") {
  Ranks ranks(3);
  CHECK(ranks.all_ok([](int rank, tutti_comm_t comm) -> tutti_result_t {
    const std::vector<float> input(600, static_cast<float>(rank + 1));
    std::vector<float> output(600), same(600);
    tutti_call_t call = sum_of(input.data(), output.data(), 600);
    call.op = TUTTI_MAX;
    call.algorithm = "two_shot";
    tutti_result_t result = tutti_call(comm, &call);
    if (result != TUTTI_OK || output != std::vector<float>(600, 3)) return TUTTI_INTERNAL;
    if (described(comm).find("two_shot") == std::string::npos) return TUTTI_INTERNAL;
    const double half = 0.5;
    call.op = TUTTI_SUM;
    call.scale = &half;
    result = tutti_call(comm, &call);
    if (result != TUTTI_OK || output != std::vector<float>(600, 3)) return TUTTI_INTERNAL;
    call.scale = nullptr;
    call.algorithm = nullptr;
    call.wire = "int8";
    tutti_work_t work = nullptr;
    result = tutti_start_call(comm, &call, &work);
    if (result == TUTTI_OK) result = tutti_work_wait(work, -1);
    tutti_work_free(work);
    if (result != TUTTI_OK || output[0] < 5.9F || output[0] > 6.1F) return TUTTI_INTERNAL;
    const size_t counts[] = {200, 300, 100}, offsets[] = {0, 200, 500};
    tutti_call_t gather = {};
    gather.size = sizeof gather;
    gather.collective = TUTTI_GATHER;
    gather.input = input.data();
    gather.output = same.data();
    gather.count = counts[rank];
    gather.type = TUTTI_FLOAT32;
    gather.root = 1;
    gather.vector_variant = 1;
    gather.output_counts = counts;
    gather.output_offsets = offsets;
    result = tutti_call(comm, &gather);
    if (result == TUTTI_OK && rank == 1 && (same[0] != 1 || same[200] != 2 || same[500] != 3))
      return TUTTI_INTERNAL;
    return result;
  }));
}

TEST_CASE("a call that is prepared is made again and again, on a duplicate too") {
  Ranks ranks(3);
  CHECK(ranks.all_ok([](int rank, tutti_comm_t comm) -> tutti_result_t {
    tutti_comm_t copy = nullptr;
    tutti_result_t result = tutti_comm_duplicate(comm, &copy);
    int there[3] = {-2, -2, -2};
    if (result == TUTTI_OK) result = tutti_comm_ranks_in(comm, copy, there);
    if (result != TUTTI_OK || there[0] != 0 || there[1] != 1 || there[2] != 2)
      return TUTTI_INTERNAL;
    float input = 0, output = 0;
    const tutti_call_t call = sum_of(&input, &output, 1);
    tutti_prepared_t prepared = nullptr;
    result = tutti_prepare(copy, &call, &prepared);
    for (int turn = 0; turn < 20 && result == TUTTI_OK; ++turn) {
      input = static_cast<float>(turn + rank);
      tutti_work_t work = nullptr;
      if (turn % 3 != 0) {
        result = tutti_prepared_run(prepared);
      } else {
        result = tutti_prepared_start(prepared, &work);
        if (result == TUTTI_OK) result = tutti_work_wait(work, -1);
        tutti_work_free(work);
      }
      if (output != static_cast<float>(3 * turn + 3)) return TUTTI_INTERNAL;
    }
    tutti_comm_destroy(copy);
    // Not by check_invalid: several threads can't check at once.
    const bool refused =
        tutti_prepared_run(prepared) == TUTTI_INVALID_ARGUMENT &&
        std::string(tutti_last_error()).find("run: the communicator") != std::string::npos;
    tutti_prepared_free(prepared);
    return refused ? result : TUTTI_INTERNAL;
  }));
  tutti_prepared_t prepared = nullptr;
  tutti_work_t work = nullptr;
  tutti_call_t call = {};
  check_invalid("tutti_prepare", [&] { return tutti_prepare(nullptr, &call, &prepared); });
  check_invalid("tutti_prepare", [&] { return tutti_prepare(ranks[0], nullptr, &prepared); });
  check_invalid("tutti_prepare", [&] { return tutti_prepare(ranks[0], &call, nullptr); });
  check_invalid("tutti_prepared_run", [] { return tutti_prepared_run(nullptr); });
  check_invalid("tutti_prepared_start", [&] { return tutti_prepared_start(nullptr, &work); });
  CHECK(tutti_prepared_free(nullptr) == TUTTI_OK);
}

TEST_CASE("a call that makes no sense is refused in one line") {
  Ranks ranks(1);
  float value = 1;
  const tutti_call_t good = sum_of(&value, &value, 1);
  const auto refuses = [&](const tutti_call_t& call) {
    check_invalid("tutti_call", [&] { return tutti_call(ranks[0], &call); });
    tutti_work_t work = nullptr;
    check_invalid("tutti_start_call", [&] { return tutti_start_call(ranks[0], &call, &work); });
    CHECK(work == nullptr);
  };
  CHECK(tutti_call(ranks[0], &good) == TUTTI_OK);
  check_invalid("tutti_call", [&] { return tutti_call(ranks[0], nullptr); });
  tutti_call_t call = good;
  call.size = 2;
  refuses(call);
  for (const int collective : {-1, TUTTI_EXCLUSIVE_SCAN + 1}) {
    call = good;
    call.collective = collective;
    refuses(call);
  }
  call = good;
  call.wire = "smoke";
  refuses(call);
  const double scale = 2;
  call = good;
  call.op = TUTTI_MAX;
  call.scale = &scale;
  refuses(call);
}

TEST_CASE("several works are waited for, all or any") {
  Ranks ranks(2);
  std::vector<float> first(100), second(100);
  tutti_work_t works[3] = {};
  REQUIRE(tutti_start_recv(ranks[0], first.data(), 100, TUTTI_FLOAT32, 1, &works[0]) == TUTTI_OK);
  tutti_work_t sent = nullptr;
  size_t index = 0;
  CHECK(tutti_work_wait_any(works, 3, 20, &index) == TUTTI_TIMEOUT);
  CHECK(index == 3);
  CHECK(tutti_work_wait_all(works, 1, 20) == TUTTI_TIMEOUT);
  // While this thread waits, another one's call ends it.
  auto late = std::async(std::launch::async, [&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return tutti_start_send(ranks[1], second.data(), 100, TUTTI_FLOAT32, 0, &sent);
  });
  CHECK(tutti_work_wait_any(works, 3, -1, &index) == TUTTI_OK);
  CHECK(index == 0);
  CHECK(late.get() == TUTTI_OK);
  works[2] = sent;
  CHECK(tutti_work_wait_any(works + 1, 2, 5000, &index) == TUTTI_OK);
  CHECK(index == 1);
  works[1] = sent;
  CHECK(tutti_work_wait_all(works, 3, -1) == TUTTI_OK);
  CHECK(tutti_work_wait_all(nullptr, 0, -1) == TUTTI_OK);
  check_invalid("tutti_work_wait_all", [&] { return tutti_work_wait_all(nullptr, 1, 0); });
  tutti_work_t none[2] = {};
  check_invalid("tutti_work_wait_any", [&] { return tutti_work_wait_any(none, 2, 0, &index); });
  CHECK(index == 2);
  check_invalid("tutti_work_wait_any", [&] { return tutti_work_wait_any(works, 2, 0, nullptr); });
  REQUIRE(tutti_group_start() == TUTTI_OK);
  check_invalid("tutti_work_wait_any", [&] { return tutti_work_wait_any(works, 2, -1, &index); });
  REQUIRE(tutti_group_end() == TUTTI_OK);
  tutti_work_free(works[0]);
  tutti_work_free(sent);
}

TEST_CASE("messages are received by tag") {
  Ranks ranks(2);
  const std::array<float, 3> values{1, 2, 3};
  std::array<float, 3> got{};
  std::array<tutti_work_t, 2> sent{};
  REQUIRE(tutti_send_tagged(ranks[1], &values[0], 1, TUTTI_FLOAT32, 0, 7) == TUTTI_OK);
  REQUIRE(tutti_start_send_tagged(ranks[1], &values[1], 1, TUTTI_FLOAT32, 0, 8, &sent[0]) ==
          TUTTI_OK);
  REQUIRE(tutti_start_send(ranks[1], &values[2], 1, TUTTI_FLOAT32, 0, &sent[1]) == TUTTI_OK);
  CHECK(tutti_recv(ranks[0], &got[2], 1, TUTTI_FLOAT32, 1) == TUTTI_OK);
  tutti_work_t received = nullptr;
  REQUIRE(tutti_start_recv_tagged(ranks[0], &got[1], 1, TUTTI_FLOAT32, 1, 8, &received) ==
          TUTTI_OK);
  CHECK(tutti_work_wait(received, -1) == TUTTI_OK);
  tutti_work_free(received);
  CHECK(tutti_recv_tagged(ranks[0], &got[0], 1, TUTTI_FLOAT32, 1, 7) == TUTTI_OK);
  CHECK(got == values);
  for (tutti_work_t work : sent) {
    CHECK(tutti_work_wait(work, -1) == TUTTI_OK);
    tutti_work_free(work);
  }
  int from = 7;
  REQUIRE(tutti_send_tagged(ranks[1], &values[1], 1, TUTTI_FLOAT32, 0, 5) == TUTTI_OK);
  REQUIRE(tutti_send_tagged(ranks[1], &values[2], 1, TUTTI_FLOAT32, 0, 6) == TUTTI_OK);
  CHECK(tutti_recv_any_tagged(ranks[0], got.data(), 1, TUTTI_FLOAT32, &from, 6) == TUTTI_OK);
  CHECK(got[0] == 3);
  CHECK(from == 1);
  REQUIRE(tutti_start_recv_any_tagged(ranks[0], got.data(), 1, TUTTI_FLOAT32, &from, 5,
                                      &received) == TUTTI_OK);
  CHECK(tutti_work_wait(received, -1) == TUTTI_OK);
  tutti_work_free(received);
  CHECK(got[0] == 2);
  CHECK(from == 1);
  CHECK(tutti_send_tagged(ranks[1], values.data(), 1, TUTTI_FLOAT32, 0, -1) ==
        TUTTI_INVALID_ARGUMENT);
  CHECK(std::string(tutti_last_error()).find("the tag -1 is negative") != std::string::npos);
}

TEST_CASE("a message is received from any rank, and says from which") {
  Ranks ranks(3);
  float value = 0;
  int from = 7;
  tutti_work_t work = nullptr;
  REQUIRE(tutti_start_recv_any(ranks[0], &value, 1, TUTTI_FLOAT32, &from, &work) == TUTTI_OK);
  CHECK(from == -1);
  const float two = 2;
  REQUIRE(tutti_send(ranks[2], &two, 1, TUTTI_FLOAT32, 0) == TUTTI_OK);
  CHECK(tutti_work_wait(work, -1) == TUTTI_OK);
  tutti_work_free(work);
  CHECK(from == 2);
  CHECK(value == 2);
  const float one = 1;
  REQUIRE(tutti_send(ranks[1], &one, 1, TUTTI_FLOAT32, 0) == TUTTI_OK);
  CHECK(tutti_recv_any(ranks[0], &value, 1, TUTTI_FLOAT32, &from) == TUTTI_OK);
  CHECK(from == 1);
  CHECK(value == 1);
  // In a group: at its end.
  REQUIRE(tutti_group_start() == TUTTI_OK);
  CHECK(tutti_recv_any(ranks[0], &value, 1, TUTTI_FLOAT32, &from) == TUTTI_OK);
  CHECK(tutti_send(ranks[2], &two, 1, TUTTI_FLOAT32, 0) == TUTTI_OK);
  CHECK(from == -1);
  REQUIRE(tutti_group_end() == TUTTI_OK);
  CHECK(from == 2);
  check_invalid("tutti_recv_any",
                [&] { return tutti_recv_any(ranks[0], &value, 1, TUTTI_FLOAT32, nullptr); });
  check_invalid("tutti_start_recv_any",
                [&] { return tutti_start_recv_any(ranks[0], &value, 1, 99, &from, &work); });
  check_invalid("tutti_recv_any",
                [&] { return tutti_recv_any(nullptr, &value, 1, TUTTI_FLOAT32, &from); });
  Ranks alone(1);
  CHECK(tutti_recv_any(alone[0], &value, 1, TUTTI_FLOAT32, &from) == TUTTI_INVALID_ARGUMENT);
}

TEST_CASE("a work that failed ends the wait with its error") {
  Ranks ranks(2);
  float value = 0;
  tutti_work_t works[2] = {};
  REQUIRE(tutti_start_recv(ranks[0], &value, 1, TUTTI_FLOAT32, 1, &works[0]) == TUTTI_OK);
  REQUIRE(tutti_start_recv(ranks[0], &value, 1, TUTTI_FLOAT32, 1, &works[1]) == TUTTI_OK);
  tutti_comm_abort(ranks[1], "enough");
  size_t index = 2;
  CHECK(tutti_work_wait_any(works, 2, -1, &index) == TUTTI_ABORTED);
  CHECK(index < 2);
  CHECK(tutti_work_wait_all(works, 2, -1) == TUTTI_ABORTED);
  CHECK(std::string(tutti_last_error()).find("enough") != std::string::npos);
  for (tutti_work_t work : works) tutti_work_free(work);
}
