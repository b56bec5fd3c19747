#include "worker/trainer/nccl_interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cerrno>
#include <cstdlib>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

std::string AddressOf(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address == nullptr) return "";
  if (address->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
                sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr, text,
                sizeof(text));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> NetworkDevice(const std::string& interface) {
  if (::if_nametoindex(interface.c_str()) != 0) return interface;
  ifaddrs* all = nullptr;
  if (::getifaddrs(&all) != 0) return ErrnoStatus(errno, "list", "network devices");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owned(all, ::freeifaddrs);
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (!interface.empty() && AddressOf(one->ifa_addr) == interface) return one->ifa_name;
  }
  return absl::NotFoundError(absl::StrCat("interface '", interface,
                                          "' is neither a network device nor an address of one"));
}

absl::Status KeepNcclOn(const std::string& interface) {
  ASSIGN_OR_RETURN(const std::string device, NetworkDevice(interface));
  // "=" means exactly this name, and not all names with this prefix.
  ::setenv("NCCL_SOCKET_IFNAME", ("=" + device).c_str(), 0);
  return absl::OkStatus();
}

}  // namespace trainyard
