#include "transport/ucx/network.h"

#include <string>

#include "base/check.h"

namespace tutti::ucx {

UcxNetwork::UcxNetwork(std::unique_ptr<Worker> worker, const Key& key, int rank_count)
    : key_(key), carriers_(static_cast<std::size_t>(rank_count)), worker_(std::move(worker)) {}

Result<std::unique_ptr<UcxNetwork>> UcxNetwork::open(std::unique_ptr<Worker> worker, const Key& key,
                                                     int rank_count) {
  std::unique_ptr<UcxNetwork> network(new UcxNetwork(std::move(worker), key, rank_count));
  ucp_am_handler_param_t param{};
  param.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                     UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = 0;
  // Not UCP_AM_FLAG_PERSISTENT_DATA, with which UCX copies all that TCP brings once more.
  param.flags = UCP_AM_FLAG_WHOLE_MSG;
  param.cb = on_message;
  param.arg = network.get();
  const Library& library = network->worker_->library();
  const ucs_status_t status =
      library.ucp_worker_set_am_recv_handler(network->worker_->get(), &param);
  if (status != UCS_OK) {
    return Error{Code::kUnsupported,
                 std::string("ucx: UCX ") + library.ucp_get_version_string() +
                     " takes no active messages: " + library.ucs_status_string(status)};
  }
  return network;
}

UcxNetwork::~UcxNetwork() {
  for (const auto& carrier : carriers_) {
    if (carrier != nullptr) carrier->close();
  }
}

UcxCarrier& UcxNetwork::add(const Ends& ends) {
  auto& carrier = carriers_[static_cast<std::size_t>(ends.peer)];
  TUTTI_CHECK(carrier == nullptr);
  carrier = std::make_unique<UcxCarrier>(*worker_, ends);
  return *carrier;
}

void UcxNetwork::look(std::vector<bool>& ready) {
  worker_->progress();
  for (std::size_t rank = 0; rank < carriers_.size(); ++rank) {
    if (carriers_[rank] != nullptr && carriers_[rank]->stirred()) ready[rank] = true;
  }
}

ucs_status_t UcxNetwork::on_message(void* network, const void* header, std::size_t header_bytes,
                                    void* data, std::size_t bytes, const ucp_am_recv_param_t* how) {
  auto& self = *static_cast<UcxNetwork*>(network);
  const auto message = parse_message({static_cast<const std::byte*>(header), header_bytes},
                                     self.key_, bytes, static_cast<int>(self.carriers_.size()));
  UcxCarrier* const carrier = message ? self.carrier(message->from) : nullptr;
  if (carrier == nullptr) {
    ++self.unauthenticated_;
    return UCS_OK;
  }
  return carrier->take(*message, data, how->recv_attr);
}

}  // namespace tutti::ucx
