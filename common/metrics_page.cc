#include "common/metrics_page.h"

#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace trainyard {
namespace {

constexpr char kPath[] = "/metrics";
// The text format that prometheus::TextSerializer writes.
constexpr char kContentType[] = "text/plain; version=0.0.4; charset=utf-8";

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsPage>> MetricsPage::Serve(
    const Address& listen, std::shared_ptr<prometheus::Registry> registry) {
  auto server = HttpServer::Start(
      listen, [registry = std::move(registry)](const HttpRequest& request) -> HttpResponse {
        if (request.path != kPath) {
          return {.status = 404, .body = absl::StrCat("the page is at ", kPath, "\n")};
        }
        return {.content_type = kContentType,
                .body = prometheus::TextSerializer().Serialize(registry->Collect())};
      });
  if (!server.ok()) {
    return absl::Status(server.status().code(),
                        absl::StrCat("cannot serve metrics at ", listen.ToString(), ": ",
                                     server.status().message()));
  }
  return std::unique_ptr<MetricsPage>(new MetricsPage(*std::move(server)));
}

MetricsPage::MetricsPage(std::unique_ptr<HttpServer> server) : server_(std::move(server)) {}

std::string MetricsPage::url() const {
  return absl::StrCat("http://", address().ToString(), kPath);
}

}  // namespace trainyard
