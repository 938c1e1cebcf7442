#include "devices/device_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <limits>

namespace tutti::python {
namespace {

// The functions of the library that are called.
#define TUTTI_EACH(X)                     \
  X(get_version)                          \
  X(last_error)                           \
  X(get_unique_id)                        \
  X(device_comm_init_rank_within)         \
  X(device_comm_split)                    \
  X(device_comm_destroy)                  \
  X(device_comm_abort)                    \
  X(device_comm_check)                    \
  X(device_comm_rank)                     \
  X(device_comm_describe)                 \
  X(device_comm_use_wire)                 \
  X(cuda_relaxed_capture)                 \
  X(cuda_is_capturing)                    \
  X(all_reduce_on_stream)                 \
  X(all_reduce_pre_mul_sum_on_stream)     \
  X(reduce_scatter_on_stream)             \
  X(reduce_scatter_pre_mul_sum_on_stream) \
  X(reduce_on_stream)                     \
  X(reduce_pre_mul_sum_on_stream)         \
  X(all_gather_on_stream)                 \
  X(all_gather_v_on_stream)               \
  X(broadcast_on_stream)                  \
  X(gather_on_stream)                     \
  X(scatter_on_stream)                    \
  X(all_to_all_on_stream)                 \
  X(all_to_all_v_on_stream)               \
  X(send_on_stream)                       \
  X(recv_on_stream)

#define TUTTI_TEXT(text) TUTTI_TEXT_(text)
#define TUTTI_TEXT_(text) #text
constexpr char kName[] =
    "libtutti.so." TUTTI_TEXT(TUTTI_VERSION_MAJOR) "." TUTTI_TEXT(TUTTI_VERSION_MINOR);

struct Library {
#define TUTTI_MEMBER(name) decltype(&::tutti_##name) name = nullptr;
  TUTTI_EACH(TUTTI_MEMBER)
#undef TUTTI_MEMBER
};

Error unsupported(const std::string& what) { return {Code::kUnsupported, what, {}, {}}; }

Result<Library> open_library() {
  const std::string remedy =
      "; CUDA tensors need Tutti built with CUDA and installed where libraries are looked for "
      "(python/README.md)";
  void* const handle = dlopen(kName, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) return unsupported(std::string(dlerror()) + remedy);
  Library library;
  const char* missing = nullptr;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(handle, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
#define TUTTI_FIND(name) find("tutti_" #name, library.name);
  TUTTI_EACH(TUTTI_FIND)
#undef TUTTI_FIND
  if (missing != nullptr)
    return unsupported(std::string(kName) + " has no " + missing +
                       ": it is another version, or built " + "without CUDA" + remedy);
  if (const int version = library.get_version(); version != TUTTI_VERSION_NUMBER)
    return unsupported(std::string(kName) + " is version " + std::to_string(version) +
                       ", this module " + std::to_string(TUTTI_VERSION_NUMBER) + remedy);
  return library;
}

/// Once in a process; it is never unloaded.
const Result<Library>& library() {
  static const auto& one = *new Result<Library>(open_library());
  return one;
}
/// For callers that have a communicator of it: it is open.
const Library& loaded() { return *library(); }

/// "rank 1: timeout: all_reduce: ..." as the Error that it was.
Status status_of(const Library& from, tutti_result_t result) {
  if (result == TUTTI_OK) return ok();
  Error error{static_cast<Code>(result), from.last_error(), {}, {}};
  const std::string name = ": " + std::string(to_string(error.code)) + ": ";
  int rank = -1;
  if (std::sscanf(error.what.c_str(), "rank %d", &rank) == 1) error.rank = Rank{rank};
  if (const auto found = error.what.find(name); found != std::string::npos)
    error.what.erase(0, found + name.size());
  else if (error.what.rfind(name.substr(2), 0) == 0)
    error.what.erase(0, name.size() - 2);
  return error;
}

int number(DataType type) { return static_cast<int>(type); }
int number(ReduceOp op) { return static_cast<int>(op); }

tutti_result_t reduce(const Library& api, tutti_device_comm_t comm, const Request& of,
                      void* stream) {
  const bool scaled = of.reduction.op == ReduceOp::kPreMulSum;
  const int type = number(of.type), op = number(of.reduction.op), root = of.root.value;
  const double scale = of.reduction.scale;
  switch (of.collective) {
    case Collective::kAllReduce:
      return scaled
                 ? api.all_reduce_pre_mul_sum_on_stream(comm, of.input, of.output, of.count, type,
                                                        scale, stream)
                 : api.all_reduce_on_stream(comm, of.input, of.output, of.count, type, op, stream);
    case Collective::kReduceScatter:
      return scaled ? api.reduce_scatter_pre_mul_sum_on_stream(comm, of.input, of.output, of.count,
                                                               type, scale, stream)
                    : api.reduce_scatter_on_stream(comm, of.input, of.output, of.count, type, op,
                                                   stream);
    default:
      return scaled ? api.reduce_pre_mul_sum_on_stream(comm, of.input, of.output, of.count, type,
                                                       scale, root, stream)
                    : api.reduce_on_stream(comm, of.input, of.output, of.count, type, op, root,
                                           stream);
  }
}

}  // namespace

Result<Bytes> DeviceComm::make_id() {
  if (!library()) return Error(library().error());
  tutti_unique_id_t id;
  TUTTI_RETURN_IF_ERROR(status_of(loaded(), loaded().get_unique_id(&id)));
  const auto* bytes = reinterpret_cast<const std::byte*>(id.bytes);
  return Bytes(bytes, bytes + sizeof id.bytes);
}

Result<DeviceComm> DeviceComm::join(const Bytes& id, Rank me, int ranks, int device,
                                    std::chrono::milliseconds timeout) {
  if (!library()) return Error(library().error());
  tutti_unique_id_t copy;
  if (id.size() != sizeof copy.bytes)
    return Error{Code::kMismatch, "another rank's id of the devices' job has another size", me, {}};
  std::memcpy(copy.bytes, id.data(), sizeof copy.bytes);
  constexpr std::int64_t kMostMs = std::numeric_limits<int>::max();
  const auto limit = static_cast<int>(std::clamp<std::int64_t>(timeout.count(), 1, kMostMs));
  tutti_device_comm_t comm = nullptr;
  TUTTI_RETURN_IF_ERROR(status_of(loaded(), loaded().device_comm_init_rank_within(
                                                &comm, &copy, me.value, ranks, device, limit)));
  return DeviceComm(comm);
}

void DeviceComm::relaxed(const std::function<void()>& body) {
  const auto call = [](void* data) { (*static_cast<const std::function<void()>*>(data))(); };
  static_cast<void>(loaded().cuda_relaxed_capture(call, const_cast<std::function<void()>*>(&body)));
}

bool DeviceComm::is_capturing(void* stream) {
  int capturing = 0;
  return loaded().cuda_is_capturing(stream, &capturing) == TUTTI_OK && capturing != 0;
}

Result<DeviceComm> DeviceComm::twin() const {
  int rank = 0;
  TUTTI_RETURN_IF_ERROR(status_of(loaded(), loaded().device_comm_rank(comm_.get(), &rank)));
  tutti_device_comm_t comm = nullptr;
  TUTTI_RETURN_IF_ERROR(
      status_of(loaded(), loaded().device_comm_split(comm_.get(), 0, rank, &comm)));
  return DeviceComm(comm);
}

Status DeviceComm::call_vector(const Request& of, void* stream) const {
  const Library& api = loaded();
  const int type = number(of.type);
  const std::size_t *gives = of.input_blocks.counts.data(), *gets = of.output_blocks.counts.data();
  switch (of.collective) {
    case Collective::kAllGather:
      return status_of(api, api.all_gather_v_on_stream(comm_.get(), of.input, of.output, gets,
                                                       nullptr, type, stream));
    case Collective::kAllToAll:
      return status_of(api, api.all_to_all_v_on_stream(comm_.get(), of.input, gives, nullptr,
                                                       of.output, gets, nullptr, type, stream));
    default: return unsupported("blocks of CUDA tensors that are reduced have to be of one size");
  }
}

Status DeviceComm::call(const Request& of, void* stream) const {
  if (of.vector_variant) return call_vector(of, stream);
  const Library& api = loaded();
  const tutti_device_comm_t comm = comm_.get();
  const int type = number(of.type), root = of.root.value;
  const auto call = [&]() -> tutti_result_t {
    switch (of.collective) {
      case Collective::kAllGather:
        return api.all_gather_on_stream(comm, of.input, of.output, of.count, type, stream);
      case Collective::kBroadcast:
        return api.broadcast_on_stream(comm, of.input, of.output, of.count, type, root, stream);
      case Collective::kGather:
        return api.gather_on_stream(comm, of.input, of.output, of.count, type, root, stream);
      case Collective::kScatter:
        return api.scatter_on_stream(comm, of.input, of.output, of.count, type, root, stream);
      case Collective::kAllToAll:
        return api.all_to_all_on_stream(comm, of.input, of.output, of.count, type, stream);
      default: return reduce(api, comm, of, stream);
    }
  };
  if (of.wire.is_plain()) return status_of(api, call());
  // A wire is the communicator's in C; one thread at a time calls it.
  TUTTI_RETURN_IF_ERROR(status_of(api, api.device_comm_use_wire(comm, to_string(of.wire).c_str())));
  Status status = status_of(api, call());
  TUTTI_RETURN_IF_ERROR(status_of(api, api.device_comm_use_wire(comm, nullptr)));
  return status;
}

Status DeviceComm::send(const void* data, std::size_t bytes, Rank to, void* stream) const {
  return status_of(
      loaded(), loaded().send_on_stream(comm_.get(), data, bytes, TUTTI_UINT8, to.value, stream));
}
Status DeviceComm::recv(void* data, std::size_t bytes, Rank from, void* stream) const {
  return status_of(
      loaded(), loaded().recv_on_stream(comm_.get(), data, bytes, TUTTI_UINT8, from.value, stream));
}
Status DeviceComm::check() const {
  return status_of(loaded(), loaded().device_comm_check(comm_.get()));
}
void DeviceComm::abort(const std::string& reason) const {
  loaded().device_comm_abort(comm_.get(), reason.c_str());
}
std::string DeviceComm::describe() const {
  std::size_t needed = 0;
  loaded().device_comm_describe(comm_.get(), nullptr, 0, &needed);
  std::string text(needed, '\0');
  loaded().device_comm_describe(comm_.get(), text.data(), text.size(), &needed);
  text.resize(std::strlen(text.c_str()));
  return text;
}

void DeviceComm::Destroy::operator()(tutti_device_comm_t comm) const {
  loaded().device_comm_destroy(comm);
}

}  // namespace tutti::python
