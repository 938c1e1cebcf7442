// Blocks of different sizes: every collective that has a block for each rank, on every transport,
// mapped or not, with gaps between blocks, blocks out of order, empty blocks, in place, started.
#include <array>
#include <map>
#include <numeric>

#include "algorithms/algorithm.h"
#include "support/catch.h"
#include "support/cluster.h"
#include "support/transports.h"
#include "transport/transport.h"

namespace tutti::test {
namespace {

constexpr Collective kCollectives[] = {Collective::kAllGather, Collective::kReduceScatter,
                                       Collective::kAllToAll, Collective::kGather,
                                       Collective::kScatter};
using Element = std::int32_t;
constexpr Element kUntouched = -77;
using Counts = std::vector<std::size_t>;

struct VectorCase {
  Collective collective = Collective::kAllToAll;
  int ranks = 1;
  int root = 0;
  bool mapped = false, in_place = false, started = false, packed = false;
  std::vector<Counts> sizes;  // [giver][getter]
  std::uint64_t seed = 0;
  std::string to_string() const {
    return std::string(tutti::to_string(collective)) + "_v, " + std::to_string(ranks) +
           " ranks, root " + std::to_string(root) + (mapped ? ", mapped" : "") +
           (in_place ? ", in place" : "") + (started ? ", started" : "") +
           (packed ? ", packed" : "") + ", seed " + std::to_string(seed);
  }
};

VectorCase random_case(std::mt19937_64& random, Collective collective, int ranks) {
  VectorCase test;
  test.collective = collective;
  test.ranks = ranks;
  test.root = static_cast<int>(random() % static_cast<unsigned>(ranks));
  test.mapped = random() % 2 == 0;
  test.started = random() % 4 == 0;
  test.packed = random() % 2 == 0;
  test.seed = random();
  const CollectiveTraits traits = traits_of(collective);
  test.in_place = random() % 2 == 0 && !(traits.input_each && traits.output_each);
  const auto n = static_cast<std::size_t>(ranks);
  const auto size = [&] {
    constexpr std::size_t kMost[] = {1, 1, 20, 3000, 20000};
    return random() % kMost[random() % std::size(kMost)];  // Often nothing at all.
  };
  Counts of_block(n);
  for (std::size_t& count : of_block) count = size();
  test.sizes.assign(n, Counts(n));
  for (std::size_t from = 0; from < n; ++from) {
    for (std::size_t to = 0; to < n; ++to) {
      std::size_t& count = test.sizes[from][to];
      if (traits.input_each && traits.output_each) {
        count = size();
      } else if (traits.input_each) {
        count = of_block[to];
      } else {
        count = of_block[from];
      }
    }
  }
  return test;
}

Element value(int giver, int getter, std::size_t index) {
  return static_cast<Element>(giver * 1000003 + getter * 10007 + static_cast<int>(index));
}

/// Places for blocks: one after another, or in any order with gaps.
Counts places(const Counts& counts, bool packed, std::mt19937_64& random) {
  std::vector<std::size_t> order(counts.size());
  std::iota(order.begin(), order.end(), 0);
  if (!packed) std::shuffle(order.begin(), order.end(), random);
  Counts offsets(counts.size());
  std::size_t at = 0;
  for (const std::size_t block : order) {
    if (!packed) at += random() % 5;
    offsets[block] = at;
    at += counts[block];
  }
  return offsets;
}

std::size_t end_of(const Counts& counts, const Counts& offsets) {
  std::size_t end = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) end = std::max(end, offsets[i] + counts[i]);
  return end;
}

/// What is wrong with a rank's output; empty: nothing.
std::string compare(const VectorCase& test, int me, const Element* out, std::size_t out_size,
                    const Counts& out_counts, const Counts& out_at) {
  const CollectiveTraits traits = traits_of(test.collective);
  const auto wrong = [&](std::size_t at, Element want) {
    return out[at] == want ? ""
                           : test.to_string() + ": rank " + std::to_string(me) + " has " +
                                 std::to_string(out[at]) + " at " + std::to_string(at) +
                                 ", should have " + std::to_string(want);
  };
  std::string complaint;
  std::vector<bool> covered(out_size);
  for (std::size_t from = 0; from < out_counts.size(); ++from) {
    if (traits.root_input && static_cast<int>(from) != test.root) continue;
    const std::size_t at = traits.output_each ? out_at[from] : 0;
    for (std::size_t i = 0; i < out_counts[from] && complaint.empty(); ++i) {
      Element want = 0;
      for (int giver = 0; traits.reduces() && giver < test.ranks; ++giver)
        want += value(giver, me, i);
      if (!traits.reduces()) want = value(static_cast<int>(from), traits.input_each ? me : 0, i);
      complaint = wrong(at + i, want);
      covered[at + i] = true;
    }
  }
  for (std::size_t at = 0; at < out_size && complaint.empty() && !test.in_place; ++at) {
    if (!covered[at]) complaint = wrong(at, kUntouched);  // Gaps stay as they are.
  }
  return complaint;
}

std::string run_vector(Communicator& comm, const VectorCase& test) {
  const int me = comm.rank().value;
  const auto mine = static_cast<std::size_t>(me), n = static_cast<std::size_t>(test.ranks);
  const CollectiveTraits traits = traits_of(test.collective);
  const bool gives = !traits.root_input || me == test.root;
  const bool gets = !traits.root_output || me == test.root;
  // Every rank lays its buffers out as it likes.
  std::mt19937_64 random(test.seed + mine);
  Counts in_counts = test.sizes[mine], out_counts(n);
  for (std::size_t from = 0; from < n; ++from) out_counts[from] = test.sizes[from][mine];
  const Counts in_at = places(in_counts, test.packed, random);
  const Counts out_at = places(out_counts, test.packed, random);
  const std::size_t one_in = test.sizes[mine][0], one_out = test.sizes[0][mine];
  const std::size_t in_size = traits.input_each ? end_of(in_counts, in_at) : one_in;
  const std::size_t out_size = traits.output_each ? end_of(out_counts, out_at) : one_out;
  const Memory memory((in_size + out_size) * sizeof(Element), test.mapped, 0);
  const Memory other(in_size * sizeof(Element), test.mapped, 4);
  auto* out = reinterpret_cast<Element*>(memory.data());
  auto* in = reinterpret_cast<Element*>(other.data());
  std::fill(out, out + in_size + out_size, kUntouched);
  if (test.in_place && gives && gets) {
    if (traits.output_each)
      in = out + out_at[mine];
    else
      in = out, out = in + in_at[mine];
  }
  for (std::size_t to = 0; gives && to < (traits.input_each ? n : 1); ++to) {
    const std::size_t at = traits.input_each ? in_at[to] : 0;
    for (std::size_t i = 0; i < in_counts[to]; ++i)
      in[at + i] = value(me, traits.input_each ? static_cast<int>(to) : 0, i);
  }
  Request request{.collective = test.collective,
                  .input = gives ? in : nullptr,
                  .output = gets ? out : nullptr,
                  .count = traits.input_each ? one_out : one_in,
                  .type = DataType::kInt32,
                  .reduction = ReduceOp::kSum,
                  .root = Rank{test.root},
                  .vector_variant = true};
  if (traits.input_each) request.input_blocks = {in_counts, in_at};
  if (traits.output_each) request.output_blocks = {out_counts, out_at};
  if (test.packed) request.input_blocks.offsets = request.output_blocks.offsets = {};
  Status status;
  if (test.started) {
    auto work = comm.start(request);
    in_counts.assign(n, 0), out_counts.assign(n, 0);  // The lists were copied.
    status = work ? work->wait() : Status(work.error());
    out_counts = {};
    for (std::size_t from = 0; from < n; ++from) out_counts.push_back(test.sizes[from][mine]);
  } else {
    status = comm.call(request);
  }
  if (!status) return test.to_string() + ": " + status.error().to_string();
  return gets ? compare(test, me, out, out_size, out_counts, out_at) : "";
}

TEST_CASE("blocks of different sizes arrive where they belong") {
  const std::uint64_t seed = Catch::rngSeed();
  std::mt19937_64 random(seed);
  for (const Transport* transport : transports_here()) {
    for (const int ranks : {1, 2, 3, 5, 8}) {
      INFO(transport->name << ", " << ranks << " ranks, --rng-seed " << seed);
      Settings settings;
      settings.transport = transport->name;
      settings.slot_bytes = std::size_t{64} << random() % 8;
      settings.lanes = 1 + static_cast<int>(random() % 2);
      auto comms = Communicator::in_process(ranks, settings);
      REQUIRE(comms);
      const std::uint64_t cases = random();
      CHECK(on_all_ranks(*comms, [&](Communicator& comm) {
              std::mt19937_64 order(cases);  // The same on every rank.
              for (int i = 0; i < 120; ++i) {
                const Collective collective = kCollectives[order() % std::size(kCollectives)];
                const VectorCase test = random_case(order, collective, ranks);
                if (auto wrong = run_vector(comm, test); !wrong.empty()) return wrong;
                // Even calls between them.
                if (order() % 4 == 0) {
                  const Case even{.collective = static_cast<Collective>(order() % kCollectiveCount),
                                  .count = 1 + order() % 300,
                                  .ranks = ranks};
                  if (auto wrong = run_case(comm, even, order()); !wrong.empty()) return wrong;
                }
              }
              return std::string();
            }) == "");
      leave(*comms);
    }
  }
}

TEST_CASE("every algorithm takes blocks of different sizes, or says that it can't") {
  std::mt19937_64 random(Catch::rngSeed());
  std::map<Collective, bool> some_take_any;
  for (const Algorithm* algorithm : algorithms()) {
    const CollectiveTraits traits = traits_of(algorithm->collective);
    if (!traits.input_each && !traits.output_each) continue;
    for (const int ranks : {2, 5}) {
      Settings settings;
      settings.algorithm =
          std::string(to_string(algorithm->collective)) + "=" + std::string(algorithm->name);
      settings.contract = Contract::kRelaxed;
      settings.slot_bytes = 256;
      settings.groups = {2};
      INFO(settings.algorithm << ", " << ranks << " ranks, --rng-seed " << Catch::rngSeed());
      if (!algorithm->applies({algorithm->collective, ranks, 0, 2})) continue;
      auto comms = Communicator::in_process(ranks, settings);
      REQUIRE(comms);
      const std::uint64_t cases = random();
      const std::string complaint = on_all_ranks(*comms, [&](Communicator& comm) {
        std::mt19937_64 order(cases);
        for (int i = 0; i < 10; ++i) {
          const VectorCase test = random_case(order, algorithm->collective, ranks);
          if (auto wrong = run_vector(comm, test); !wrong.empty()) return wrong;
        }
        return std::string();
      });
      const bool refused = complaint.find("so all blocks must be of one size") != std::string::npos;
      if (!refused) CHECK(complaint == "");
      some_take_any[algorithm->collective] |= !refused;
    }
  }
  for (const auto& [collective, some] : some_take_any) {
    INFO(to_string(collective));
    CHECK(some);
  }
}

TEST_CASE("ranks choose alike though their blocks differ, also where the usual way is forbidden") {
  const Counts counts{10, 50'000, 3, 700'000};
  for (const char* forbidden : {"^direct", "^packet"}) {
    Settings settings;
    settings.algorithm = forbidden;
    auto comms = Communicator::in_process(4, settings);
    REQUIRE(comms);
    CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
            const auto mine = static_cast<std::size_t>(comm.rank().value);
            const std::vector<Element> in(counts[mine], static_cast<Element>(mine));
            std::vector<Element> out(750'013, kUntouched);
            for (int i = 0; i < 3; ++i) {
              const Status status =
                  comm.all_gather_v(in.data(), out.data(), {counts, {}}, DataType::kInt32);
              if (!status) return status.error().to_string();
            }
            std::size_t at = 0;
            for (std::size_t rank = 0; rank < counts.size(); ++rank) {
              for (std::size_t end = at + counts[rank]; at < end; ++at) {
                if (out[at] != static_cast<Element>(rank)) return "wrong at " + std::to_string(at);
              }
            }
            return "";
          }) == "");
  }
}

