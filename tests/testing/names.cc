// Gives test programs two names that no machine needs to know: the resolver's function of this
// program stands before the one of libc, which still resolves all addresses and other names.
//
//   two.test:  127.0.0.1 and 127.0.0.2
//   half.test: 127.0.0.1 and 192.0.2.1, which no machine has (RFC 5737)

#include <dlfcn.h>
#include <netdb.h>

#include <cstring>

extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints,
                           addrinfo** found) {
  static const auto resolve =
      reinterpret_cast<decltype(&getaddrinfo)>(::dlsym(RTLD_NEXT, "getaddrinfo"));
  const bool two = host != nullptr && std::strcmp(host, "two.test") == 0;
  const bool half = host != nullptr && std::strcmp(host, "half.test") == 0;
  if (!two && !half) return resolve(host, service, hints, found);
  const int error = resolve("127.0.0.1", service, hints, found);
  if (error != 0) return error;
  // freeaddrinfo() frees what it finds in the list, from whichever call that came.
  return resolve(two ? "127.0.0.2" : "192.0.2.1", service, hints, &(*found)->ai_next);
}
