// What RDMA ranks tell each other: records of frames, and cards.
#include <random>

#include "support/catch.h"
#include "transport/verbs/device.h"
#include "transport/verbs/endpoint_info.h"
#include "transport/verbs/record.h"

using namespace tutti;
using namespace tutti::verbs;

namespace {

using Head = std::array<std::byte, kRecordHeadBytes>;

Record random_record(std::mt19937_64& random) {
  Record record;
  record.what = static_cast<What>(1 + random() % 3);
  for (auto& count : record.consumed) count = static_cast<std::uint32_t>(random());
  record.header.kind = static_cast<std::uint16_t>(1 + random() % 6);
  record.header.channel = static_cast<std::uint32_t>(random());
  record.header.sequence = static_cast<std::uint32_t>(random());
  record.header.position = random();
  record.header.bytes = static_cast<std::uint32_t>(random() % (2 * kShortBytes));
  record.offset = random();
  if (record.header.bytes > kShortBytes) record.target = static_cast<Target>(1 + random() % 3);
  // What lies apart is in no record, however short.
  if (record.header.bytes != 0 && random() % 4 == 0) record.target = Target::kGpuDirect;
  return record;
}

bool same(const Record& a, const Record& b) {
  return a.what == b.what && a.target == b.target && a.consumed == b.consumed &&
         a.offset == b.offset && net::encode(a.header) == net::encode(b.header);
}

EndpointInfo an_endpoint_info() {
  EndpointInfo info;
  info.host = "node7";
  info.device = "mlx5_0:1";
  info.address = "10.0.0.3";
  for (std::size_t i = 0; i < info.gid.size(); ++i) info.gid[i] = static_cast<std::uint8_t>(i);
  info.lid = 4711;
  info.layer = kInfiniBand;
  info.mtu = IBV_MTU_2048;
  info.near = {1, 2, 3};
  info.replica = {0xfedcba9876543210, 5, 6};
  info.records = {7, 8, 0xffffffff};
  info.gpudirect = {0x123456789abcdef0, 9, 10};
  return info;
}

}  // namespace

TEST_CASE("a record is read as it was written, and nothing else is a record") {
  std::mt19937_64 random(Catch::rngSeed());
  for (int i = 0; i < 2000; ++i) {
    INFO("--rng-seed " << Catch::rngSeed());
    const Record record = random_record(random);
    Head head{};
    encode(record, head);
    const auto read = parse_record(head);
    REQUIRE(read);
    CHECK(same(*read, record));
    // A payload in the wrong place, or too long to be there.
    const bool is_short = record.header.bytes <= kShortBytes;
    for (const auto target :
         {Target::kRecord, Target::kNear, Target::kReplica, Target::kGpuDirect}) {
      Record other = record;
      other.target = target;
      encode(other, head);
      const bool sound = target == Target::kGpuDirect ? record.header.bytes != 0
                         : target == Target::kRecord  ? is_short
                                                      : !is_short;
      CHECK(parse_record(head).has_value() == sound);
    }
    Record beyond = record;
    beyond.target = static_cast<Target>(4 + random() % 100);
    encode(beyond, head);
    CHECK(!parse_record(head));
    // Nothing at all has no place apart.
    Record empty = record;
    empty.header.bytes = 0;
    empty.target = Target::kGpuDirect;
    encode(empty, head);
    CHECK(!parse_record(head));
  }
  Head head{};
  CHECK(!parse_record(head));
  for (int i = 0; i < 2000; ++i) {  // Whatever it takes is sound.
    for (std::byte& byte : head) byte = static_cast<std::byte>(random());
    head[0] = std::byte{1}, head[1] = head[2] = head[3] = std::byte{0};
    const auto read = parse_record(head);
    if (read) CHECK(read->header.bytes <= net::kMostFrameBytes);
  }
}

TEST_CASE("a ticket is found again in a completion") {
  std::mt19937_64 random(Catch::rngSeed());
  for (int i = 0; i < 1000; ++i) {
    const Ticket ticket{.received = random() % 2 == 0,
                        .link = static_cast<std::uint32_t>(random() % (1U << 23)),
                        .pair = static_cast<std::uint32_t>(random() % 256),
                        .count = static_cast<std::uint32_t>(random())};
    const Ticket again = Ticket::of(ticket.number());
    CHECK(again.received == ticket.received);
    CHECK(again.link == ticket.link);
    CHECK(again.pair == ticket.pair);
    CHECK(again.count == ticket.count);
  }
}

TEST_CASE("a card is read as it was written") {
  const EndpointInfo info = an_endpoint_info();
  const auto read = parse_endpoint_info(encode(info));
  REQUIRE(read);
  CHECK(encode(*read) == encode(info));
  CHECK(read->host == "node7");
  CHECK(read->replica.address == 0xfedcba9876543210);
  CHECK(read->records.key == 0xffffffff);
  CHECK(read->gpudirect.address == 0x123456789abcdef0);
  CHECK(read->gpudirect.bytes == 9);
  CHECK(read->gpudirect.key == 10);
  CHECK(read->layer == kInfiniBand);
}

TEST_CASE("a card that was cut, lengthened or changed is refused or read within its bounds") {
  const Bytes whole = encode(an_endpoint_info());
  for (std::size_t length = 0; length < whole.size(); ++length)
    CHECK(!parse_endpoint_info(std::span(whole).first(length)));
  Bytes longer = whole;
  longer.emplace_back();
  CHECK(!parse_endpoint_info(longer));
  std::mt19937_64 random(Catch::rngSeed());
  for (int i = 0; i < 5000; ++i) {
    Bytes changed = whole;
    changed[random() % changed.size()] = static_cast<std::byte>(random());
    const auto read = parse_endpoint_info(changed);
    if (read) CHECK(encode(*read).size() <= 400);
  }
}

TEST_CASE("what kept a rank from having a card is told instead") {
  const auto read = parse_endpoint_info(encode(Error{Code::kSystem, "verbs: rxe0:1: no"}));
  REQUIRE(!read);
  CHECK(read.error().code == Code::kSystem);
  CHECK(read.error().what == "verbs: rxe0:1: no");
  const auto cut = parse_endpoint_info(encode(Error{Code::kSystem, std::string(5000, 'x')}));
  REQUIRE(!cut);
  CHECK(cut.error().what == std::string(kMostErrorText, 'x'));
}
