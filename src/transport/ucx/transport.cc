// UCX transport: ranks on any hosts, over whatever UCX knows ways through.
#include "transport/net/endpoint.h"
#include "transport/ucx/meeting.h"

namespace tutti {

constinit const Transport ucx_transport{
    .name = "ucx",
    .joins = "any ranks",
    .reach = [](const Peer&, const Peer&) { return true; },
    .open = [](const Opening& opening) { return net::open_endpoint(opening, "ucx", ucx::meet); },
    // TCP's figures, because the network below is not known when plans are chosen:
    // tcp/transport.cc.
    .network = {.link = {15, 1.2}, .message_us = 3},
    // With the headers of both it is a segment of TCP (worker.cc); what is longer waits for an
    // answer (rendezvous), or is put together once more from segments.
    .longest_slot = std::size_t{252} << 10};

}  // namespace tutti
