// Any bytes as a flight record: what is read is bounded, and can be described. The input stands for
// three copies of a track that is being written: they differ where its last byte says.
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "exec/flight/reader.h"

namespace {

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

bool is_printable(const std::string& text) {
  for (const char c : text) {
    if (c < ' ' || c > '~') return false;
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::exec::flight;
  const std::size_t changes = size == 0 ? 0 : data[size - 1];
  std::size_t copies = 0;
  // Behind the input, the file has its bytes again and again.
  const Copy copy = [&](std::uint64_t offset, std::span<std::byte> to) {
    if (size == 0 || offset + to.size() > kFileBytes) return false;
    ++copies;
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = static_cast<std::byte>(data[(offset + i) % size]);
    if (changes != 0 && copies % changes == 0) to[copies % to.size()] ^= std::byte{1};
    return true;
  };
  // A file has many tracks of these bytes; one is enough.
  const auto track = read_track(copy, {1'000'000'000, 2'000'000'000});
  if (!track) return 0;
  require(track->rank >= 0 && track->rank < track->ranks, "a rank that no communicator has");
  require(track->entries.size() <= kEntries, "more entries than there are");
  require(is_printable(track->host + track->job + track->transport), "a text of other characters");
  std::uint64_t last = 0;
  for (const Seen& seen : track->entries) {
    require(seen.number > last, "entries out of order");
    last = seen.number;
    require(seen.state.awaited < track->ranks, "waits for a rank that is none");
    require(seen.end_ns == 0 || seen.end_ns >= seen.begin_ns, "ends before it begins");
    require(is_printable(describe(seen) + seen.plan), "a call of other characters");
    require(!to_string(seen.state.at).empty() && !outcome_name(seen.state).empty(), "no name");
  }
  return 0;
}
