#include "controller/access/owner_tools.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <unistd.h>

#include <memory>

#include "common/clock.h"
#include "common/status_macros.h"
#include "controller/access/directories.h"
#include "controller/access/grants.h"
#include "controller/access/joining.h"
#include "security/authority.h"

namespace trainyard::controller {

absl::StatusOr<std::string> InitAuthority(const std::string& state_directory,
                                          const std::vector<std::string>& hosts, absl::Time now) {
  const std::string directory = AuthorityDirectory(state_directory);
  RETURN_IF_ERROR(Authority::Init(directory, hosts, now));
  ASSIGN_OR_RETURN(const Authority authority, Authority::Open(directory, now));
  return authority.fingerprint();
}

absl::StatusOr<Invitation> MakeToken(const std::string& state_directory,
                                     const v1::CreateTokenRequest& request, absl::Time now) {
  ASSIGN_OR_RETURN(v1::Grant grant, GrantFor(request, "owner of the state directory", now));
  ASSIGN_OR_RETURN(const NewGrant made, MakeToken(std::move(grant), now));
  ASSIGN_OR_RETURN(const auto grants, Grants::Open(GrantsDirectory(state_directory), RealClock()));
  RETURN_IF_ERROR(grants->Put(made.stored));
  Invitation invitation{.token = made.token, .fingerprint = {}};
  const auto authority = Authority::Open(AuthorityDirectory(state_directory), now);
  if (authority.ok()) invitation.fingerprint = authority->fingerprint();
  if (!authority.ok() && !absl::IsNotFound(authority.status())) return authority.status();
  return invitation;
}

absl::StatusOr<Identity> MakeReader(const std::string& state_directory, const std::string& name,
                                    absl::Duration valid, absl::Time now) {
  ASSIGN_OR_RETURN(const Authority authority,
                   Authority::Open(AuthorityDirectory(state_directory), now));
  Identity reader;
  ASSIGN_OR_RETURN(reader.key_pem, NewKey());
  ASSIGN_OR_RETURN(const std::string request, NewRequest(reader.key_pem, name));
  ASSIGN_OR_RETURN(reader.certificate_pem,
                   authority.Sign(request, {.common_name = name,
                                            .uris = {"trainyard://reader/" + name},
                                            .not_before = now - kClocksDiffer,
                                            .not_after = now + valid,
                                            .client = true}));
  return reader;
}

std::vector<std::string> HostsOfThisMachine() {
  std::vector<std::string> hosts;
  char name[256] = {};
  if (::gethostname(name, sizeof(name) - 1) == 0 && name[0] != '\0') hosts.emplace_back(name);
  ifaddrs* found = nullptr;
  if (::getifaddrs(&found) != 0) return hosts;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> list(found, &::freeifaddrs);
  for (const ifaddrs* one = found; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_LOOPBACK) != 0) continue;
    char text[INET6_ADDRSTRLEN] = {};
    const sockaddr* address = one->ifa_addr;
    if (address->sa_family == AF_INET) {
      ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
                  sizeof(text));
    } else if (address->sa_family == AF_INET6) {
      const in6_addr& v6 = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
      if (!IN6_IS_ADDR_LINKLOCAL(&v6)) ::inet_ntop(AF_INET6, &v6, text, sizeof(text));
    }
    if (text[0] != '\0') hosts.emplace_back(text);
  }
  return hosts;
}

}  // namespace trainyard::controller
