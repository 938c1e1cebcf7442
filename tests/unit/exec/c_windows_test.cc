// The C API's windows: what is put, got, accumulated and signalled, and calls that can't be.
#include <algorithm>
#include <array>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "support/c_ranks.h"

using tutti::test::check_invalid;
using tutti::test::Ranks;

namespace {

constexpr int kRanks = 3;
using Numbers = std::array<std::int64_t, kRanks>;  // By rank.

/// A rank's window, which it leaves at the end unless it was closed.
class OwnWindow {
 public:
  OwnWindow(tutti_comm_t comm, std::size_t bytes) { tutti_window_create(comm, bytes, &window_); }
  ~OwnWindow() { tutti_window_destroy(window_); }
  OwnWindow(const OwnWindow&) = delete;
  OwnWindow& operator=(const OwnWindow&) = delete;
  operator tutti_window_t() const { return window_; }
  tutti_result_t close() { return tutti_window_close(std::exchange(window_, nullptr)); }

 private:
  tutti_window_t window_ = nullptr;
};

/// Makes some calls one after another; the first error ends it.
tutti_result_t in_turn(std::initializer_list<std::function<tutti_result_t()>> calls) {
  for (const auto& call : calls) {
    if (const tutti_result_t result = call(); result != TUTTI_OK) return result;
  }
  return TUTTI_OK;
}

/// A call that has to be refused in one line, with these words.
void refused(const char* function, const std::string& words,
             const std::function<tutti_result_t()>& call) {
  check_invalid(function, call);
  const std::string said = tutti_last_error();
  INFO(said);
  CHECK(said.find(words) != std::string::npos);
}

}  // namespace

TEST_CASE("what a rank puts is there behind its signal, and can be got back at once") {
  Ranks ranks(kRanks);
  Numbers came{}, got{};
  std::array<std::size_t, kRanks> bytes{};
  CHECK(ranks.all_ok([&](int rank, tutti_comm_t comm) {
    const auto me = static_cast<std::size_t>(rank);
    const int next = (rank + 1) % kRanks, last = (rank + kRanks - 1) % kRanks;
    OwnWindow window(comm, 64 + me);
    const std::int64_t sent = 100 + rank;
    void* mine = nullptr;
    return in_turn({
        [&] { return tutti_window_bytes(window, next, &bytes[me]); },
        [&] { return tutti_window_data(window, &mine); },
        [&] { return tutti_put(window, &sent, sizeof sent, next, 24); },
        [&] { return tutti_get(window, &got[me], sizeof sent, next, 24); },
        [&] { return tutti_signal(window, next, 5); },
        [&] { return tutti_signal(window, next, 5); },
        [&] { return tutti_wait_signal(window, last, 5, 2); },
        [&]() -> tutti_result_t {
          std::memcpy(&came[me], static_cast<const std::byte*>(mine) + 24, sizeof sent);
          return TUTTI_OK;
        },
        [&] { return window.close(); },
    });
  }));
  CHECK(bytes == std::array<std::size_t, kRanks>{65, 66, 64});
  CHECK(got == Numbers{100, 101, 102});
  CHECK(came == Numbers{102, 100, 101});
}

TEST_CASE("what all ranks accumulate at rank 0 is there behind their flushes") {
  constexpr std::size_t kCount = 1000;
  constexpr int kTimes = 5;
  Ranks ranks(kRanks);
  std::array<std::size_t, kRanks> wrong{};
  Numbers highest{};
  CHECK(ranks.all_ok([&](int rank, tutti_comm_t comm) {
    const auto me = static_cast<std::size_t>(rank);
    OwnWindow window(comm, rank == 0 ? 8 * (kCount + 1) : 0);
    std::vector<std::int64_t> mine(kCount), sums(kCount);
    for (std::size_t i = 0; i < kCount; ++i) mine[i] = static_cast<std::int64_t>(i) + rank;
    const std::int64_t own = rank;
    const auto accumulate = [&](const std::int64_t* data, std::size_t count, tutti_op_t op,
                                std::size_t offset) {
      return tutti_accumulate(window, data, count, TUTTI_INT64, op, 0, offset);
    };
    return in_turn({
        [&] {
          tutti_result_t result = TUTTI_OK;
          for (int i = 0; i < kTimes && result == TUTTI_OK; ++i)
            result = accumulate(mine.data(), kCount, TUTTI_SUM, 8);
          return result;
        },
        [&] { return accumulate(&own, 1, TUTTI_MAX, 0); },
        [&] { return tutti_flush(window, 0); },
        [&] { return tutti_barrier(comm); },
        [&] { return tutti_get(window, sums.data(), 8 * kCount, 0, 8); },
        [&] { return tutti_get(window, &highest[me], 8, 0, 0); },
        [&]() -> tutti_result_t {
          for (std::size_t i = 0; i < kCount; ++i)
            if (sums[i] != kTimes * (kRanks * static_cast<std::int64_t>(i) + 3)) ++wrong[me];
          return TUTTI_OK;
        },
        [&] { return window.close(); },
    });
  }));
  CHECK(wrong == std::array<std::size_t, kRanks>{});
  CHECK(highest == Numbers{2, 2, 2});
}

