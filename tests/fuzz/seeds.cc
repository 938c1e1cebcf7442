// Writes the seeds of the fuzz targets for frames, records and tables, with the library's own
// encoders, so that a fuzzer begins where real ranks end.
//
//   fuzz_seeds FOLDER            writes FOLDER/<target>/<seed>
//   fuzz_seeds --check FOLDER    exit code 1 if a file there differs or is missing: a format has
//                                changed, and its seeds have to be written anew
#include <arpa/inet.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <random>

#include <fmt/format.h>

#include "comm/tuning.h"
#include "comm/window_service.h"
#include "fuzz/frames.h"
#include "fuzz/replicator_calls.h"
#include "tools/run/orders.h"
#include "transport/tcp/endpoint_info.h"
#include "transport/verbs/endpoint_info.h"
#include "transport/verbs/record.h"
#include "transport/verbs/renewal_message.h"
#if __has_include("ucp/api/ucp.h")
#include "transport/ucx/meeting.h"
#include "transport/ucx/message.h"
#endif

namespace {

using namespace tutti;
using namespace tutti::fuzz;

/// By target and name.
using Seeds = std::map<std::string, std::string>;

/// Every frame that rank 1 sends to rank 0 in a script's calls.
std::string replicator_seed(std::size_t script) {
  const auto plans = std::make_shared<test::OneAlgorithm>("", kRanks);
  std::vector<test::Frame> sent;
  test::Ranks ranks({.region = small_region(), .eager_limit_bytes = eager_limits()}, plans, 1);
  ranks.slowness().least = 1;
  ranks.copy_frames(1, 0, sent);
  const Calls mine = calls_of(script, 0), theirs = calls_of(script, 1);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    ranks[0].begin(mine[i]->call);
    ranks[1].begin(theirs[i]->call);
    require(ranks.finish([](std::size_t) {}).empty(), "a call of a seed fails");
  }
  if (script == kScripts - 1) {
    test::Buffer memory[kRanks];
    for (std::size_t i = 0; i < kMessages.size(); ++i) {
      exec::Message messages[kRanks];
      exec::MessageBatch batches[kRanks];
      for (int me = 0; me < kRanks; ++me) {
        messages[me] = message_of(i, me, memory[me]);
        batches[me].messages = std::span(&messages[me], 1);
        ranks[me].messages().post(batches[me]);
      }
      while (batches[0].open != 0 || batches[1].open != 0) {
        for (int me = 0; me < kRanks; ++me) ranks[me].messages().poll();
      }
      for (int me = 0; me < kRanks; ++me) ranks[me].messages().retire(batches[me]);
    }
  }
  std::string input(1, static_cast<char>(script));
  for (const test::Frame& frame : sent) append(input, 0, frame.header, frame.payload);
  return input;
}

