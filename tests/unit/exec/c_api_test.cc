// The C API: every function with every kind of bad argument, and the good ones on ranks in threads.
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/c_ranks.h"
#include "tutti/communicator.h"

using tutti::test::check_invalid;
using tutti::test::Ranks;

namespace {
constexpr int kNoType = 0
#define TUTTI_DATA_TYPE(...) +1
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
    ;
}  // namespace

TEST_CASE("the vocabulary is that of the C++ API") {
  CHECK(tutti_get_version() == TUTTI_VERSION_NUMBER);
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, ...) \
  CHECK(tutti_data_type_size(value) == bytes);
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  for (const int unknown : {-1, kNoType, 255, 256, INT_MAX, INT_MIN}) {
    CHECK(tutti_data_type_size(unknown) == 0);
    CHECK(std::string(tutti_result_name(unknown)) == "unknown");
  }
  for (int code = 0; code <= TUTTI_REVOKED; ++code) {
    CHECK(tutti_result_name(code) == tutti::to_string(static_cast<tutti::Code>(code)));
  }
}

TEST_CASE("a null communicator is an error of every function that takes one") {
  float in[4] = {}, out[4] = {};
  int number = 0;
  tutti_work_t work = nullptr;
  tutti_comm_t part = nullptr;
  const std::vector<std::pair<const char*, std::function<tutti_result_t()>>> calls{
      {"tutti_comm_split", [&] { return tutti_comm_split(nullptr, 0, 0, &part); }},
      {"tutti_comm_duplicate", [&] { return tutti_comm_duplicate(nullptr, &part); }},
      {"tutti_comm_ranks_in", [&] { return tutti_comm_ranks_in(nullptr, nullptr, &number); }},
      {"tutti_comm_abort", [&] { return tutti_comm_abort(nullptr, "x"); }},
      {"tutti_comm_rank", [&] { return tutti_comm_rank(nullptr, &number); }},
      {"tutti_comm_count", [&] { return tutti_comm_count(nullptr, &number); }},
      {"tutti_comm_describe", [&] { return tutti_comm_describe(nullptr, nullptr, 0, nullptr); }},
      {"tutti_comm_counters",
       [&] {
         tutti_counters_t counters;
         return tutti_comm_counters(nullptr, &counters);
       }},
      {"tutti_comm_flight_record",
       [&] { return tutti_comm_flight_record(nullptr, nullptr, 0, nullptr); }},
      {"tutti_comm_use_algorithm", [&] { return tutti_comm_use_algorithm(nullptr, "ring"); }},
      {"tutti_comm_use_wire", [&] { return tutti_comm_use_wire(nullptr, "int8"); }},
      {"tutti_comm_explain",
       [&] {
         return tutti_comm_explain(nullptr, "all_reduce", in, out, 4, TUTTI_FLOAT32, 0, nullptr, 0,
                                   nullptr);
       }},
      {"tutti_all_reduce",
       [&] { return tutti_all_reduce(nullptr, in, out, 4, TUTTI_FLOAT32, TUTTI_SUM); }},
      {"tutti_all_reduce_pre_mul_sum",
       [&] { return tutti_all_reduce_pre_mul_sum(nullptr, in, out, 4, TUTTI_FLOAT32, 2); }},
      {"tutti_reduce_scatter",
       [&] { return tutti_reduce_scatter(nullptr, in, out, 4, TUTTI_FLOAT32, TUTTI_SUM); }},
      {"tutti_reduce_scatter_pre_mul_sum",
       [&] { return tutti_reduce_scatter_pre_mul_sum(nullptr, in, out, 4, TUTTI_FLOAT32, 2); }},
      {"tutti_all_gather", [&] { return tutti_all_gather(nullptr, in, out, 4, TUTTI_FLOAT32); }},
      {"tutti_broadcast", [&] { return tutti_broadcast(nullptr, in, out, 4, TUTTI_FLOAT32, 0); }},
      {"tutti_barrier", [&] { return tutti_barrier(nullptr); }},
      {"tutti_start_all_reduce",
       [&] {
         return tutti_start_all_reduce(nullptr, in, out, 4, TUTTI_FLOAT32, TUTTI_SUM, &work);
       }},
      {"tutti_start_all_reduce_pre_mul_sum",
       [&] {
         return tutti_start_all_reduce_pre_mul_sum(nullptr, in, out, 4, TUTTI_FLOAT32, 2, &work);
       }},
      {"tutti_start_reduce_scatter",
       [&] {
         return tutti_start_reduce_scatter(nullptr, in, out, 4, TUTTI_FLOAT32, TUTTI_SUM, &work);
       }},
      {"tutti_start_reduce_scatter_pre_mul_sum",
       [&] {
         return tutti_start_reduce_scatter_pre_mul_sum(nullptr, in, out, 4, TUTTI_FLOAT32, 2,
                                                       &work);
       }},
      {"tutti_start_all_gather",
       [&] { return tutti_start_all_gather(nullptr, in, out, 4, TUTTI_FLOAT32, &work); }},
      {"tutti_start_broadcast",
       [&] { return tutti_start_broadcast(nullptr, in, out, 4, TUTTI_FLOAT32, 0, &work); }},
      {"tutti_register", [&] { return tutti_register(nullptr, in, sizeof(in), 0, 0); }},
      {"tutti_deregister", [&] { return tutti_deregister(nullptr, in); }},
  };
  for (const auto& [function, call] : calls) check_invalid(function, call);
  CHECK(work == nullptr);
  CHECK(tutti_comm_destroy(nullptr) == TUTTI_OK);
  CHECK(tutti_work_free(nullptr) == TUTTI_OK);
  CHECK(tutti_mem_free(nullptr) == TUTTI_OK);
}