TEST_CASE("a window knows where memory is, and outlives its communicator") {
  tutti_comm_t comm = nullptr;
  REQUIRE(tutti_comm_init_all(&comm, 1) == TUTTI_OK);
  tutti_window_t window = nullptr;
  REQUIRE(tutti_window_create(comm, 100, &window) == TUTTI_OK);
  CHECK(tutti_comm_destroy(comm) == TUTTI_OK);
  void *data = nullptr, *own = nullptr, *other = &own;
  std::size_t bytes = 1;
  CHECK(tutti_window_data(window, &data) == TUTTI_OK);
  CHECK(tutti_window_address_of(window, 0, &own) == TUTTI_OK);
  CHECK((data != nullptr && data == own));
  CHECK(tutti_window_address_of(window, 1, &other) == TUTTI_OK);
  CHECK(other == nullptr);
  CHECK(tutti_window_bytes(window, -1, &bytes) == TUTTI_OK);
  CHECK(bytes == 0);
  const double value = 1.5;
  CHECK(tutti_put(window, &value, sizeof value, 0, 8) == TUTTI_OK);
  CHECK(std::memcmp(static_cast<const std::byte*>(data) + 8, &value, sizeof value) == 0);
  CHECK(tutti_window_close(window) == TUTTI_OK);
}

TEST_CASE("a null window, or a null place for an answer, is an error") {
  Ranks ranks(1);
  std::int64_t value = 0;
  void* address = nullptr;
  std::size_t bytes = 0;
  tutti_window_t made = nullptr;
  const std::string null = "the window is NULL";
  refused("tutti_window_close", null, [] { return tutti_window_close(nullptr); });
  refused("tutti_window_data", null, [&] { return tutti_window_data(nullptr, &address); });
  refused("tutti_window_bytes", null, [&] { return tutti_window_bytes(nullptr, 0, &bytes); });
  refused("tutti_window_address_of", null,
          [&] { return tutti_window_address_of(nullptr, 0, &address); });
  refused("tutti_put", null, [&] { return tutti_put(nullptr, &value, 8, 0, 0); });
  refused("tutti_get", null, [&] { return tutti_get(nullptr, &value, 8, 0, 0); });
  refused("tutti_accumulate", null,
          [&] { return tutti_accumulate(nullptr, &value, 1, TUTTI_INT64, TUTTI_SUM, 0, 0); });
  refused("tutti_fetch_add", null, [&] { return tutti_fetch_add(nullptr, 1, 0, 0, &value); });
  refused("tutti_compare_swap", null,
          [&] { return tutti_compare_swap(nullptr, 0, 1, 0, 0, &value); });
  refused("tutti_flush", null, [] { return tutti_flush(nullptr, 0); });
  refused("tutti_signal", null, [] { return tutti_signal(nullptr, 0, 0); });
  refused("tutti_wait_signal", null, [] { return tutti_wait_signal(nullptr, 0, 0, 1); });
  CHECK(tutti_window_destroy(nullptr) == TUTTI_OK);

  refused("tutti_window_create", "communicator is NULL",
          [&] { return tutti_window_create(nullptr, 8, &made); });
  refused("tutti_window_create", "`window`, where the handle goes",
          [&] { return tutti_window_create(ranks[0], 8, nullptr); });
  const OwnWindow window(ranks[0], 8);
  const std::string nowhere = "where the answer goes is NULL";
  refused("tutti_window_data", nowhere, [&] { return tutti_window_data(window, nullptr); });
  refused("tutti_window_bytes", nowhere, [&] { return tutti_window_bytes(window, 0, nullptr); });
  refused("tutti_window_address_of", nowhere,
          [&] { return tutti_window_address_of(window, 0, nullptr); });
  const std::string no_before = "`before`, where the answer goes, is NULL";
  refused("tutti_fetch_add", no_before, [&] { return tutti_fetch_add(window, 1, 0, 0, nullptr); });
  refused("tutti_compare_swap", no_before,
          [&] { return tutti_compare_swap(window, 0, 1, 0, 0, nullptr); });
}

