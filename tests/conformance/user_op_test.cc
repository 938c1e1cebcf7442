// Collectives by a program's own operation: the bits of the library's own operations, ranks in
// their order, elements of any size, and errors on all ranks.
#include "tutti/user_op.h"

#include <algorithm>
#include <array>
#include <complex>
#include <cstdint>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/transports.h"
#include "tutti/typed.h"

namespace tutti::test {
namespace {

using Body = std::function<std::string(Communicator&, int me)>;

void on_ranks(int ranks, const std::string& transport, const Body& body) {
  Settings settings;
  settings.transport = transport;
  auto comms = Communicator::in_process(ranks, settings);
  if (!comms) FAIL(comms.error().to_string());
  INFO(ranks << " ranks, " << transport);
  CHECK(on_all_ranks(*comms, [&](Communicator& comm) { return body(comm, comm.rank().value); }) ==
        "");
}

constexpr Collective kReducing[] = {Collective::kAllReduce, Collective::kReduce,
                                    Collective::kReduceScatter, Collective::kScan,
                                    Collective::kExclusiveScan};

Status call_by(Communicator& comm, Collective collective, const void* in, void* out,
               std::size_t count, const UserOp& op, Rank root) {
  switch (collective) {
    case Collective::kAllReduce: return all_reduce(comm, in, out, count, op);
    case Collective::kReduce: return reduce(comm, in, out, count, op, root);
    case Collective::kReduceScatter: return reduce_scatter(comm, in, out, count, op);
    case Collective::kScan: return scan(comm, in, out, count, op);
    default: return exclusive_scan(comm, in, out, count, op);
  }
}

/// A sum of floats, which rounds.
const UserOp kSum{sizeof(float), [](const void* lower, void* higher, std::size_t count, void*) {
                    const auto* low = static_cast<const float*>(lower);
                    auto* high = static_cast<float*>(higher);
                    for (std::size_t i = 0; i < count; ++i) high[i] = low[i] + high[i];
                  }};

TEST_CASE("a user's sum has the bits of the library's, in every collective") {
  for (const Transport* transport : transports_here()) {
    for (const int ranks : {1, 2, 3, 4, 7}) {
      on_ranks(ranks, std::string(transport->name), [&](Communicator& comm, int me) -> std::string {
        for (const Collective collective : kReducing) {
          for (const std::size_t count : {1, 5, 2000, 40001}) {
            const Case test{.collective = collective, .count = count, .ranks = ranks};
            Buffer in(test.input_bytes()), mine(test.output_bytes()), wanted(test.output_bytes());
            fill(test, me, count, in.data());
            const Rank root{ranks - 1};
            Status status = comm.call({.collective = collective,
                                       .input = in.data(),
                                       .output = wanted.data(),
                                       .count = count,
                                       .type = DataType::kFloat32,
                                       .root = root});
            if (status)
              status = call_by(comm, collective, in.data(), mine.data(), count, kSum, root);
            if (!status) return status.error().to_string();
            if (mine != wanted)
              return std::string(to_string(collective)) + " of " + std::to_string(count) +
                     " has other bits";
            if (traits_of(collective).input_each) continue;
            status = call_by(comm, collective, in.data(), in.data(), count, kSum, root);
            if (!status) return status.error().to_string();
            if (has_output(collective, me, root.value) && in != wanted) return "wrong in place";
          }
        }
        return "";
      });
    }
  }
}

/// x -> a x + b, modulo 2^16: (f then g) is not (g then f). 3 x 2 bytes, so that sizes are odd.
struct Affine {
  std::uint16_t a, b, calls;
  bool operator==(const Affine&) const = default;
};
Affine then(const Affine& f, const Affine& g) {
  const unsigned a = f.a, factor = g.a;  // An int would overflow.
  return {static_cast<std::uint16_t>(a * factor), static_cast<std::uint16_t>(factor * f.b + g.b),
          static_cast<std::uint16_t>(f.calls + g.calls)};
}
Affine given(int rank, std::size_t i) {
  const auto x = static_cast<std::size_t>(rank) * 977 + i;
  return {static_cast<std::uint16_t>(2 * x + 3), static_cast<std::uint16_t>(x * x + 1), 1};
}
std::vector<Affine> all_given(int rank, std::size_t count) {
  std::vector<Affine> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = given(rank, i);
  return all;
}
/// What ranks 0 to `ranks` - 1 give, in their order.
std::vector<Affine> composed(int ranks, std::size_t count) {
  std::vector<Affine> all = all_given(0, count);
  for (int rank = 1; rank < ranks; ++rank)
    for (std::size_t i = 0; i < count; ++i) all[i] = then(all[i], given(rank, i));
  return all;
}

TEST_CASE("lower ranks are to the left, in every collective") {
  for (const int ranks : {1, 2, 5, 6}) {
    on_ranks(ranks, "", [&](Communicator& comm, int me) -> std::string {
      for (const std::size_t count : {3, 700, 9001}) {
        const auto in = all_given(me, count), everyone = composed(ranks, count);
        std::vector<Affine> out(count), nothing;
        Status status = all_reduce(comm, in, out, then);
        if (!status) return status.error().to_string();
        if (out != everyone) return "all_reduce is wrong";
        std::vector<Affine> at_root(me == 0 ? count : 0);
        status = reduce(comm, in, at_root, then, Rank{0});
        if (!status) return status.error().to_string();
        if (me == 0 && at_root != everyone) return "reduce is wrong";
        status = scan(comm, in, out, then);
        if (!status) return status.error().to_string();
        if (out != composed(me + 1, count)) return "scan is wrong";
        status = exclusive_scan(comm, in, me == 0 ? nothing : out, then);
        if (!status) return status.error().to_string();
        if (me > 0 && out != composed(me, count)) return "exclusive_scan is wrong";

        const auto wide = static_cast<std::size_t>(ranks) * count;
        status = reduce_scatter(comm, all_given(me, wide), out, then);
        if (!status) return status.error().to_string();
        const auto whole = composed(ranks, wide);
        if (!std::equal(
                out.begin(), out.end(),
                whole.begin() + static_cast<std::ptrdiff_t>(count * static_cast<std::size_t>(me))))
          return "reduce_scatter is wrong";
      }
      return "";
    });
  }
}

TEST_CASE("complex numbers multiply, and the best of all is found") {
  struct Best {
    double value;
    std::int64_t where;
  };
  on_ranks(3, "", [](Communicator& comm, int me) -> std::string {
    using Complex = std::complex<double>;
    std::array<Complex, 2> factors{Complex(me + 1, 1), Complex(0, me)};
    Status status = all_reduce(comm, factors, factors, std::multiplies<Complex>());
    if (!status) return status.error().to_string();
    if (factors[0] != Complex(0, 10) || factors[1] != Complex(0, 0)) return "wrong product";
    const std::array<Best, 1> mine{Best{me == 1 ? 7.5 : -1.0 * me, me}};
    std::array<Best, 1> best{};
    status = all_reduce(comm, mine, best,
                        [](const Best& a, const Best& b) { return b.value > a.value ? b : a; });
    if (!status) return status.error().to_string();
    return best[0].value == 7.5 && best[0].where == 1 ? "" : "not the best";
  });
}

struct Large {
  std::array<std::int32_t, 5000> values;
};

TEST_CASE("elements that are large and fewer than the ranks are reduced by some of them") {
  on_ranks(5, "", [](Communicator& comm, int me) -> std::string {
    for (const std::size_t count : {1, 3}) {
      std::vector<Large> in(count), out(count);
      for (Large& one : in) one.values.fill(me + 1);
      int calls = 0;
      const auto add = [&](const Large& a, const Large& b) {
        ++calls;
        Large sum;
        std::ranges::transform(a.values, b.values, sum.values.begin(), std::plus<>());
        return sum;
      };
      Status status = all_reduce(comm, in, out, add);
      if (!status) return status.error().to_string();
      if (out.back().values[4999] != 15) return "the all-reduce is wrong";
      if (calls != (static_cast<std::size_t>(me) < count ? 4 : 0)) return "work was done twice";
      status = scan(comm, in, out, add);
      if (!status) return status.error().to_string();
      if (out.back().values[0] != (me + 1) * (me + 2) / 2) return "the scan is wrong";
    }
    return "";
  });
}

struct alignas(64) Wide {
  std::int32_t value;
};

TEST_CASE("blocks are aligned for elements that ask for 64 bytes") {
  on_ranks(3, "", [](Communicator& comm, int me) -> std::string {
    for (const std::size_t count : {3, 2000}) {
      bool aligned = true;
      std::vector<Wide> values(count, Wide{me});
      const auto add = [&](const Wide& a, const Wide& b) {
        for (const Wide* one : {&a, &b})
          aligned = aligned && reinterpret_cast<std::uintptr_t>(one) % alignof(Wide) == 0;
        return Wide{a.value + b.value};
      };
      const Status status = all_reduce(comm, values, values, add);
      if (!status) return status.error().to_string();
      if (!aligned) return "a block is not aligned";
      if (std::ranges::any_of(values, [](const Wide& one) { return one.value != 3; }))
        return "wrong";
    }
    return "";
  });
}

TEST_CASE("what can't be called is the caller's error, and nothing begins") {
  on_ranks(2, "", [](Communicator& comm, int) -> std::string {
    std::vector<float> in(8, 1), out(8);
    std::string wrong;
    const auto refuses = [&](std::string_view part, const Status& status) {
      if (status || status.error().code != Code::kInvalidArgument ||
          status.error().what.find(part) == std::string::npos)
        wrong += std::string(part) + ": " + (status ? "ok" : status.error().to_string()) + "\n";
    };
    refuses("all_reduce by a user operation: the operation has no function",
            all_reduce(comm, in.data(), out.data(), 8, UserOp{4, nullptr}));
    refuses("0 bytes", all_reduce(comm, in.data(), out.data(), 8, UserOp{0, kSum.combine}));
    refuses("no root 2 in 2", reduce(comm, in.data(), out.data(), 8, kSum, Rank{2}));
    refuses("no root -1 in 2", reduce(comm, in.data(), out.data(), 8, kSum, Rank{-1}));
    refuses("more than memory", scan(comm, in.data(), out.data(), SIZE_MAX / 8, kSum));
    refuses("more than memory", scan(comm, in.data(), out.data(), SIZE_MAX, kSum));
    refuses("null", all_reduce(comm, nullptr, out.data(), 8, kSum));
    refuses("null", all_reduce(comm, in.data(), nullptr, 8, kSum));
    {
      Group group;
      refuses("group", all_reduce(comm, in.data(), out.data(), 8, kSum));
      if (!group.end()) wrong += "the group failed\n";
    }
    std::vector<float> seven(7);
    refuses("8 elements and the output 7", all_reduce(comm, in, seven, std::plus<>()));
    refuses("needs 14", reduce_scatter(comm, in, seven, std::plus<>()));
    const Status nothing = all_reduce(comm, nullptr, nullptr, 0, kSum);
    if (!nothing) wrong += nothing.error().to_string();
    const Status works = all_reduce(comm, in, out, std::plus<>());
    if (!works || out[7] != 2) wrong += "it does not work afterwards\n";
    Communicator moved(std::move(comm));
    refuses("moved from", all_reduce(comm, in.data(), out.data(), 8, kSum));
    comm = std::move(moved);
    return wrong;
  });
}

TEST_CASE("an operation that throws ends the communicator on all ranks, by its rank") {
  for (const std::size_t count : {2, 50'000}) {
    on_ranks(3, "", [&](Communicator& comm, int me) -> std::string {
      std::vector<double> values(count, 1);
      const auto add = [&](double a, double b) {
        if (me == 1) throw std::range_error("too large,\nby far");
        return a + b;
      };
      Status status = all_reduce(comm, values, values, add);
      // Where each rank reduces all of it, the others may have theirs; the next call is over.
      if (status) status = comm.barrier();
      if (status) status = comm.barrier();
      if (status) return "it went well";
      const Error& error = status.error();
      const Code code = me == 1 ? Code::kSystem : Code::kAborted;
      const bool named = error.what.find("too large,") != std::string::npos;
      const bool one_line = error.what.find('\n') == std::string::npos;
      return error.code == code && named && one_line ? "" : error.to_string();
    });
  }
}

TEST_CASE("sizes that differ are a mismatch on all ranks") {
  on_ranks(2, "", [](Communicator& comm, int me) -> std::string {
    std::vector<float> values(10, 1);
    const std::size_t count = me == 0 ? 10 : 9;
    const Status status = all_reduce(comm, values.data(), values.data(), count, kSum);
    return !status && status.error().code == Code::kMismatch ? "" : "no mismatch";
  });
}

}  // namespace
}  // namespace tutti::test