TEST_CASE("a null place for a result is an error") {
  Ranks ranks(1);
  tutti_comm_t comm = ranks[0];
  tutti_unique_id_t id = {};
  float in[4] = {}, out[4] = {};
  char text[8];
  tutti_comm_t made = nullptr;
  tutti_work_t work = nullptr;
  check_invalid("tutti_get_unique_id", [] { return tutti_get_unique_id(nullptr); });
  check_invalid("tutti_comm_init_rank", [&] { return tutti_comm_init_rank(nullptr, &id, 0, 1); });
  check_invalid("tutti_comm_init_rank", [&] { return tutti_comm_init_rank(&made, nullptr, 0, 1); });
  check_invalid("tutti_comm_init_env", [] { return tutti_comm_init_env(nullptr); });
  check_invalid("tutti_comm_init_all", [] { return tutti_comm_init_all(nullptr, 2); });
  check_invalid("tutti_comm_split", [&] { return tutti_comm_split(comm, 0, 0, nullptr); });
  check_invalid("tutti_comm_duplicate", [&] { return tutti_comm_duplicate(comm, nullptr); });
  check_invalid("tutti_comm_ranks_in", [&] { return tutti_comm_ranks_in(comm, comm, nullptr); });
  check_invalid("tutti_comm_rank", [&] { return tutti_comm_rank(comm, nullptr); });
  check_invalid("tutti_comm_count", [&] { return tutti_comm_count(comm, nullptr); });
  check_invalid("tutti_comm_describe",
                [&] { return tutti_comm_describe(comm, nullptr, sizeof(text), nullptr); });
  const auto explain = [&](const char* collective, tutti_data_type_t type, int root, char* into) {
    return tutti_comm_explain(comm, collective, in, out, 4, type, root, into, sizeof(text),
                              nullptr);
  };
  check_invalid("tutti_comm_explain", [&] { return explain(nullptr, TUTTI_FLOAT32, 0, text); });
  check_invalid("tutti_comm_explain",
                [&] { return explain("all_to_some", TUTTI_FLOAT32, 0, text); });
  check_invalid("tutti_comm_explain", [&] { return explain("broadcast", 99, 0, text); });
  check_invalid("tutti_comm_explain",
                [&] { return explain("broadcast", TUTTI_FLOAT32, 0, nullptr); });
  check_invalid("tutti_start_all_reduce", [&] {
    return tutti_start_all_reduce(comm, in, out, 4, TUTTI_FLOAT32, TUTTI_SUM, nullptr);
  });
  check_invalid("tutti_work_wait", [] { return tutti_work_wait(nullptr, 0); });
  check_invalid("tutti_work_test", [] { return tutti_work_test(nullptr, nullptr); });
  check_invalid("tutti_work_then", [&] { return tutti_work_then(work, nullptr, nullptr); });
  check_invalid("tutti_mem_alloc", [] { return tutti_mem_alloc(nullptr, 64); });
  for (const int count : {0, -1, INT_MIN}) {
    CHECK(tutti_comm_init_all(&made, count) == TUTTI_INVALID_ARGUMENT);
  }
}

