// The C API: ranks that join by a unique id, and at a place that the caller names.
#include <unistd.h>

#include <climits>
#include <cstdint>
#include <filesystem>
#include <future>
#include <string>

#include "support/c_ranks.h"

using tutti::test::check_invalid;

TEST_CASE("ranks join by a unique id") {
  tutti_unique_id_t id;
  REQUIRE(tutti_get_unique_id(&id) == TUTTI_OK);
  const auto join = [&id](int rank) {
    tutti_comm_t comm = nullptr;
    tutti_result_t result = tutti_comm_init_rank(&comm, &id, rank, 2);
    if (result != TUTTI_OK) return result;
    std::int32_t sum = rank + 1;
    result = tutti_all_reduce(comm, &sum, &sum, 1, TUTTI_INT32, TUTTI_SUM);
    if (result == TUTTI_OK && sum != 3) result = TUTTI_INTERNAL;
    tutti_comm_destroy(comm);
    return result;
  };
  auto other = std::async(std::launch::async, join, 1);
  CHECK(join(0) == TUTTI_OK);
  CHECK(other.get() == TUTTI_OK);
  tutti_comm_t comm = nullptr;
  CHECK(tutti_comm_init_rank(&comm, &id, 2, 2) == TUTTI_INVALID_ARGUMENT);
  CHECK(comm == nullptr);
}

TEST_CASE("ranks join at a directory that the caller names") {
  const std::string folder =
      (std::filesystem::temp_directory_path() / ("c_api_test-" + std::to_string(getpid())))
          .string();
  const auto join = [&folder](int rank) {
    tutti_comm_t comm = nullptr;
    tutti_result_t result = tutti_comm_init_at(&comm, folder.c_str(), "one", rank, 1);
    std::int32_t sum = rank + 1;
    if (result == TUTTI_OK) result = tutti_all_reduce(comm, &sum, &sum, 1, TUTTI_INT32, TUTTI_SUM);
    tutti_comm_destroy(comm);
    return result;
  };
  CHECK(join(0) == TUTTI_OK);
  tutti_comm_t comm = nullptr;
  for (const char* nowhere : {"", static_cast<const char*>(nullptr)}) {
    check_invalid("tutti_comm_init_at",
                  [&] { return tutti_comm_init_at(&comm, nowhere, "two", 0, 1); });
  }
  for (const int rank : {-1, 2, INT_MAX}) {
    check_invalid("tutti_comm_init_at",
                  [&] { return tutti_comm_init_at(&comm, folder.c_str(), "two", rank, 2); });
  }
  CHECK(tutti_comm_init_at(nullptr, folder.c_str(), "two", 0, 1) == TUTTI_INVALID_ARGUMENT);
  CHECK(comm == nullptr);
  std::filesystem::remove_all(folder);
}