/// Frames spread over three rails, in an order that they may arrive in: rails overtake each other.
std::string rails_seed(bool breaks) {
  // As rails_fuzz.cc's marks and rails.cc's own kinds.
  constexpr std::uint8_t kSend = 4, kFull = 8, kBreak = 16, kRenew = 32, kLong = 64;
  constexpr std::uint16_t kAcknowledge = 0xff00, kLost = 0xff01, kConfirmLost = 0xff02;
  constexpr std::uint16_t kRenewal = 0xff04;
  std::string input(1, 2);
  const std::vector<std::byte> payload(2000, std::byte{5});
  const auto add = [&](std::uint8_t mark, const net::FrameHeader& header) {
    append(input, mark, header, std::span(payload).first(header.bytes));
  };
  const auto frame = [&](std::uint32_t order, std::uint8_t mark, std::uint32_t bytes) {
    add(mark, {.bytes = bytes,
               .kind = static_cast<std::uint16_t>(1 + order % 3),
               .position = order,
               .order = order});
  };
  for (const std::uint32_t order : {0U, 2U, 1U, 3U, 6U, 5U, 4U})
    frame(order, static_cast<std::uint8_t>(order % 3), order % 2 == 0 ? 40 : 1500);
  add(kSend, {.kind = kAcknowledge});
  add(kSend | kLong, {.kind = kAcknowledge});
  add(0, {.kind = kAcknowledge, .acked = 2});
  if (breaks) {
    frame(8, 1, 40);  // It came before its turn by a rail that is lost, and comes again.
    add(1 | kBreak, {.kind = kAcknowledge});
    add(0, {.kind = kLost, .channel = 1});
    add(0, {.kind = kConfirmLost, .channel = 1});
    add(2, {.bytes = 48, .kind = kRenewal, .channel = 1});
    frame(7, 2, 40);
    frame(8, 2, 40);
    add(1 | kRenew, {.kind = kAcknowledge});
    frame(9, 1, 1500);
  }
  frame(breaks ? 10 : 7, kFull | 2, 700);
  return input;
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Frames one after another with a byte on top that says nothing.
std::string stream_seed() {
  std::string input("\x03\x01", 2);
  const std::vector<std::byte> payload(9000, std::byte{6});
  std::uint64_t position = 0;
  for (const std::uint32_t bytes : {0U, 8U, 128U, 129U, 4096U, 9000U, 1U}) {
    const auto head =
        net::encode(net::FrameHeader{.bytes = bytes, .kind = 4, .position = ++position});
    input += text_of(head) + text_of(std::span(payload).first(bytes));
  }
  return input;
}

/// Records by both queue pairs: short and long frames, credit, and the end.
std::string verbs_records_seed() {
  std::string input;
  const std::vector<std::byte> payload(400, std::byte{6});
  std::uint32_t sequence = 0;
  const auto add = [&](std::uint8_t how, verbs::Record record) {
    record.header.sequence = sequence;
    if (record.what != verbs::What::kCredit) ++sequence;
    std::array<std::byte, verbs::kRecordHeadBytes> head{};
    verbs::encode(record, head);
    input += static_cast<char>(how);
    input += text_of(head);
    if (record.target == verbs::Target::kRecord)
      input += text_of(std::span(payload).first(record.header.bytes));
  };
  // As verbs_records_fuzz.cc has them.
  constexpr std::uint8_t kFull = 4, kSend = 8, kSendLong = 16;
  add(0, {.header = {.bytes = 40, .kind = 1}});
  add(1, {.target = verbs::Target::kNear,
          .offset = 512,
          .header = {.bytes = 3000, .kind = 2, .position = 512}});
  add(kSend, {.header = {.bytes = 400, .kind = 2, .position = 100}});
  add(1 | kSendLong, {.target = verbs::Target::kReplica,
                      .offset = 64,
                      .header = {.bytes = 2000, .kind = 2, .position = 64}});
  add(0, {.what = verbs::What::kCredit, .consumed = {1, 0, 0, 0}, .header = {.kind = 1}});
  add(kFull, {.header = {.bytes = 0, .kind = 1}});
  add(0, {.what = verbs::What::kBye, .header = {.kind = 1}});
  return input;
}

/// Messages by which queue pairs are made anew: a request twice, one of a later attempt, responses.
std::string verbs_renewal_messages_seed() {
  constexpr std::uint8_t kRequester = 32;  // As verbs_records_fuzz.cc has them.
  constexpr std::uint16_t kRenewal = 0xff04;
  std::string input;
  std::uint32_t sequence = 0;
  const auto add = [&](std::uint8_t how, const verbs::RenewalMessage& message) {
    constexpr std::size_t kBytes = verbs::kRenewalMessageBytes;
    std::array<std::byte, verbs::kRecordHeadBytes> head{};
    std::array<std::byte, kBytes> payload{};
    verbs::encode({.header = {.bytes = kBytes, .kind = kRenewal, .sequence = sequence++}}, head);
    verbs::encode(message, payload);
    input += static_cast<char>(how);
    input += text_of(head) + text_of(payload);
  };
  verbs::RenewalMessage message{
      .type = verbs::RenewalMessage::Type::kRequest,
      .serial = 1,
      .from = {.gid = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 99, 0, 2},
               .mtu = IBV_MTU_1024},
      .psn = 77,
      .pairs = 2,
      .numbers = {300, 301, 0, 0}};
  add(0, message);
  add(1, message);
  message.serial = 2;
  add(0, message);
  message.type = verbs::RenewalMessage::Type::kResponse;
  message.serial = 1;
  add(kRequester, message);
  add(kRequester, message);
  return input;
}

