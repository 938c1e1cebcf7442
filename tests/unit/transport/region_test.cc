// Which parts of a region's memory are resident, and when.
#include "transport/region.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "support/catch.h"

namespace tutti {
namespace {

constexpr std::size_t kPage = 4096;

/// A file of the size of a region, mapped: nothing of it is resident before it is used.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_((bytes + kPage - 1) / kPage * kPage) {
    const int fd = memfd_create("region_test", MFD_CLOEXEC);
    REQUIRE(fd >= 0);
    REQUIRE(ftruncate(fd, static_cast<off_t>(bytes_)) == 0);
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    REQUIRE(data_ != MAP_FAILED);
  }
  ~Memory() { munmap(data_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const { return static_cast<std::byte*>(data_); }
  std::size_t resident() const {
    std::vector<unsigned char> pages(bytes_ / kPage);
    REQUIRE(mincore(data_, bytes_, pages.data()) == 0);
    std::size_t count = 0;
    for (const unsigned char page : pages) count += page & 1U;
    return count * kPage;
  }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

TEST_CASE("a region takes memory as it is used") {
  for (const int ranks : {2, 4, 8, 64}) {
    const RegionConfig config = Region::default_config(ranks);
    const Memory memory(Region::bytes_for(config));
    Region region(memory.data(), config);
    region.format();
    CAPTURE(ranks);
    CHECK(memory.resident() <= 2 * kPage);  // The header.
    *region.messages(0, 1).slots = std::byte{7};
    const std::size_t before = memory.resident();
    region.touch(1);
    const std::size_t touched = memory.resident() - before;
    CHECK(touched >= sizeof(CallLine) * kCallLines * kCalls);
    CHECK(touched < 128 * 1024);
    // All packets of that rank, and no more.
    region.touch_packets(1);
    const std::size_t packets = memory.resident() - before - touched;
    const std::size_t all = std::max(config.packet_slots * config.packet_bytes,
                                     config.long_packet_slots * config.long_packet_bytes);
    CHECK(packets + kPage >= all);
    CHECK(packets <= all + kPage);
    std::memset(region.packet(1, 0), 1, all);
    CHECK(memory.resident() <= before + touched + packets + kPage);
    // Neither changes what is there.
    region.touch(1);
    region.touch_packets(1);
    CHECK(*region.messages(0, 1).slots == std::byte{7});
    CHECK(*region.packet(1, 0) == std::byte{1});
  }
}

TEST_CASE("the error that ends a communicator is one line about ranks that there are") {
  const RegionConfig config = Region::default_config(2);
  const auto told = [&](const Error& error) {
    const Memory memory(Region::bytes_for(config));
    Region region(memory.data(), config);
    region.format();
    region.abort(error);
    return region.abort_error();
  };
  Error error = told({Code::kAborted, "out of\nmemory\x1b[2J at node\xc3\xa9", Rank{1}, Rank{}});
  CHECK(error.what == "out of?memory?[2J at node\xc3\xa9");
  CHECK(error.rank == Rank{1});
  CHECK(error.peer == Rank{1});
  // From a peer over a network these may be any numbers, and no text at all.
  error = told({static_cast<Code>(77), "", Rank{2}, Rank{-9}});
  CHECK(error.code == Code::kAborted);
  CHECK(error.what == "no reason was given");
  CHECK(error.rank == Rank{-1});
  CHECK(error.peer == Rank{-1});
}

}  // namespace
}  // namespace tutti
