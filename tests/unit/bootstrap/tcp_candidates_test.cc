// Several ports at which rank 0's store may be: what a rank says that finds it at none of them.
#include "bootstrap/tcp_client.h"
#include "support/catch.h"
#include "support/rendezvous.h"

namespace tutti::bootstrap {
namespace {

using namespace std::chrono_literals;

TEST_CASE("a store of another job says more than ports where nobody listens") {
  const int port = test::free_port();
  const auto other = meet({.host = "127.0.0.1", .ports = {port}, .secret = key_of("theirs", "job")},
                          Rank{0}, Deadline::after(10s));
  REQUIRE(other);
  const std::vector<int> ports{test::free_port(), port, test::free_port()};
  const auto joined = meet({.host = "127.0.0.1", .ports = ports, .secret = key_of("ours", "job")},
                           Rank{1}, Deadline::after(1s));
  REQUIRE_FALSE(joined);
  CHECK(joined.error().code == Code::kTimeout);
  CHECK_THAT(joined.error().what, Catch::Contains("TUTTI_SECRET have to be alike on all ranks") &&
                                      Catch::Contains("127.0.0.1:" + std::to_string(port)));
}

}  // namespace
}  // namespace tutti::bootstrap