void add_endpoint_infos(Seeds& seeds) {
  tcp::EndpointInfo tcp_info{.host = "node7", .addresses = {}};
  seeds["endpoint_info/tcp_no_address"] = '\0' + text_of(tcp::encode(tcp_info));
  for (const auto& [interface, address] :
       std::map<std::string, SocketAddress>{{"eth0", ipv4_address({htonl(0x0a000007)}, 4711)},
                                            {"lo", ipv4_address({htonl(0x7f000001)}, 4712)}}) {
    tcp::InterfaceAddress one;
    one.interface = interface;
    one.address = address;
    one.prefix_bits = 24;
    one.speed_mbps = 10'000;
    tcp_info.addresses.push_back(one);
  }
  seeds["endpoint_info/tcp"] = '\0' + text_of(tcp::encode(tcp_info));
  // One address more than there may be: the last one twice.
  while (tcp_info.addresses.size() < tcp::kMostAddresses)
    tcp_info.addresses.push_back(tcp_info.addresses.back());
  std::string many = text_of(tcp::encode(tcp_info));
  tcp_info.addresses.pop_back();
  many += many.substr(text_of(tcp::encode(tcp_info)).size());
  ++many[1 + tcp_info.host.size()];
  seeds["endpoint_info/tcp_too_many"] = '\0' + many;
  const verbs::EndpointInfo verbs_info{.host = "node7",
                                       .device = "mlx5_0:1",
                                       .address = "10.0.0.7",
                                       .gid = {},
                                       .lid = 7,
                                       .layer = verbs::kRoce,
                                       .mtu = IBV_MTU_4096,
                                       .near = {4096, 8192, 1},
                                       .replica = {16'384, 8192, 2},
                                       .records = {32'768, 65'536, 3},
                                       .gpudirect = {}};
  seeds["endpoint_info/verbs"] = '\1' + text_of(verbs::encode(verbs_info));
  seeds["endpoint_info/verbs_error"] =
      '\1' + text_of(verbs::encode(Error{Code::kSystem, "verbs: no memory"}));
#if __has_include("ucp/api/ucp.h")
  const ucx::Key key{std::byte{1}, std::byte{2}};
  seeds["endpoint_info/ucx"] =
      '\2' +
      text_of(ucx::encode(ucx::EndpointInfo{0x10011, "node7", key, Bytes(70, std::byte{9})}));
  for (const ucx::What what : {ucx::What::kFrame, ucx::What::kHello, ucx::What::kBye}) {
    const ucx::Message message{.from = 2, .what = what, .header = {.bytes = 64, .kind = 4}};
    seeds["endpoint_info/ucx_message_" + std::to_string(static_cast<int>(what))] =
        '\3' + text_of(ucx::encode(message, key));
  }
#endif
}

/// Keeps what is put.
class Notebook final : public Rendezvous {
 public:
  Status put(std::string_view key, std::span<const std::byte> value) override {
    values[std::string(key)] = Bytes(value.begin(), value.end());
    return ok();
  }
  Result<Bytes> get(std::string_view key, Deadline) override {
    const auto found = values.find(std::string(key));
    return found == values.end() ? Result<Bytes>(Error{Code::kTimeout, "nothing"}) : found->second;
  }
  Status fail(const Error&) override { return ok(); }
  std::map<std::string, Bytes> values;
};

/// The first bytes are as exchange_tables_fuzz.cc chooses by them.
void add_exchange_tables(Seeds& seeds) {
  Notebook notes;
  const Bytes mine(10, std::byte{1});
  const Deadline now{std::chrono::steady_clock::now()};
  // The others first: each waits for rank 0's table in vain.
  for (const int rank : {1, 2, 0}) (void)exchange(notes, Rank{rank}, 3, "phase", mine, now);
  // Nonce, process and host are this run's.
  Bytes& contribution = notes.values["phase/1"];
  std::fill(contribution.begin() + 8, contribution.begin() + 88, std::byte{});
  seeds["exchange_tables/contribution"] = '\0' + text_of(notes.values["phase/1"]);
  seeds["exchange_tables/table"] = '\1' + text_of(notes.values["phase/all"]);
  // As if rank 0 gave nothing: then this rank's entry is where an attacker would put it.
  Bytes table = notes.values["phase/all"];
  table[8 + 8] = std::byte{0};
  table.erase(table.begin() + 24, table.begin() + 34);
  seeds["exchange_tables/table_of_attacker"] = '\2' + text_of(table);
  for (const auto& [name, said] : std::map<std::string, std::uint64_t>{
           {"bytes", 12}, {"nothing", ~std::uint64_t{0}}, {"too_long", std::uint64_t{1} << 21}}) {
    seeds["exchange_tables/over_" + name] =
        '\3' + text_of(std::as_bytes(std::span(&said, 1))) + std::string(12, 'x');
  }
  Tuning tuning;
  tuning.source = "a file";
  tuning.reason = "none";
  seeds["exchange_tables/tuning"] = '\4' + text_of(pack_tuning(tuning));
  seeds["exchange_tables/tuning_error"] =
      '\4' + text_of(pack_tuning(Error{Code::kInvalidArgument, "a broken file"}));
}

void add_agent_orders(Seeds& seeds) {
  tools::AgentOrders orders{.directory = "/opt",
                            .environment = {"TUTTI_LOG=info", "EMPTY="},
                            .grace_seconds = 2.5,
                            .job = {}};
  orders.job.program = {"./program", "--flag", "a word"};
  orders.job.rank_count = 8;
  orders.job.first_rank = 4;
  orders.job.local_rank_count = 4;
  orders.job.name = "job";
  orders.job.secret = "secret";
  orders.job.rendezvous = "node1:29500";
  seeds["agent_orders/second_host"] = encode(orders);
  orders.job.local_rank_count = 9;
  seeds["agent_orders/too_many_ranks"] = encode(orders);
  orders.job.local_rank_count = 4;
  orders.job.first_rank = -1;
  seeds["agent_orders/negative_rank"] = encode(orders);
}

/// A frame that comes once more, and then so many that its number comes round.
std::string rails_seed_twice() {
  std::string input(1, 2);
  const auto add = [&](std::uint32_t order) {
    append(input, 0, {.kind = 2, .position = order, .order = order}, {});
  };
  for (const std::uint32_t order : {0U, 1U, 0U}) add(order);
  for (std::uint32_t order = 2; order < 300; ++order) add(order);
  return input;
}

/// Frames that come in parts, while frames of other rails come, and one that comes again after its
/// rail was lost in the middle of it. `lies`: another frame has the number of one that is coming.
std::string rails_seed_in_parts(bool lies) {
  constexpr std::uint8_t kBreak = 16, kPart = 128;  // As rails_fuzz.cc's marks.
  constexpr std::uint16_t kAcknowledge = 0xff00, kLost = 0xff01, kConfirmLost = 0xff02;
  std::string input(1, 2);
  const std::vector<std::byte> payload(40, std::byte{7});
  const auto add = [&](std::uint8_t mark, const net::FrameHeader& header) {
    append(input, mark, header, std::span(payload).first(header.bytes));
  };
  const auto frame = [&](std::uint8_t mark, std::uint32_t order, std::uint16_t kind) {
    add(mark, {.bytes = 40, .kind = kind, .position = order, .order = order});
  };
  frame(kPart | 1, 2, 1);  // On the shelf.
  if (lies) {
    frame(kPart | 2, 2, 2);
    add(1, {.kind = kAcknowledge});
    frame(0, 0, 2);
    frame(0, 1, 2);
    return input;
  }
  frame(kPart | 0, 0, 1);
  add(kBreak | 0, {.kind = kAcknowledge});
  add(2, {.kind = kLost, .channel = 0});
  add(2, {.kind = kConfirmLost, .channel = 0});
  frame(kPart | 2, 0, 1);
  add(1, {.kind = kAcknowledge});
  frame(1, 1, 2);
  frame(2, 3, 3);
  return input;
}

/// Requests to a window, and answers to what its rank asks (window_requests_fuzz.cc).
void add_window_requests(Seeds& seeds) {
  using Kind = WindowRequest::Kind;
  const auto add = [&](const char* name, std::uint8_t asked, std::vector<WindowRequest> requests) {
    std::string& input = seeds[std::string("window_requests/") + name];
    input += static_cast<char>(asked);
    for (const WindowRequest& request : requests) {
      input += static_cast<char>(3);
      input.append(reinterpret_cast<const char*>(&request), sizeof(request));
    }
  };
  constexpr auto kType = static_cast<std::uint8_t>(DataType::kInt32);
  constexpr auto kOp = static_cast<std::uint8_t>(ReduceOp::kSum);
  add("all_kinds", 0,
      {{.kind = Kind::kPut, .offset = 8, .bytes = 8},
       {.kind = Kind::kPut, .offset = 100, .bytes = 30'000},
       {.kind = Kind::kAccumulate, .type = kType, .op = kOp, .offset = 4, .bytes = 20'000},
       {.kind = Kind::kFetchAdd, .offset = 16, .bytes = 8, .ticket = 1},
       {.kind = Kind::kCompareSwap, .offset = 24, .bytes = 8, .ticket = 2},
       {.kind = Kind::kGet, .offset = 0, .bytes = 20'000, .ticket = 3},
       {.kind = Kind::kGet, .offset = 39'999, .bytes = 1, .ticket = 4},
       {.kind = Kind::kSignal, .number = 63},
       {.kind = Kind::kFlush, .ticket = 5},
       {.kind = Kind::kBye}});
  const WindowRequest small{.kind = Kind::kData, .bytes = 20, .ticket = 1};
  const WindowRequest large{.kind = Kind::kData, .bytes = 200, .ticket = 1};
  add("answer", 20, {small, {.kind = Kind::kFlush}});
  add("long_answer", 200, {large, {.kind = Kind::kFlush}});
  add("two_answers", 20, {small, small});
  add("two_long_answers", 200, {large, large});
  add("over", 0, {{.kind = Kind::kBye}, {.kind = Kind::kOver}});
}

Seeds all_seeds() {
  Seeds seeds;
  seeds["rails/twice"] = rails_seed_twice();
  seeds["rails/in_parts"] = rails_seed_in_parts(false);
  seeds["rails/two_ways"] = rails_seed_in_parts(true);
  seeds["stream/frames"] = stream_seed();
  seeds["verbs_records/all_kinds"] = verbs_records_seed();
  seeds["verbs_records/renewal_messages"] = verbs_renewal_messages_seed();
  add_endpoint_infos(seeds);
  add_exchange_tables(seeds);
  add_agent_orders(seeds);
  add_window_requests(seeds);
  std::mt19937 random(50);  // Its numbers are the same everywhere.
  for (int i = 0; i < 48; ++i) {
    std::string& choices = seeds[fmt::format("differential/choices_{:02}", i)];
    for (int byte = 0; byte < 48; ++byte) choices += static_cast<char>(random());
  }
  seeds["rails/overtaking"] = rails_seed(false);
  seeds["rails/lost_and_back"] = rails_seed(true);
  for (std::size_t script = 0; script < kScripts; ++script)
    seeds["replicator/script_" + std::to_string(script)] = replicator_seed(script);
  return seeds;
}

std::string read(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The part of a seed that is alike in every run: calls carry addresses and CPUs.
std::string outline(const std::string& name, const std::string& seed) {
  if (name.starts_with("exchange_tables/table")) return seed.substr(0, 9);  // Then nonces.
  if (!name.starts_with("replicator/") || seed.empty()) return seed;
  std::string headers(1, seed[0]);
  for (Frames frames(std::as_bytes(std::span(seed).subspan(1))); frames.front() != nullptr;
       frames.next())
    append(headers, frames.front()->mark, frames.front()->header, {});
  return headers;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::string_view kUsage = "fuzz_seeds [--check] FOLDER\n";
  const bool check = argc == 3 && std::string_view(argv[1]) == "--check";
  const std::string_view last = argc > 1 ? argv[argc - 1] : "";
  if (argc == 2 && (last == "--help" || last == "-h")) {
    std::cout << kUsage;
    return 0;
  }
  // A mistyped option would become a folder full of seeds.
  if ((argc != 2 && !check) || last.empty() || last.starts_with('-')) {
    std::cerr << kUsage;
    return 2;
  }
  const std::filesystem::path folder = last;
  int different = 0;
  for (const auto& [name, bytes] : all_seeds()) {
    const auto path = folder / name;
    if (!check) {
      std::filesystem::create_directories(path.parent_path());
      std::ofstream(path, std::ios::binary) << bytes;
    } else if (outline(name, read(path)) != outline(name, bytes)) {
      std::cerr << path.string() << " is not what the encoders write now: fuzz_seeds "
                << folder.string() << " writes it anew\n";
      different = 1;
    }
  }
  return different;
}