TEST_CASE("ranks that see a block's size differently are told so") {
  for (const Transport* transport : transports_here()) {
    Settings settings;
    settings.transport = transport->name;
    auto comms = Communicator::in_process(2, settings);
    REQUIRE(comms);
    std::array<std::string, 2> errors;
    CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
            const bool first = comm.rank().value == 0;
            const std::vector<Element> in(10);
            std::vector<Element> out(10);
            const Counts gives = first ? Counts{1, 5} : Counts{2, 3};
            const Counts gets = first ? Counts{1, 2} : Counts{4, 3};  // 4: should be 5.
            const Status status =
                comm.all_to_all_v(in.data(), {gives, {}}, out.data(), {gets, {}}, DataType::kInt32);
            errors[first ? 0 : 1] = status ? "" : status.error().to_string();
            return status ? "no error" : "";
          }) == "");
    // The rank that sees it first says it to all.
    CHECK(errors[0].find("both ends of a block must give it the same count") != std::string::npos);
    CHECK(errors[1].find("both ends of a block must give it the same count") != std::string::npos);
  }
}

TEST_CASE("ranks that gather blocks of other sizes than the others are told so, small and large") {
  struct Other {
    Counts first, second;
  };
  for (const auto& [first, second] :
       {Other{{1, 2, 3}, {1, 2, 4}}, Other{{0, 0, 0}, {1, 0, 0}}, Other{{900, 2, 3}, {900, 1, 3}},
        Other{{1, 2, 3}, {1, 90'000, 3}}, Other{{90'000, 2, 3}, {90'000, 1, 3}}}) {
    const Counts& most = first;
    const Counts& other = second;
    auto comms = Communicator::in_process(3);
    REQUIRE(comms);
    std::vector<Error> errors(3);
    CHECK(on_all_ranks(*comms, [&](Communicator& comm) -> std::string {
            const auto rank = static_cast<std::size_t>(comm.rank().value);
            const std::vector<Element> in(90'000);
            std::vector<Element> out(200'000);
            const Status status = comm.all_gather_v(
                in.data(), out.data(), {rank == 1 ? other : most, {}}, DataType::kInt32);
            if (!status) errors[rank] = status.error();
            return status ? "no error" : "";
          }) == "");
    for (const Error& error : errors) {
      CHECK(error.code == Code::kMismatch);
      CHECK_THAT(error.what, Catch::Contains("count"));
    }
  }
}

TEST_CASE("bad block lists are refused before anything is sent") {
  auto comms = Communicator::in_process(1);
  REQUIRE(comms);
  Communicator& comm = (*comms)[0];
  Element data[4] = {};
  const Counts one{1}, two{1, 1}, huge{SIZE_MAX};
  const auto error = [](const Status& status) { return status ? "" : status.error().what; };
  CHECK(error(comm.all_gather_v(data, data + 1, {two, {}}, DataType::kInt32)) ==
        "all_gather_v: the output has 2 counts and 0 offsets, there are 1 ranks");
  CHECK(error(comm.all_gather_v(data, data + 1, {one, two}, DataType::kInt32)) ==
        "all_gather_v: the output has 1 counts and 2 offsets, there are 1 ranks");
  CHECK(error(comm.all_gather_v(data, data + 1, {one, huge}, DataType::kInt32)) ==
        "all_gather_v: the output block of rank 0 ends beyond all memory");
  CHECK(error(comm.reduce_scatter_v(nullptr, {one, {}}, data, DataType::kInt32, ReduceOp::kSum)) ==
        "reduce_scatter_v: the input buffer is null, but not empty");
  CHECK(error(comm.all_to_all_v(data, {one, {}}, data, {one, {}}, DataType::kInt32)) ==
        "all_to_all_v: input and output are the same; blocks that differ in size can't change "
        "places");
  CHECK(error(comm.scatter_v(data, {one, {}}, data + 1, 1, DataType::kInt32, Rank{1})) ==
        "scatter: root 1 is not one of the 1 ranks");
  CHECK(error(comm.call({.collective = Collective::kAllGather,
                         .input = data,
                         .output = data + 1,
                         .count = 2,
                         .type = DataType::kInt32,
                         .vector_variant = true,
                         .output_blocks = {one, {}}})) ==
        "all_gather_v: this rank's own block has 1 elements in the output, but the count is 2");
  CHECK(error(comm.call({.collective = Collective::kAllReduce, .vector_variant = true})) ==
        "all_reduce_v: no buffer of this collective has a block for each rank");
}

}  // namespace
}  // namespace tutti::test
