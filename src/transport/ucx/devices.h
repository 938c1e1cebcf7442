// File: transport/ucx/devices.h: which network devices UCX may use.
//
// By itself UCX takes every interface for one that reaches every host, container bridges among
// them. So it is told which: the interfaces that the transport tcp would take
// (base/net/interfaces.h), and the ports of RDMA devices.
#pragma once
#include <string>
#include <string_view>

#include "tutti/result.h"

namespace tutti::ucx {

/// As UCX_NET_DEVICES wants it, "eth0,mlx5_0:1". `rule`: Settings::net_interfaces; it also picks
/// the RDMA devices, by the interfaces that belong to them. Errors as those of
/// tcp::choose_addresses. `root` stands before /sys, for tests.
Result<std::string> choose_devices(std::string_view rule, bool one_host,
                                   const std::string& root = "");

}  // namespace tutti::ucx