TEST_CASE("numbers are exchanged, and what they were before is given") {
  Ranks ranks(kRanks);
  Numbers tickets{}, locks{}, sum{};
  CHECK(ranks.all_ok([&](int rank, tutti_comm_t comm) {
    const auto me = static_cast<std::size_t>(rank);
    OwnWindow window(comm, 24);
    return in_turn({
        [&] { return tutti_fetch_add(window, 1, 0, 8, &tickets[me]); },
        [&] { return tutti_compare_swap(window, 0, rank + 1, 0, 16, &locks[me]); },
        [&] { return tutti_barrier(comm); },
        [&] { return tutti_fetch_add(window, 0, 0, 8, &sum[me]); },
        [&] { return window.close(); },
    });
  }));
  CHECK(sum == Numbers{kRanks, kRanks, kRanks});
  std::sort(tickets.begin(), tickets.end());
  CHECK(tickets == Numbers{0, 1, 2});
  // One found it free; what it put there is what the others found.
  const auto first = std::find(locks.begin(), locks.end(), 0);
  REQUIRE(first != locks.end());
  const std::int64_t holder = first - locks.begin() + 1;
  CHECK(std::count(locks.begin(), locks.end(), 0) == 1);
  CHECK(std::count(locks.begin(), locks.end(), holder) == kRanks - 1);
}

TEST_CASE("ranks, offsets, types, operations and signals that there are not are errors") {
  Ranks ranks(1);
  const OwnWindow window(ranks[0], 100);
  std::array<std::int64_t, 2> data{};
  for (const int rank : {-1, 1, INT_MAX, INT_MIN}) {
    const std::string words = "rank " + std::to_string(rank) + " is not one of the 1 ranks";
    refused("tutti_put", words, [&] { return tutti_put(window, data.data(), 8, rank, 0); });
    refused("tutti_get", words, [&] { return tutti_get(window, data.data(), 8, rank, 0); });
    refused("tutti_accumulate", words, [&] {
      return tutti_accumulate(window, data.data(), 1, TUTTI_INT64, TUTTI_SUM, rank, 0);
    });
    refused("tutti_fetch_add", words,
            [&] { return tutti_fetch_add(window, 1, rank, 0, data.data()); });
    refused("tutti_compare_swap", words,
            [&] { return tutti_compare_swap(window, 0, 1, rank, 0, data.data()); });
    refused("tutti_flush", words, [&] { return tutti_flush(window, rank); });
    refused("tutti_signal", words, [&] { return tutti_signal(window, rank, 0); });
    refused("tutti_wait_signal", words, [&] { return tutti_wait_signal(window, rank, 0, 1); });
  }
  refused("tutti_put", "8 bytes at 93 of the 100 bytes of rank 0",
          [&] { return tutti_put(window, data.data(), 8, 0, 93); });
  refused("tutti_get", "bytes of rank 0",
          [&] { return tutti_get(window, data.data(), SIZE_MAX, 0, 1); });
  refused("tutti_get", "null", [&] { return tutti_get(window, nullptr, 8, 0, 0); });

  const auto accumulate = [&](tutti_data_type_t type, tutti_op_t op, std::size_t offset) {
    return [&, type, op, offset] {
      return tutti_accumulate(window, data.data(), 1, type, op, 0, offset);
    };
  };
  refused("tutti_accumulate", "multiple of the 8 bytes of int64",
          accumulate(TUTTI_INT64, TUTTI_SUM, 4));
  for (const int unknown : {-1, 99, 256, INT_MAX, INT_MIN}) {
    const std::string number = std::to_string(unknown);
    refused("tutti_accumulate", "no data type " + number, accumulate(unknown, TUTTI_SUM, 0));
    refused("tutti_accumulate", "no operation " + number, accumulate(TUTTI_INT64, unknown, 0));
  }
  refused("tutti_accumulate", "xor of float64", accumulate(TUTTI_FLOAT64, TUTTI_XOR, 0));
  refused("tutti_accumulate", "avg of int64", accumulate(TUTTI_INT64, TUTTI_AVG, 0));
  refused("tutti_accumulate", "premulsum of int64", accumulate(TUTTI_INT64, TUTTI_PRE_MUL_SUM, 0));
  CHECK(std::string(tutti_last_error()).find("_pre_mul_sum") == std::string::npos);
  for (const int number : {-1, 64, INT_MAX}) {
    const std::string words = "no signal " + std::to_string(number);
    refused("tutti_signal", words, [&] { return tutti_signal(window, 0, number); });
    refused("tutti_wait_signal", words, [&] { return tutti_wait_signal(window, 0, number, 1); });
  }
}

TEST_CASE("a group holds no window; one that is closed there is gone nevertheless") {
  Ranks ranks(1);
  tutti_window_t window = nullptr, made = nullptr;
  REQUIRE(tutti_window_create(ranks[0], 8, &window) == TUTTI_OK);
  made = window;
  REQUIRE(tutti_group_start() == TUTTI_OK);
  CHECK(tutti_window_create(ranks[0], 8, &made) == TUTTI_INVALID_ARGUMENT);
  CHECK(made == nullptr);
  refused("tutti_flush", "group", [&] { return tutti_flush(window, 0); });
  refused("tutti_close", "group", [&] { return tutti_window_close(window); });
  CHECK(tutti_group_end() == TUTTI_OK);
}
