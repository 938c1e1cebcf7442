// File: topology/probe/sources/cuda_json.cc: CUDA's answers in a capture.
#include "topology/probe/sources/cuda.h"
#include "topology/probe/sources/driver_json.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostGpus = 256;
constexpr int kUnknown = 2;

struct Flag {
  const char* key;
  std::optional<bool> CudaGpu::*member;
};
constexpr Flag kFlags[] = {{"multicast", &CudaGpu::multicast},
                           {"fabric_handles", &CudaGpu::fabric_handles},
                           {"gpudirect_rdma", &CudaGpu::gpudirect_rdma},
                           {"dma_buf", &CudaGpu::dma_buf}};

CudaGpu gpu_from_json(const Json& object) {
  CudaGpu gpu;
  get(object, "index", gpu.index);
  std::string bus;
  get(object, "bus", bus);
  gpu.bus = parse_bus(bus);
  get(object, "sm", gpu.sm);
  get(object, "host_numa", gpu.host_numa);
  for (const auto& [key, member] : kFlags) {
    const auto found = object.find(key);
    if (found != object.end() && found->is_boolean()) gpu.*member = found->get<bool>();
  }
  gpu.access = get_list(object, "access", kMostGpus, kUnknown);
  gpu.atomics = get_list(object, "atomics", kMostGpus, kUnknown);
  return gpu;
}

}  // namespace

std::string cuda_to_json(const Result<CudaFacts>& answer) {
  if (!answer) return absent_to_json(answer.error());
  Json gpus = Json::array();
  for (const CudaGpu& gpu : answer->gpus) {
    Json object = {{"index", gpu.index},         {"bus", gpu.bus},       {"sm", gpu.sm},
                   {"host_numa", gpu.host_numa}, {"access", gpu.access}, {"atomics", gpu.atomics}};
    for (const auto& [key, member] : kFlags) {
      if (gpu.*member) object[key] = *(gpu.*member);
    }
    gpus.push_back(std::move(object));
  }
  return text_of({{"version", answer->version}, {"gpus", gpus}});
}

Result<CudaFacts> cuda_from_json(std::string_view text, std::string_view source) {
  TUTTI_TRY(const Json whole, parse_answers(text, source, "gpus", kMostGpus));
  CudaFacts facts;
  get(whole, "version", facts.version);
  for (const Json& gpu : whole["gpus"]) facts.gpus.push_back(gpu_from_json(gpu));
  return facts;
}

}  // namespace tutti::topology
