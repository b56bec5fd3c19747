#include "common/http/server.h"

#include <gnutls/abstract.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <iterator>
#include <utility>

#include "common/check.h"
#include "common/log.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

// How often the table of connections is checked while there are any. Also how long nothing is
// accepted after descriptors ran out.
constexpr absl::Duration kSweepEvery = absl::Milliseconds(100);

int DescriptorOf(MHD_Connection* connection) {
  return MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd;
}

gnutls_session_t SessionOf(MHD_Connection* connection) {
  return static_cast<gnutls_session_t>(
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION)->tls_session);
}

// Ends a connection. libmicrohttpd notices this and closes the descriptor.
void HangUp(int fd) { ::shutdown(fd, SHUT_RDWR); }

// libmicrohttpd would use this certificate before Began has given the session its credentials.
constexpr gnutls_certificate_retrieve_function2* kNoCertificate = [](auto...) { return -1; };

}  // namespace

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(const Address& listen,
                                                              HttpHandler handler,
                                                              const HttpOptions& options) {
  Credentials credentials;
  if (options.tls) {
    ASSIGN_OR_RETURN(credentials, TlsCredentials::Create(*options.tls));
  }
  ASSIGN_OR_RETURN(std::vector<Listener> listeners, Listener::Listen(listen));
  std::unique_ptr<HttpServer> server(
      new HttpServer(std::move(listeners), std::move(handler), options, std::move(credentials)));
  RETURN_IF_ERROR(server->StartDaemon());
  return server;
}

HttpServer::HttpServer(std::vector<Listener> listeners, HttpHandler handler,
                       const HttpOptions& options, Credentials tls)
    : listeners_(std::move(listeners)),
      handler_(std::move(handler)),
      certificate_(options.certificate),
      most_body_bytes_(options.most_body_bytes),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      tls_(std::move(tls)),
      connections_(RealClock()),
      daemon_(nullptr, &MHD_stop_daemon) {}

// libmicrohttpd neither listens nor has its own thread: Run does both for it. So all its calls come
// from one thread, this class decides who is accepted, and the descriptor of an ended connection
// cannot name another connection meanwhile.
absl::Status HttpServer::StartDaemon() {
  const auto answer = [](void* self, MHD_Connection* connection, const char* path,
                         const char* method, const char*, const char* part, size_t* bytes, void**) {
    const absl::string_view whole(part, *bytes);
    *bytes = 0;  // All of it was consumed.
    return static_cast<HttpServer*>(self)->Hear(connection, path, method, whole);
  };
  const auto changed = [](void* self, MHD_Connection* connection, void**,
                          MHD_ConnectionNotificationCode what) {
    auto& server = *static_cast<HttpServer*>(self);
    what == MHD_CONNECTION_NOTIFY_STARTED ? server.Began(connection) : server.Ended(connection);
  };
  const bool with_tls = CurrentTls() != nullptr;
  MHD_OptionItem tls_options[] = {
      {MHD_OPTION_HTTPS_CERT_CALLBACK, 0, reinterpret_cast<void*>(kNoCertificate)},
      {MHD_OPTION_HTTPS_PRIORITIES, 0, const_cast<char*>(kTlsPriorities)},
      {MHD_OPTION_END, 0, nullptr}};
  MHD_OptionItem* const no_options = tls_options + 2;
  const unsigned flags =
      MHD_USE_EPOLL | MHD_USE_NO_LISTEN_SOCKET | unsigned(with_tls ? MHD_USE_TLS : MHD_NO_FLAG);
  daemon_.reset(MHD_start_daemon(
      flags, 0, nullptr, nullptr, +answer, this, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      kConnectionMemoryBytes, MHD_OPTION_NOTIFY_CONNECTION,
      static_cast<MHD_NotifyConnectionCallback>(+changed), this, MHD_OPTION_STRICT_FOR_CLIENT, 1,
      MHD_OPTION_ARRAY, with_tls ? tls_options : no_options, MHD_OPTION_END));
  if (daemon_ == nullptr || !stop_.valid()) {
    return absl::UnavailableError("libmicrohttpd cannot start: no descriptors or no memory");
  }
  thread_ = std::thread([this] { Run(); });
  return absl::OkStatus();
}

HttpServer::~HttpServer() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  CHECK(::write(stop_.get(), &one, sizeof(one)) == sizeof(one));
  thread_.join();
}

HttpServer::Credentials HttpServer::CurrentTls() {
  const MutexLock lock(mutex_);
  return tls_;
}

absl::Status HttpServer::ReplaceTls(const TlsMaterial& tls) {
  ASSIGN_OR_RETURN(Credentials credentials, TlsCredentials::Create(tls));
  const MutexLock lock(mutex_);
  if (tls_ == nullptr) return absl::FailedPreconditionError("the server was started without TLS");
  tls_ = std::move(credentials);
  return absl::OkStatus();
}

