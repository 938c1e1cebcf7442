#include "transport/ucx/worker.h"

#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string_view>

namespace tutti::ucx {
namespace {

// The bytes that TCP sends and receives at once: a network's slot with all headers. With UCX's 8
// KiB a slot goes by a rendezvous, which waits for an answer. All-reduce between two namespaces,
// 256 KiB against 64, each with slots that fit: 64 KiB 0.53 of the time, 1 MiB 0.76, 64 MiB 0.77
// (medians of 3 rounds in turns, 2026-11-22).
constexpr const char* kTcpSegment = "256k";

/// The value of an option that UCX got from the environment or its own file, or its default.
std::string option(const Library& library, const ucp_config_t* config, const std::string& name) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const file = open_memstream(&text, &size);
  if (file == nullptr) return {};
  library.ucp_config_print(config, file, nullptr, UCS_CONFIG_PRINT_CONFIG);
  std::fclose(file);
  const std::string all(text, size);
  std::free(text);
  const auto at = all.find(name + "=");
  if (at == std::string::npos) return {};
  const auto begin = at + name.size() + 1;
  return all.substr(begin, all.find('\n', begin) - begin);
}

/// Whether UCX has TCP among its transports (UCX_TLS), and an interface for it (UCX_NET_DEVICES).
bool takes_tcp(const std::string& transports, std::string_view devices) {
  const bool named = transports.find("tcp") != std::string::npos;
  if (transports.starts_with('^') ? named : !named && transports.find("all") == std::string::npos)
    return false;
  while (!devices.empty()) {  // RDMA devices have a port: "mlx5_0:1".
    const auto one = devices.substr(0, devices.find(','));
    if (one.find(':') == std::string_view::npos) return true;
    devices.remove_prefix(std::min(devices.size(), one.size() + 1));
  }
  return false;
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::open(const Library& library, const std::string& devices) {
  std::unique_ptr<Worker> worker(new Worker(library));
  ucs_status_t status = worker->open_context(devices);
  if (status == UCS_OK) status = worker->open_worker();
  if (status == UCS_OK) return worker;
  return Error{Code::kSystem,
               std::string("ucx: no worker of UCX ") + library.ucp_get_version_string() +
                   " with the devices " + devices + ": " + library.ucs_status_string(status) +
                   "; UCX_LOG_LEVEL=info tells more, ucx_info -d what UCX finds here"};
}

ucs_status_t Worker::open_context(const std::string& devices) {
  ucp_config_t* config = nullptr;
  ucs_status_t status = library_.ucp_config_read(nullptr, nullptr, &config);
  if (status != UCS_OK) return status;
  const auto set = [&](const char* name, const char* value) {
    if (status == UCS_OK) status = library_.ucp_config_modify(config, name, value);
  };
  std::string chosen = option(library_, config, "UCX_NET_DEVICES");
  if (chosen == "all") {
    chosen = devices;
    set("NET_DEVICES", devices.c_str());
  }
  // UCX complains of an option that none of its transports has.
  if (takes_tcp(option(library_, config, "UCX_TLS"), chosen)) {
    set("TX_SEG_SIZE", kTcpSegment);
    set("RX_SEG_SIZE", kTcpSegment);
  }
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_MT_WORKERS_SHARED;
  params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.mt_workers_shared = 0;
  if (status == UCS_OK)
    status = library_.ucp_init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  library_.ucp_config_release(config);
  return status;
}

ucs_status_t Worker::open_worker() {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_FLAGS;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  // Requests of broken connections may be left; nothing can mend that.
  params.flags = UCP_WORKER_FLAG_IGNORE_REQUEST_LEAK;
  ucs_status_t status = library_.ucp_worker_create(context_, &params, &worker_);
  if (status != UCS_OK) return status;
  status = library_.ucp_worker_get_efd(worker_, &events_);
  if (status != UCS_OK) return status;
  closed_in_child_.emplace(events_);
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  status = library_.ucp_worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return status;
  const auto* const first = reinterpret_cast<const std::byte*>(address);
  address_.assign(first, first + bytes);
  library_.ucp_worker_release_address(worker_, address);
  return UCS_OK;
}

Worker::~Worker() {
  closed_in_child_.reset();
  if (worker_ != nullptr) library_.ucp_worker_destroy(worker_);
  if (context_ != nullptr) library_.ucp_cleanup(context_);
}

void Worker::sleep(std::chrono::nanoseconds longest) {
  // Refused: something has happened that progress() has not yet told of.
  if (library_.ucp_worker_arm(worker_) != UCS_OK) return;
  pollfd source{events_, POLLIN, 0};
  const timespec span{static_cast<time_t>(longest.count() / 1'000'000'000),
                      static_cast<long>(longest.count() % 1'000'000'000)};
  ::ppoll(&source, 1, &span, nullptr);
}

ucs_status_t Worker::finish(ucs_status_ptr_t request, std::chrono::steady_clock::time_point until) {
  if (request == nullptr) return UCS_OK;
  if (UCS_PTR_IS_ERR(request)) return UCS_PTR_RAW_STATUS(request);
  ucs_status_t status = UCS_INPROGRESS;
  while ((status = library_.ucp_request_check_status(request)) == UCS_INPROGRESS &&
         std::chrono::steady_clock::now() < until)
    progress();
  library_.ucp_request_free(request);
  return status;
}

}  // namespace tutti::ucx