TEST_CASE("numbers that stand for nothing are errors, also where they would wrap") {
  Ranks ranks(1);
  tutti_comm_t comm = ranks[0];
  double in[4] = {}, out[4] = {};
  tutti_work_t work = nullptr;
  for (const int unknown : {-1, kNoType, 255, 256, INT_MAX, INT_MIN}) {
    check_invalid("tutti_all_reduce",
                  [&] { return tutti_all_reduce(comm, in, out, 4, unknown, TUTTI_SUM); });
    check_invalid("tutti_all_gather", [&] { return tutti_all_gather(comm, in, out, 4, unknown); });
    check_invalid("tutti_broadcast", [&] { return tutti_broadcast(comm, in, out, 4, unknown, 0); });
    check_invalid("tutti_reduce_scatter",
                  [&] { return tutti_reduce_scatter(comm, in, out, 4, unknown, TUTTI_SUM); });
    check_invalid("tutti_all_reduce",
                  [&] { return tutti_all_reduce(comm, in, out, 4, TUTTI_FLOAT64, unknown); });
    check_invalid("tutti_start_all_reduce", [&] {
      return tutti_start_all_reduce(comm, in, out, 4, unknown, TUTTI_SUM, &work);
    });
    check_invalid("tutti_broadcast",
                  [&] { return tutti_broadcast(comm, in, out, 4, TUTTI_FLOAT64, unknown); });
  }
  check_invalid("tutti_all_reduce",
                [&] { return tutti_all_reduce(comm, in, out, 4, TUTTI_FLOAT32, TUTTI_XOR); });
  check_invalid("tutti_all_reduce", [&] {
    return tutti_all_reduce(comm, in, out, 4, TUTTI_FLOAT32, TUTTI_PRE_MUL_SUM);
  });
  CHECK(std::string(tutti_last_error()).find("tutti_all_reduce_pre_mul_sum") != std::string::npos);
}

TEST_CASE("null buffers and counts that memory cannot hold are errors") {
  Ranks ranks(2);
  std::int64_t in[4] = {}, out[4] = {};
  const std::size_t most = static_cast<std::size_t>(PTRDIFF_MAX) / sizeof(std::int64_t) / 2;
  check_invalid("tutti_all_reduce", [&] {
    return tutti_all_reduce(ranks[0], nullptr, out, 4, TUTTI_INT64, TUTTI_SUM);
  });
  check_invalid("tutti_all_gather",
                [&] { return tutti_all_gather(ranks[0], in, nullptr, 4, TUTTI_INT64); });
  for (const std::size_t count : {most + 1, SIZE_MAX / 8, SIZE_MAX / 4 + 1, SIZE_MAX}) {
    check_invalid("tutti_all_reduce", [&] {
      return tutti_all_reduce(ranks[0], in, out, count, TUTTI_INT64, TUTTI_SUM);
    });
    check_invalid("tutti_all_gather",
                  [&] { return tutti_all_gather(ranks[0], in, out, count, TUTTI_INT64); });
  }
  // A count of 0 is legal, without buffers too.
  CHECK(tutti_all_reduce(ranks[0], nullptr, nullptr, 0, TUTTI_INT64, TUTTI_SUM) == TUTTI_OK);
}

