#include "transport/tcp/endpoint_info.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "base/bytes.h"

namespace tutti::tcp {
namespace {

constexpr std::uint8_t kIpv4 = 4, kIpv6 = 6;
constexpr std::size_t kMostAddressBytes = 1 + kMostInterfaceBytes + 1 + 16 + 2 + 1 + 4;
constexpr int kMostSpeed = 100'000'000;  // 100 Tbit/s.

bool is_printable(char c) { return c > 0x20 && c < 0x7f; }

std::string printable(std::string text, std::size_t most) {
  text.resize(std::min(text.size(), most));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return !is_printable(c); }, '?');
  return text;
}

void write_text(ByteWriter& writer, const std::string& text) {
  writer.number(static_cast<std::uint8_t>(text.size()));
  writer.copy(std::as_bytes(std::span(text)));
}

std::optional<std::string> read_text(ByteReader& reader, std::size_t most) {
  const auto length = reader.number<std::uint8_t>();
  if (length > most) return std::nullopt;
  const auto bytes = reader.take(length);
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!std::all_of(text.begin(), text.end(), is_printable)) return std::nullopt;
  return text;
}

std::optional<InterfaceAddress> read_address(ByteReader& reader) {
  InterfaceAddress one;
  auto name = read_text(reader, kMostInterfaceBytes);
  if (!name) return std::nullopt;
  one.interface = *std::move(name);
  const auto family = reader.number<std::uint8_t>();
  if (family != kIpv4 && family != kIpv6) return std::nullopt;
  const auto ip = reader.take(family == kIpv4 ? sizeof(in_addr) : sizeof(in6_addr));
  if (ip.empty()) return std::nullopt;
  one.address = ip_address(ip, reader.number<std::uint16_t>());
  one.prefix_bits = reader.number<std::uint8_t>();
  const auto speed = reader.number<std::uint32_t>();
  if (one.prefix_bits > (family == kIpv4 ? 32 : 128) || speed > kMostSpeed) return std::nullopt;
  one.speed_mbps = static_cast<int>(speed);
  one.loopback = one.address.is_loopback();
  return one;
}

}  // namespace

std::string host_name() {
  std::array<char, kMostHostBytes + 1> name{};
  if (gethostname(name.data(), kMostHostBytes) != 0 || name[0] == 0) return "an unnamed host";
  return name.data();
}

Bytes encode(const EndpointInfo& info) {
  const std::size_t count = std::min(info.addresses.size(), kMostAddresses);
  std::array<std::byte, 2 + kMostHostBytes + kMostAddresses * kMostAddressBytes> room{};
  ByteWriter writer(room);
  write_text(writer, printable(info.host, kMostHostBytes));
  writer.number(static_cast<std::uint8_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    const InterfaceAddress& one = info.addresses[i];
    write_text(writer, printable(one.interface, kMostInterfaceBytes));
    writer.number(one.address.family() == AF_INET ? kIpv4 : kIpv6);
    writer.copy(one.address.ip());
    writer.number(one.address.port());
    writer.number(static_cast<std::uint8_t>(one.prefix_bits));
    writer.number(static_cast<std::uint32_t>(std::clamp(one.speed_mbps, 0, kMostSpeed)));
  }
  return {room.begin(), room.begin() + static_cast<std::ptrdiff_t>(room.size() - writer.room())};
}

std::optional<EndpointInfo> parse_endpoint_info(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  EndpointInfo info;
  auto host = read_text(reader, kMostHostBytes);
  const auto count = reader.number<std::uint8_t>();
  if (!host || count > kMostAddresses) return std::nullopt;
  info.host = *std::move(host);
  for (int i = 0; i < count; ++i) {
    auto one = read_address(reader);
    if (!one) return std::nullopt;
    info.addresses.push_back(*std::move(one));
  }
  if (!reader.whole()) return std::nullopt;
  return info;
}

std::vector<Candidate> candidates(std::span<const InterfaceAddress> mine,
                                  const EndpointInfo& info) {
  std::vector<Candidate> all;
  for (const InterfaceAddress& there : info.addresses) {
    const int family = there.address.family();
    if (there.address.is_link_local() && family == AF_INET6) {
      for (const InterfaceAddress& here : mine) {
        if (here.address.family() != AF_INET6 || !here.address.is_link_local()) continue;
        Candidate one{there, 1, std::min(here.speed_mbps, there.speed_mbps)};
        one.there.address =
            ipv6_address(there.address.as<sockaddr_in6>().sin6_addr, there.address.port(),
                         here.address.as<sockaddr_in6>().sin6_scope_id);
        all.push_back(std::move(one));
      }
      continue;
    }
    Candidate one{there, 2, 0};
    bool loopback = false;
    for (const InterfaceAddress& here : mine) {
      loopback |= here.address.is_loopback();
      if (here.address.family() != family) continue;
      const bool near = same_prefix(here.address, there.address, here.prefix_bits) &&
                        same_prefix(here.address, there.address, there.prefix_bits);
      const int grade = near ? 0 : 1;
      const int speed = std::min(here.speed_mbps, there.speed_mbps);
      if (std::tuple(grade, -speed) < std::tuple(one.grade, -one.speed_mbps)) {
        one.grade = grade;
        one.speed_mbps = speed;
      }
    }
    if (loopback || !there.address.is_loopback()) all.push_back(std::move(one));
  }
  std::stable_sort(all.begin(), all.end(), [](const Candidate& a, const Candidate& b) {
    return std::tuple(a.grade, -a.speed_mbps) < std::tuple(b.grade, -b.speed_mbps);
  });
  return all;
}

std::size_t rails(std::span<const Candidate> candidates) {
  std::size_t count = 0;
  for (; count < candidates.size(); ++count) {
    const Candidate& one = candidates[count];
    const Candidate& first = candidates.front();
    if (one.grade != first.grade || one.speed_mbps != first.speed_mbps ||
        one.there.address.family() != first.there.address.family()) {
      break;
    }
    const auto before = candidates.first(count);
    if (std::any_of(before.begin(), before.end(), [&](const Candidate& other) {
          return other.there.interface == one.there.interface;
        })) {
      break;
    }
  }
  return count;
}

}  // namespace tutti::tcp
