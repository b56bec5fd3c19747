// The HTTP server of the pages, over a connection of its own machine: one connection a run,
// on which the client sends the bytes and two line breaks.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/check.h"
#include "common/http/server.h"
#include "tests/fuzz/input.h"

namespace trainyard {
namespace {

constexpr size_t kMostBodyBytes = 64;

// Says what a page sees of a request, so that all of it is read.
HttpResponse Echo(const HttpRequest& request) {
  const bool posts = request.method == "POST";
  CHECK(posts || request.method == "GET" || request.method == "HEAD") << request.method;
  CHECK(request.body.size() <= (posts ? kMostBodyBytes : 0)) << request.body.size();
  CHECK(!request.tls && !request.certified);
  HttpResponse response{.body = absl::StrCat(request.path, request.body)};
  for (const auto& [name, value] : request.query) absl::StrAppend(&response.body, name, value);
  for (const auto& [name, value] : request.headers) absl::StrAppend(&response.body, name, value);
  return response;
}

sockaddr_in Loopback(uint32_t host, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(uint16_t(port));
  address.sin_addr.s_addr = htonl(host);
  return address;
}

// Connections come from many addresses of the machine: one address has not enough ports for as many
// connections as a run of an hour makes.
FileDescriptor Connect(int port) {
  static uint32_t connections = 0;
  FileDescriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  CHECK(socket.valid());
  const sockaddr_in from = Loopback(0x7F010001 + connections++ / 64 % 0xFFF0, 0);
  const sockaddr_in to = Loopback(INADDR_LOOPBACK, port);
  CHECK(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&from), sizeof(from)) == 0);
  CHECK(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0);
  // The end of this side leaves nothing behind in the kernel.
  const linger at_once = {1, 0};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  // What waits for more after all is given up: the server's own deadline is 5 s.
  const timeval patience = {.tv_sec = 0, .tv_usec = 50'000};
  ::setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  return socket;
}

std::string Answer(int port, absl::string_view request) {
  const FileDescriptor socket = Connect(port);
  // The line breaks end most of what has begun. The server may end the connection before it has
  // read everything.
  const std::string sent = absl::StrCat(request, "\r\n\r\n");
  (void)::send(socket.get(), sent.data(), sent.size(), MSG_NOSIGNAL);
  std::string answer;
  char chunk[16 << 10];
  ssize_t count = 0;
  do {
    count = ::recv(socket.get(), chunk, sizeof(chunk), 0);
    if (count > 0) answer.append(chunk, size_t(count));
  } while (count > 0 || (count < 0 && errno == EINTR));  // libFuzzer's clock is a signal.
  return answer;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const auto server =
      HttpServer::Start({"127.0.0.1", 0}, Echo, {.most_body_bytes = kMostBodyBytes});
  CHECK(server.ok()) << server.status().ToString();
  const std::string answer = Answer((*server)->address().port, fuzz::Input(data, size).Rest());
  // Nothing, because the request was no whole one; or an answer.
  CHECK(answer.empty() || absl::StartsWith(answer, "HTTP/1.")) << answer;
  return 0;
}

}  // namespace trainyard
