#include "common/http/metrics_page.h"

#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "common/process_metrics.h"

namespace trainyard {
namespace {

constexpr char kPath[] = "/metrics";
// The text format that prometheus::TextSerializer writes.
constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

std::string Page(const prometheus::Registry& registry) {
  std::vector<prometheus::MetricFamily> all = ProcessMetrics();
  std::vector<prometheus::MetricFamily> registered = registry.Collect();
  std::move(registered.begin(), registered.end(), std::back_inserter(all));
  return prometheus::TextSerializer().Serialize(all);
}

// A site's forms send a token and a path.
constexpr size_t kMostFormBytes = 8 << 10;

// Whether a request for this host is for this machine. A page of another site can have the reader's
// browser ask its own host name, once that leads to 127.0.0.1, and read the answer.
bool IsThisMachine(const std::string& host) {
  const bool has_port = host.rfind(':') != host.npos && host.back() != ']';
  const auto address = ParseAddress(has_port ? host : absl::StrCat(host, ":80"));
  return address.ok() && address->loopback();
}

HttpResponse MetricsOf(const HttpRequest& request, const prometheus::Registry& registry) {
  if (request.tls && !request.certified) {
    return {.status = 403,
            .body = "wanted a reader's certificate: 'trainyard-controller reader' makes one\n"};
  }
  const auto host = request.headers.find("host");
  if (!request.tls && host != request.headers.end() && !IsThisMachine(host->second)) {
    return {.status = 421,
            .body = "wanted the host 127.0.0.1 or localhost: these metrics are for this machine\n"};
  }
  if (request.method == "POST")
    return {.status = 405, .body = "wanted GET or HEAD\n", .headers = {{"Allow", "GET, HEAD"}}};
  return {.content_type = kContentType, .body = Page(registry)};
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsPage>> MetricsPage::Serve(
    const Address& listen, std::shared_ptr<prometheus::Registry> registry,
    const std::optional<TlsMaterial>& tls, const HttpHandler& site) {
  if (!tls && !listen.loopback()) {
    return absl::FailedPreconditionError(
        absl::StrCat("refusing to serve metrics at ", listen.ToString(),
                     ": nothing there would be encrypted, since this program has no certificate "
                     "(docs/access.md). Listen on 127.0.0.1"));
  }
  auto server = HttpServer::Start(
      listen,
      [registry = std::move(registry), site](const HttpRequest& request) -> HttpResponse {
        if (request.path == kPath) return MetricsOf(request, *registry);
        if (site) return site(request);
        return {.status = 404, .body = absl::StrCat("the page is at ", kPath, "\n")};
      },
      {.tls = listen.loopback() ? std::nullopt : tls,
       .certificate = site ? ClientCertificate::kRequested : ClientCertificate::kRequired,
       .most_body_bytes = site ? kMostFormBytes : 0});
  if (!server.ok()) {
    return absl::Status(
        server.status().code(),
        absl::StrCat("cannot serve metrics at ", listen.ToString(), ": ", server.status().message(),
                     ". Give another address or port by --metrics-listen"));
  }
  return std::unique_ptr<MetricsPage>(
      new MetricsPage(*std::move(server), listen.loopback() ? std::nullopt : tls));
}

MetricsPage::MetricsPage(std::unique_ptr<HttpServer> server, std::optional<TlsMaterial> tls)
    : server_(std::move(server)), tls_(std::move(tls)) {}

void MetricsPage::Renew(const std::optional<TlsMaterial>& tls) {
  if (!tls_ || !tls || *tls == *tls_) return;
  tls_ = tls;
  const absl::Status status = server_->ReplaceTls(*tls);
  if (!status.ok()) LogError("page_certificate_refused", {{"error", status.message()}});
}

std::string MetricsPage::url() const {
  return absl::StrCat(tls_ ? "https://" : "http://", address().ToString(), kPath);
}

}  // namespace trainyard