TEST_CASE("work can be waited for again after a timeout, tested, and given back early") {
  Ranks ranks(2);
  struct Outcome {
    std::promise<tutti_result_t> told;
  } outcome;
  float in[2] = {1, 2}, out[2] = {}, other[2] = {};
  tutti_work_t work = nullptr;
  REQUIRE(tutti_start_all_reduce(ranks[0], in, out, 2, TUTTI_FLOAT32, TUTTI_SUM, &work) ==
          TUTTI_OK);
  int done = -1;
  // Rank 1 has not called: it can't be done.
  CHECK(tutti_work_test(work, &done) == TUTTI_OK);
  CHECK(done == 0);
  CHECK(tutti_work_wait(work, 1) == TUTTI_TIMEOUT);
  const auto tell = [](void* user, tutti_result_t result, const char* text) {
    static_cast<Outcome*>(user)->told.set_value(*text == 0 ? result : tutti_result_t{-1});
  };
  REQUIRE(tutti_work_then(work, tell, &outcome) == TUTTI_OK);
  REQUIRE(tutti_all_reduce(ranks[1], in, other, 2, TUTTI_FLOAT32, TUTTI_SUM) == TUTTI_OK);
  CHECK(tutti_work_wait(work, 10'000) == TUTTI_OK);
  CHECK(tutti_work_test(work, &done) == TUTTI_OK);
  CHECK(done == 1);
  CHECK(outcome.told.get_future().get() == TUTTI_OK);
  CHECK((out[0] == 2 && out[1] == 4 && other[0] == 2 && other[1] == 4));
  CHECK(tutti_work_free(work) == TUTTI_OK);

  // Given back before it is done: it goes on, and the callback comes.
  Outcome second;
  REQUIRE(tutti_start_all_reduce(ranks[0], in, out, 2, TUTTI_FLOAT32, TUTTI_MAX, &work) ==
          TUTTI_OK);
  REQUIRE(tutti_work_then(work, tell, &second) == TUTTI_OK);
  CHECK(tutti_work_free(work) == TUTTI_OK);
  REQUIRE(tutti_all_reduce(ranks[1], in, other, 2, TUTTI_FLOAT32, TUTTI_MAX) == TUTTI_OK);
  CHECK(second.told.get_future().get() == TUTTI_OK);
  CHECK((out[0] == 1 && out[1] == 2));
}

TEST_CASE("a communicator's wire is for its collectives of float32") {
  Ranks ranks(2);
  const float odd = 1 + 0x1p-20F;  // No bfloat16.
  const auto is = [&](double expected) {
    return ranks.all_ok([&](int, tutti_comm_t comm) {
      float sum = 0;
      const auto result = tutti_all_reduce(comm, &odd, &sum, 1, TUTTI_FLOAT32, TUTTI_SUM);
      if (result == TUTTI_OK && double{sum} != expected) return tutti_result_t{TUTTI_INTERNAL};
      const double wide = odd;
      double wide_sum = 0;
      const auto other = tutti_all_reduce(comm, &wide, &wide_sum, 1, TUTTI_FLOAT64, TUTTI_SUM);
      return other == TUTTI_OK && wide_sum != 2 * wide ? tutti_result_t{TUTTI_INTERNAL} : result;
    });
  };
  CHECK(is(2 * double{odd}));
  for (std::size_t rank = 0; rank < 2; ++rank)
    REQUIRE(tutti_comm_use_wire(ranks[rank], "bfloat16") == TUTTI_OK);
  CHECK(is(2));
  CHECK(tutti_comm_use_wire(ranks[0], "int4") == TUTTI_INVALID_ARGUMENT);
  CHECK(is(2));
  for (std::size_t rank = 0; rank < 2; ++rank)
    REQUIRE(tutti_comm_use_wire(ranks[rank], nullptr) == TUTTI_OK);
  CHECK(is(2 * double{odd}));
}

TEST_CASE("a communicator takes the algorithm that it is told, until it is told another") {
  Ranks ranks(3);
  const auto use = [&](const char* of_rank_0, const char* of_others) {
    for (std::size_t rank = 0; rank < 3; ++rank)
      CHECK(tutti_comm_use_algorithm(ranks[rank], rank == 0 ? of_rank_0 : of_others) == TUTTI_OK);
  };
  const auto sum = [&] {
    return ranks.all_ok([&](int, tutti_comm_t comm) {
      const std::vector<float> in(1000, 1);
      std::vector<float> out(1000);
      const tutti_result_t result =
          tutti_all_reduce(comm, in.data(), out.data(), 1000, TUTTI_FLOAT32, TUTTI_SUM);
      return result == TUTTI_OK && out[999] != 3 ? tutti_result_t{TUTTI_INTERNAL} : result;
    });
  };
  const auto chosen = [&] {
    std::array<char, 1 << 14> text{};
    REQUIRE(tutti_comm_explain(ranks[0], "all_reduce", nullptr, nullptr, 1000, TUTTI_FLOAT32, 0,
                               text.data(), text.size(), nullptr) == TUTTI_OK);
    const std::string all(text.data());
    return all.substr(all.find("Taken: "), 24);
  };
  for (const char* name : {"one_shot", "two_shot", "halving_doubling"}) {
    use(name, name);
    CHECK(chosen().find(name) != std::string::npos);
    CHECK(sum());
  }
  use("^two_shot", "^two_shot");
  CHECK(chosen().find("two_shot") == std::string::npos);
  CHECK(sum());
  use("", nullptr);
  CHECK(sum());
  use("no_such", "no_such");
  float value = 0;
  CHECK(tutti_all_reduce(ranks[0], &value, &value, 1, TUTTI_FLOAT32, TUTTI_SUM) ==
        TUTTI_INVALID_ARGUMENT);
  CHECK(std::string(tutti_last_error()).find("no_such") != std::string::npos);
  use("one_shot", "two_shot");
  CHECK_FALSE(sum());  // Not alike on all ranks.
}

TEST_CASE("a group lets one thread drive several ranks") {
  constexpr std::size_t kDriven = 4;
  Ranks ranks(kDriven);
  std::int64_t in[kDriven], out[kDriven] = {};
  REQUIRE(tutti_group_start() == TUTTI_OK);
  check_invalid("tutti_group_start", [] { return tutti_group_start(); });
  for (std::size_t rank = 0; rank < kDriven; ++rank) {
    in[rank] = std::int64_t{1} << (8 * rank);
    CHECK(tutti_all_reduce(ranks[rank], &in[rank], &out[rank], 1, TUTTI_INT64, TUTTI_OR) ==
          TUTTI_OK);
  }
  CHECK(tutti_group_end() == TUTTI_OK);
  for (const std::int64_t value : out) CHECK(value == 0x01010101);
  check_invalid("tutti_group_end", [] { return tutti_group_end(); });
  // An error within a group does not end it, and the next group works.
  REQUIRE(tutti_group_start() == TUTTI_OK);
  CHECK(tutti_all_reduce(ranks[0], nullptr, out, 1, TUTTI_INT64, TUTTI_OR) ==
        TUTTI_INVALID_ARGUMENT);
  // A split exchanges what its ranks say at once, so it can't wait for the end.
  for (const int color : {0, -1}) {
    tutti_comm_t part = nullptr;
    CHECK(tutti_comm_split(ranks[0], color, 0, &part) == TUTTI_INVALID_ARGUMENT);
    CHECK(part == nullptr);
  }
  CHECK(tutti_group_end() == TUTTI_OK);
}

TEST_CASE("messages arrive: sent at once, started, and in a group") {
  Ranks ranks(2);
  CHECK(ranks.all_ok([](int rank, tutti_comm_t comm) {
    const int peer = 1 - rank, mine = 7 + rank;
    std::array<int, 3> got{};
    tutti_result_t result = rank == 0 ? tutti_send(comm, &mine, 1, TUTTI_INT32, peer)
                                      : tutti_recv(comm, &got[0], 1, TUTTI_INT32, peer);
    tutti_work_t sending = nullptr, receiving = nullptr;
    if (result == TUTTI_OK) result = tutti_start_send(comm, &mine, 1, TUTTI_INT32, peer, &sending);
    if (result == TUTTI_OK)
      result = tutti_start_recv(comm, &got[1], 1, TUTTI_INT32, peer, &receiving);
    for (const tutti_work_t work : {sending, receiving}) {
      if (result == TUTTI_OK) result = tutti_work_wait(work, -1);
      tutti_work_free(work);
    }
    if (result == TUTTI_OK) result = tutti_group_start();
    if (result == TUTTI_OK) result = tutti_recv(comm, &got[2], 1, TUTTI_INT32, peer);
    if (result == TUTTI_OK) result = tutti_send(comm, &mine, 1, TUTTI_INT32, peer);
    if (result == TUTTI_OK) result = tutti_group_end();
    const std::array<int, 3> want{rank == 0 ? 0 : 7, 7 + peer, 7 + peer};
    return result == TUTTI_OK && got != want ? tutti_result_t{TUTTI_INTERNAL} : result;
  }));
}

TEST_CASE("a split gives every color its own ranks, and none to a negative color") {
  Ranks ranks(5);
  std::array<int, 5> new_rank{}, new_count{};
  CHECK(ranks.all_ok([&](int rank, tutti_comm_t comm) {
    tutti_comm_t part = nullptr;
    const int color = rank == 4 ? -1 : rank % 2;
    tutti_result_t result = tutti_comm_split(comm, color, -rank, &part);
    if (result != TUTTI_OK) return result;
    const auto at = static_cast<std::size_t>(rank);
    new_rank[at] = new_count[at] = -1;
    if (part == nullptr) return tutti_result_t{TUTTI_OK};
    result = tutti_comm_rank(part, &new_rank[at]);
    if (result == TUTTI_OK) result = tutti_comm_count(part, &new_count[at]);
    int sum = 0;
    if (result == TUTTI_OK) result = tutti_all_reduce(part, &rank, &sum, 1, TUTTI_INT32, TUTTI_SUM);
    if (result == TUTTI_OK && sum != (color == 0 ? 2 : 4)) result = TUTTI_INTERNAL;
    tutti_comm_destroy(part);
    return result;
  }));
  CHECK(new_rank == std::array{1, 1, 0, 0, -1});
  CHECK(new_count == std::array{2, 2, 2, 2, -1});
}

TEST_CASE("an abort ends a rank that waits, and says why") {
  Ranks ranks(2);
  float in = 1, out = 0;
  std::string said;
  auto waiting = std::async(std::launch::async, [&] {
    const auto result = tutti_all_reduce(ranks[0], &in, &out, 1, TUTTI_FLOAT32, TUTTI_SUM);
    said = tutti_last_error();
    return result;
  });
  CHECK(tutti_comm_abort(ranks[1], "enough is enough") == TUTTI_OK);
  CHECK(waiting.get() == TUTTI_ABORTED);
  INFO(said);
  CHECK(said.find("enough is enough") != std::string::npos);
  CHECK(tutti_comm_abort(ranks[0], nullptr) == TUTTI_OK);  // Twice, and without a reason.
}

TEST_CASE("descriptions and explanations are cut to the room there is, and always end") {
  Ranks ranks(2);
  using Say = std::function<tutti_result_t(char*, std::size_t, std::size_t*)>;
  const std::vector<Say> ways{[&](char* text, std::size_t size, std::size_t* needed) {
                                return tutti_comm_describe(ranks[0], text, size, needed);
                              },
                              [&](char* text, std::size_t size, std::size_t* needed) {
                                return tutti_comm_explain(ranks[0], "all_gather", nullptr, nullptr,
                                                          1000, TUTTI_FLOAT32, 0, text, size,
                                                          needed);
                              }};
  for (const Say& say : ways) {
    std::size_t needed = 0;
    REQUIRE(say(nullptr, 0, &needed) == TUTTI_OK);
    REQUIRE(needed > 20);
    std::string all(needed, 'x');
    REQUIRE(say(all.data(), all.size(), nullptr) == TUTTI_OK);
    CHECK(std::strlen(all.c_str()) + 1 == needed);
    for (const std::size_t size : {std::size_t{1}, std::size_t{10}, needed - 1}) {
      std::string some(size + 1, 'x');
      REQUIRE(say(some.data(), size, nullptr) == TUTTI_OK);
      CHECK(std::strlen(some.c_str()) == size - 1);
      CHECK(all.compare(0, size - 1, some.c_str()) == 0);
      CHECK(some[size] == 'x');
    }
  }
}

TEST_CASE("errors are a thread's own") {
  check_invalid("tutti_barrier", [] { return tutti_barrier(nullptr); });
  std::string elsewhere = "not asked";
  std::thread([&elsewhere] { elsewhere = tutti_last_error(); }).join();
  CHECK(elsewhere == "");
  CHECK(std::string(tutti_last_error()).find("barrier") != std::string::npos);
}

TEST_CASE("an error names the rank to blame, or none") {
  check_invalid("tutti_barrier", [] { return tutti_barrier(nullptr); });
  CHECK(tutti_last_error_peer() == -1);
  Ranks ranks(3);
  const auto results = ranks.run([](int rank, tutti_comm_t comm) {
    float data[4] = {};
    const std::size_t count = rank == 2 ? 3 : 4;
    // The other two differ, and which of them is the odd one rank 1 decides.
    if (rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto result = tutti_all_reduce(comm, data, data, count, TUTTI_FLOAT32, TUTTI_SUM);
    return result == TUTTI_MISMATCH ? tutti_last_error_peer() : -2;
  });
  CHECK(results[0] == 2);
  CHECK(results[1] == 2);
  int elsewhere = -2;
  std::thread([&elsewhere] { elsewhere = tutti_last_error_peer(); }).join();
  CHECK(elsewhere == -1);
}

TEST_CASE("memory that peers can map: allocated, registered, and strangers") {
  Ranks ranks(2);
  CHECK(ranks.all_ok([&](int, tutti_comm_t comm) {
    void* data = nullptr;
    tutti_result_t result = tutti_mem_alloc(&data, 3 * sizeof(double));
    if (result != TUTTI_OK) return result;
    auto* values = static_cast<double*>(data);
    for (int i = 0; i < 3; ++i) {
      if (values[i] != 0) return tutti_result_t{TUTTI_INTERNAL};
      values[i] = i;
    }
    result = tutti_all_reduce(comm, values, values, 3, TUTTI_FLOAT64, TUTTI_SUM);
    if (result == TUTTI_OK && values[2] != 4) result = TUTTI_INTERNAL;
    const tutti_result_t freed = tutti_mem_free(data);
    return result == TUTTI_OK ? freed : result;
  }));
  void* data = nullptr;
  CHECK(tutti_mem_alloc(&data, 0) == TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_mem_alloc(&data, SIZE_MAX) == TUTTI_INVALID_ARGUMENT);
  CHECK(data == nullptr);
  int mine = 0;
  CHECK(tutti_mem_free(&mine) == TUTTI_INVALID_ARGUMENT);

  const int fd = memfd_create("c_api_test", MFD_CLOEXEC);
  REQUIRE(fd >= 0);
  REQUIRE(ftruncate(fd, 8192) == 0);
  void* mapped = mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  REQUIRE(mapped != MAP_FAILED);
  CHECK(tutti_register(ranks[0], mapped, 8193, fd, 0) == TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_register(ranks[0], mapped, 8192, fd, SIZE_MAX - 4) == TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_register(ranks[0], mapped, 8192, -1, 0) == TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_register(ranks[0], mapped, 8192, fd, 0) == TUTTI_OK);
  CHECK(tutti_register(ranks[0], mapped, 8192, fd, 0) == TUTTI_INVALID_ARGUMENT);
  CHECK(tutti_deregister(ranks[0], mapped) == TUTTI_OK);
  CHECK(tutti_deregister(ranks[0], mapped) == TUTTI_INVALID_ARGUMENT);
  munmap(mapped, 8192);
  close(fd);
}
