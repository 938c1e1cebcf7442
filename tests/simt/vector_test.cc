// Collectives of devices whose blocks differ in size.
#include <cuda_runtime_api.h>

#include <functional>
#include <random>

#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "tutti/cuda.h"

namespace tutti {
namespace {

using test::DeviceCluster;
using test::said;

using Counts = std::vector<std::size_t>;

/// Element `i` of the block from rank `from` to rank `to`; of all_gather and gather `to` is 0.
std::uint32_t element(std::size_t from, std::size_t to, std::size_t i) {
  return static_cast<std::uint32_t>((from * 31 + to) * 1000003 + i);
}

/// A buffer of blocks, each behind a gap, and where they are.
struct BlockBuffer {
  Counts counts, offsets;
  std::vector<std::uint32_t> data;  // As it should be.
  exec::CudaMemory memory;

  BlockBuffer(int device, Counts of, std::size_t gap,
              const std::function<std::uint32_t(std::size_t block, std::size_t i)>& value,
              bool filled)
      : counts(std::move(of)) {
    for (std::size_t block = 0; block < counts.size(); ++block) {
      data.resize(data.size() + gap);
      offsets.push_back(data.size());
      for (std::size_t i = 0; i < counts[block]; ++i) data.push_back(value(block, i));
    }
    auto made = exec::CudaMemory::allocate(device, data.size() * 4 + 4);
    if (!made) return;
    memory = *std::move(made);
    if (filled) static_cast<void>(memory.write(0, data.data(), data.size() * 4));
  }
  Blocks blocks(bool packed) const {
    return {counts, packed ? std::span<const std::size_t>() : offsets};
  }
  bool is_right() const {
    std::vector<std::uint32_t> got(data.size());
    return memory.read(0, got.data(), got.size() * 4) && got == data;
  }
};

/// A rank's part of an uneven collective, of which sizes[from][to] are the blocks.
struct Part {
  Request request;
  std::unique_ptr<BlockBuffer> input, output;
};

Part make_part(Collective collective, std::size_t me, Rank root, int device,
               const std::vector<Counts>& sizes, std::size_t gap) {
  const std::size_t ranks = sizes.size();
  const CollectiveTraits traits = traits_of(collective);
  const auto top = static_cast<std::size_t>(root.value);
  // What each rank has for all is the same for all.
  const auto size = [&](std::size_t from, std::size_t to) {
    return sizes[from][traits.input_each ? to : 0];
  };
  const auto value = [&](std::size_t from, std::size_t to, std::size_t i) {
    return element(from, traits.input_each ? to : 0, i);
  };
  Counts input, output;
  if (traits.input_each) {
    for (std::size_t to = 0; to < ranks; ++to) input.push_back(size(me, to));
  } else {
    input = {size(me, me)};
  }
  const std::size_t source = traits.root_input ? top : 0;
  if (traits.output_each) {
    for (std::size_t from = 0; from < ranks; ++from) output.push_back(size(from, me));
  } else {
    output = {size(source, me)};
  }
  if (traits.root_input && me != top) input.assign(input.size(), 0);
  if (traits.root_output && me != top) output.assign(output.size(), 0);
  Part part;
  part.input = std::make_unique<BlockBuffer>(
      device, input, gap, [&](std::size_t to, std::size_t i) { return value(me, to, i); }, true);
  part.output = std::make_unique<BlockBuffer>(
      device, output, gap,
      [&](std::size_t from, std::size_t i) {
        return value(traits.output_each ? from : source, me, i);
      },
      false);
  Request& request = part.request;
  request.collective = collective;
  request.type = DataType::kUint32;
  request.root = root;
  request.vector_variant = true;
  const bool packed = gap == 0;
  const std::size_t shift = packed ? 0 : gap * 4;  // Where a buffer of one block has it.
  request.input = part.input->memory.data() + (traits.input_each ? 0 : shift);
  request.output = part.output->memory.data() + (traits.output_each ? 0 : shift);
  if (traits.input_each && (!traits.root_input || me == top))
    request.input_blocks = part.input->blocks(packed);
  if (traits.output_each && (!traits.root_output || me == top))
    request.output_blocks = part.output->blocks(packed);
  if (!traits.input_each) request.count = size(me, me);
  if (!traits.output_each) request.count = size(source, me);
  return part;
}

constexpr Collective kCollectives[] = {Collective::kAllToAll, Collective::kAllGather,
                                       Collective::kGather, Collective::kScatter};

TEST_CASE("blocks of different sizes, from anywhere to anywhere, also in a group") {
  const auto seed = Catch::rngSeed();
  INFO("--rng-seed " << seed);
  std::mt19937_64 random(seed);
  const std::vector<int> devices = {0, 1, 0, 2};
  DeviceCluster cluster(devices);
  REQUIRE(cluster.complaint.empty());
  for (const Collective collective : kCollectives) {
    for (const std::size_t gap : {0, 3}) {
      std::vector<Counts> sizes(devices.size());
      for (Counts& of_rank : sizes) {
        for (std::size_t to = 0; to < devices.size(); ++to)
          of_rank.push_back(random() % 3 == 0 ? random() % 3 : random() % 4000);
      }
      const Rank root{static_cast<int>(random() % devices.size())};
      INFO(to_string(collective) << ", root " << root.value << ", gaps of " << gap);
      std::vector<Part> parts;
      for (std::size_t rank = 0; rank < devices.size(); ++rank)
        parts.push_back(
            make_part(collective, rank, root, cluster.comms[rank].device(), sizes, gap));
      {
        Group group;
        for (std::size_t rank = 0; rank < devices.size(); ++rank) {
          REQUIRE(cluster.comms[rank].prepare(parts[rank].request));
          REQUIRE(said(cluster.comms[rank].call(parts[rank].request, cluster.streams[rank])) == "");
        }
        REQUIRE(said(group.end()) == "");
      }
      for (std::size_t rank = 0; rank < devices.size(); ++rank) {
        REQUIRE(said(cudaStreamSynchronize(cluster.streams[rank])) == "");
        REQUIRE(said(cluster.comms[rank].check()) == "");
        CHECK(parts[rank].output->is_right());
        CHECK(parts[rank].input->is_right());
      }
    }
  }
}

TEST_CASE("the C API's uneven collectives") {
  setenv("TUTTI_LANES", "2", 1);
  tutti_device_comm_t comms[2] = {};
  const int devices[] = {test::device_of(0), test::device_of(1)};
  REQUIRE(tutti_device_comm_init_all(comms, devices, 2) == TUTTI_OK);
  unsetenv("TUTTI_LANES");
  const std::vector<Counts> sizes = {{30, 4000}, {0, 7}};
  for (const Collective collective : {Collective::kAllGather, Collective::kAllToAll}) {
    for (const std::size_t gap : {0, 5}) {
      std::vector<Part> parts;
      REQUIRE(tutti_group_start() == TUTTI_OK);
      for (std::size_t rank = 0; rank < 2; ++rank) {
        parts.push_back(make_part(collective, rank, Rank{0}, devices[rank], sizes, gap));
        const Request& asked = parts.back().request;
        const auto at = [](std::span<const std::size_t> list) {
          return list.empty() ? nullptr : list.data();
        };
        const Blocks &in = asked.input_blocks, &out = asked.output_blocks;
        const auto result =
            collective == Collective::kAllGather
                ? tutti_all_gather_v_on_stream(comms[rank], asked.input, asked.output,
                                               at(out.counts), at(out.offsets), TUTTI_UINT32,
                                               nullptr)
                : tutti_all_to_all_v_on_stream(comms[rank], asked.input, at(in.counts),
                                               at(in.offsets), asked.output, at(out.counts),
                                               at(out.offsets), TUTTI_UINT32, nullptr);
        CHECK(result == TUTTI_OK);
      }
      REQUIRE(tutti_group_end() == TUTTI_OK);
      for (std::size_t rank = 0; rank < 2; ++rank) {
        const exec::OnDevice on(devices[rank]);
        REQUIRE(said(cudaDeviceSynchronize()) == "");
        CHECK(tutti_device_comm_check(comms[rank]) == TUTTI_OK);
        CHECK(parts[rank].output->is_right());
      }
    }
  }
  CHECK(tutti_all_to_all_v_on_stream(comms[0], nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                                     TUTTI_UINT32, nullptr) == TUTTI_INVALID_ARGUMENT);
  for (tutti_device_comm_t comm : comms) CHECK(tutti_device_comm_destroy(comm) == TUTTI_OK);
}

TEST_CASE("uneven blocks can't be reduced, and have to be named") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint.empty());
  std::byte* somewhere = nullptr;
  REQUIRE(cudaMalloc(reinterpret_cast<void**>(&somewhere), 64) == cudaSuccess);
  Request request;
  request.collective = Collective::kReduceScatter;
  request.input = request.output = somewhere;
  request.vector_variant = true;
  const Status reduced = cluster.comms[0].call(request, cluster.streams[0]);
  REQUIRE(!reduced);
  CHECK(reduced.error().code == Code::kUnsupported);
  request.collective = Collective::kAllToAll;
  const Status unnamed = cluster.comms[0].call(request, cluster.streams[0]);
  REQUIRE(!unnamed);
  CHECK(unnamed.error().code == Code::kInvalidArgument);
  cudaFree(somewhere);
}

}  // namespace
}  // namespace tutti
