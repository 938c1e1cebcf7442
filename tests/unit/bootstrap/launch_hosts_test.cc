// Which hosts get which ranks: what `tutti run --hosts` understands, and what it makes of it.
#include <numeric>
#include <random>

#include "bootstrap/launch/launch_hosts.h"
#include "support/catch.h"

namespace tutti::bootstrap {
namespace {

std::string in_words(const Result<std::vector<HostSlots>>& hosts) {
  if (!hosts) return hosts.error().what;
  std::string text;
  for (const auto& one : *hosts) text += one.host + "=" + std::to_string(one.slots) + " ";
  return text;
}

TEST_CASE("hosts: names and addresses, each with its slots") {
  CHECK(in_words(parse_hosts("a")) == "a=1 ");
  CHECK(in_words(parse_hosts("node-1.site,me@b:2,10.0.0.3:4")) ==
        "node-1.site=1 me@b=2 10.0.0.3=4 ");
  CHECK(in_words(parse_hosts("[fd77::1],[fe80::2%eth0]:8")) == "fd77::1=1 fe80::2%eth0=8 ");
  CHECK(in_words(parse_hosts("a:2,b,a")) == "a=3 b=1 ");  // Again: more of it.
}

TEST_CASE("hosts: what is none is named, and never reaches a shell") {
  for (const char* text : {"", "a,,b", "a,", "a:0", "a:-1", "a:x", "a:4097", "a:2:3", "[fd77::1",
                           "[fd77::1]2", "-oProxyCommand=x", "a;b", "$(a)", "a b", "[]", ":2"}) {
    INFO("'" << text << "'");
    const auto hosts = parse_hosts(text);
    REQUIRE_FALSE(hosts);
    CHECK(hosts.error().code == Code::kInvalidArgument);
    CHECK_THAT(hosts.error().what, Catch::Contains("is no host"));
  }
  CHECK_THAT(in_words(parse_hosts("fine,ba d:3")), Catch::StartsWith("'ba d:3' is no host"));
}

TEST_CASE("hosts: ranks fill hosts in order, none more than it takes") {
  const unsigned seed = Catch::rngSeed();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<HostSlots> hosts;
    int slots = 0;
    for (unsigned i = 0; i < 1 + random() % 5; ++i) {
      hosts.push_back(
          {std::string(1, static_cast<char>('a' + i)), 1 + static_cast<int>(random() % 4)});
      slots += hosts.back().slots;
    }
    for (int ranks = 0; ranks <= slots; ++ranks) {
      const auto shares = share_out(hosts, ranks);
      REQUIRE(shares);
      int sum = 0;
      for (std::size_t i = 0; i < shares->size(); ++i) {
        const HostSlots& share = (*shares)[i];
        CHECK(share.host == hosts[i].host);
        CHECK(share.slots >= 1);
        CHECK(share.slots <= hosts[i].slots);
        // The one before is full.
        if (i > 0) CHECK((*shares)[i - 1].slots == hosts[i - 1].slots);
        sum += share.slots;
      }
      CHECK(sum == (ranks == 0 ? slots : ranks));
    }
    CHECK_THAT(in_words(share_out(hosts, slots + 1)),
               Catch::Contains("the hosts take " + std::to_string(slots)));
  }
}

}  // namespace
}  // namespace tutti::bootstrap