void HttpServer::Run() {
  const int events = MHD_get_daemon_info(daemon_.get(), MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd;
  for (;;) {
    const bool accepting = RealClock().Monotonic() >= accept_after_;
    std::vector<pollfd> ready = {{stop_.get(), POLLIN, 0}, {events, POLLIN, 0}};
    for (const Listener& listener : listeners_) {
      ready.push_back({accepting ? listener.fd() : -1, POLLIN, 0});
    }
    ::poll(ready.data(), ready.size(), PollMilliseconds());
    if (ready[0].revents != 0) break;
    for (size_t i = 0; i < listeners_.size(); ++i) {
      if (ready[2 + i].revents != 0 && !AcceptOne(listeners_[i])) break;
    }
    for (const int fd : connections_.Overdue()) HangUp(fd);
    MHD_run(daemon_.get());
  }
  daemon_.reset();  // Here, because this calls Ended.
}

// Returns the time for poll. -1: wait until something happens.
int HttpServer::PollMilliseconds() const {
  MHD_UNSIGNED_LONG_LONG wanted = 0;
  if (MHD_get_timeout(daemon_.get(), &wanted) == MHD_YES && wanted == 0) return 0;
  if (connections_.empty() && !short_of_descriptors_) return -1;
  return int(absl::ToInt64Milliseconds(kSweepEvery));
}

bool HttpServer::AcceptOne(const Listener& listener) {
  absl::StatusOr<AcceptedSocket> accepted = listener.Accept();
  if (absl::IsResourceExhausted(accepted.status())) {
    // Peers wait in the kernel's queue. Asking again at once would only waste processor time.
    if (!short_of_descriptors_) {
      LogWarning("http_not_accepting",
                 {{"address", address().ToString()}, {"reason", accepted.status().message()}});
    }
    short_of_descriptors_ = true;
    accept_after_ = RealClock().Monotonic() + kSweepEvery;
    return false;
  }
  short_of_descriptors_ = false;
  if (!accepted.ok()) return true;
  const auto& peer = reinterpret_cast<const sockaddr&>(accepted->peer);
  if (!MakeRoomFor(PeerKey(peer))) return true;
  // This closes the socket even if it fails.
  MHD_add_connection(daemon_.get(), accepted->socket.Release(), &peer, accepted->peer_bytes);
  return true;
}

bool HttpServer::MakeRoomFor(const std::string& peer) {
  if (connections_.HasRoom(peer)) return true;
  const std::optional<int> other = connections_.InTheWayOf(peer);
  if (!other) return false;
  HangUp(*other);
  MHD_run(daemon_.get());
  return connections_.HasRoom(peer);
}

MHD_Result HttpServer::Hear(MHD_Connection* connection, const char* path, const char* method,
                            absl::string_view part) {
  const int fd = DescriptorOf(connection);
  const auto begun = begun_.find(fd);
  if (begun != begun_.end() && !part.empty()) {
    // libmicrohttpd gives at most Content-Length bytes, but there might be two such headers.
    if (begun->second.body.size() + part.size() > most_body_bytes_) return MHD_NO;
    begun->second.body.append(part.data(), part.size());
    return MHD_YES;
  }
  HttpRequest request =
      begun == begun_.end() ? ReadWhole(connection, path, method) : std::move(begun->second);
  std::optional<HttpResponse> refusal;
  if (begun == begun_.end()) {
    refusal = RefusalOf(request, most_body_bytes_);
    if (!refusal && request.method == MHD_HTTP_METHOD_POST) {
      begun_.emplace(fd, std::move(request));
      return MHD_YES;
    }
  }
  connections_.RequestComplete(fd);
  return SendResponse(connection, refusal ? *refusal : handler_(request));
}

HttpRequest HttpServer::ReadWhole(MHD_Connection* connection, const char* path,
                                  const char* method) {
  HttpRequest request = ReadRequest(connection, path, method);
  request.peer = PeerKey(
      *MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr);
  request.tls = tls_in_use_.contains(DescriptorOf(connection));
  request.certified = request.tls && HasGoodCertificate(SessionOf(connection));
  return request;
}

void HttpServer::Began(MHD_Connection* connection) {
  const int fd = DescriptorOf(connection);
  const sockaddr* const peer =
      MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS)->client_addr;
  connections_.Add(fd, PeerKey(*peer));
  const Credentials tls = CurrentTls();
  if (tls == nullptr) return;
  tls_in_use_[fd] = tls;
  // A session without credentials has kNoCertificate, and its handshake fails.
  if (!tls->ApplyTo(SessionOf(connection), certificate_).ok()) HangUp(fd);
}

void HttpServer::Ended(MHD_Connection* connection) {
  const int fd = DescriptorOf(connection);
  connections_.Remove(fd);
  tls_in_use_.erase(fd);
  begun_.erase(fd);
}

}  // namespace trainyard
