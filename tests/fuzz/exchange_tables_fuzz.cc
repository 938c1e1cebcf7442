// The tables by which ranks exchange what set-up needs, from a rank that says anything: those of
// the rendezvous (bootstrap/exchange.cc), those over a communicator (comm/exchange_over.h), and
// rank 0's tuning (comm/tuning.h).
//
// The first byte chooses one. Checked: each rank gets one contribution of bounded size or an error
// of one line with a rank to blame that exists.
#include <cstring>

#include "comm/exchange_over.h"
#include "comm/tuning.h"
#include "fuzz/frames.h"

namespace {

using namespace tutti;
using tutti::fuzz::require;

constexpr int kRanks = 3;

/// Has the attacker's bytes under every key but this rank's own.
class Attacker final : public Rendezvous {
 public:
  Attacker(std::span<const std::byte> bytes, Rank me, bool knows_nonce)
      : bytes_(bytes.begin(), bytes.end()),
        own_("phase/" + std::to_string(me.value)),
        knows_nonce_(knows_nonce) {}
  Status put(std::string_view key, std::span<const std::byte> value) override {
    if (key == own_) mine_.emplace(value.begin(), value.end());
    return ok();
  }
  Result<Bytes> get(std::string_view key, Deadline) override {
    if (key == own_ && mine_) return *mine_;
    if (key == own_ || bytes_.empty()) return Error{Code::kTimeout, "nothing is there"};
    return knows_nonce_ ? with_nonce() : bytes_;
  }
  Status fail(const Error& error) override {
    check(error);
    return ok();
  }
  static void check(const Error& error) {
    require(error.code != Code::kOk && !error.what.empty(), "an error that says nothing");
    require(error.peer.value >= -1 && error.peer.value < kRanks, "a rank that there is not");
  }

 private:
  /// The table with the nonce of what this rank put, where its entry would be if all others gave
  /// nothing: an attacker who has seen it.
  Bytes with_nonce() const {
    constexpr std::size_t kNonceAt = 8, kEntryAt = 8 + 16, kNonceBytes = 8;
    Bytes bytes = bytes_;
    if (mine_ && bytes.size() >= kEntryAt + kNonceBytes)
      std::memcpy(bytes.data() + kEntryAt, mine_->data() + kNonceAt, kNonceBytes);
    return bytes;
  }
  Bytes bytes_;
  std::string own_;
  std::optional<Bytes> mine_;
  bool knows_nonce_;
};

void check_rendezvous(std::span<const std::byte> bytes, Rank me, bool knows_nonce) {
  Attacker attacker(bytes, me, knows_nonce);
  const Bytes mine(10, std::byte{1});
  const auto all =
      exchange(attacker, me, kRanks, "phase", mine, Deadline{std::chrono::steady_clock::now()});
  if (!all) return Attacker::check(all.error());
  require(all->size() == kRanks, "a contribution of each rank");
  std::size_t total = 0;
  for (const Bytes& one : *all) total += one.size();
  require(total <= kRanks * bytes.size() + mine.size(), "more than was said");
}

/// Rank 1 says the first eight bytes, and gives the others.
void check_over(std::span<const std::byte> bytes) {
  static auto comms = [] {
    Settings settings;
    settings.transport = "in_process";
    return *Communicator::in_process(2, settings);
  }();
  const Bytes mine(10, std::byte{1});
  std::uint64_t said = 0;
  if (bytes.size() < sizeof(said)) return;
  std::memcpy(&said, bytes.data(), sizeof(said));
  bytes = bytes.subspan(sizeof(said));
  constexpr std::uint64_t kNothing = ~std::uint64_t{0}, kIsError = std::uint64_t{1} << 62;
  constexpr std::size_t kMost = std::size_t{1} << 20;
  const std::uint64_t count = said == kNothing ? 0 : said & ~kIsError;
  std::array<std::uint64_t, 2> all_said{};
  auto first = comms[1].start_all_gather(&said, all_said.data(), 1, DataType::kUint64);
  std::vector<std::byte> sent(std::max<std::size_t>(mine.size(), count <= kMost ? count : 0));
  std::vector<std::byte> got(2 * sent.size());
  std::copy_n(bytes.begin(), std::min(bytes.size(), sent.size()), sent.begin());
  Result<Work> second = count <= kMost ? comms[1].start_all_gather(sent.data(), got.data(),
                                                                   sent.size(), DataType::kUint8)
                                       : Work{};
  const auto all = exchange_over(comms[0], mine);
  require(first && first->wait(), "the first gather fails");
  require(count > kMost || (second && second->wait()), "the second gather fails");
  if (!all) {
    require(!all.error().what.empty(), "an error that says nothing");
    return;
  }
  require(count <= kMost && all->size() == 2 && (*all)[0].bytes == mine, "another contribution");
  const SetUp& theirs = (*all)[1];
  require(!theirs.bytes || theirs.bytes->size() == count, "another size than was said");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto bytes = std::as_bytes(std::span(data + 1, size - 1));
  switch (data[0] % 5) {
    case 0: check_rendezvous(bytes, Rank{0}, false); break;
    case 1: check_rendezvous(bytes, Rank{1}, false); break;
    case 2: check_rendezvous(bytes, Rank{1}, true); break;
    case 3: check_over(bytes); break;
    default:
      if (const auto tuning = unpack_tuning(bytes); !tuning)
        require(!tuning.error().what.empty(), "an error that says nothing");
      break;
  }
  return 0;
}
