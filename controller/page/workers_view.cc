#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "controller/page/views.h"
#include "controller/page/words.h"

namespace trainyard::controller {
namespace {

constexpr size_t kWorkersOnPage = 100;

// The rate that most ranks compute at.
std::string PeakOf(const Device& device) {
  for (const absl::string_view dtype : {"bf16", "f32"}) {
    for (const PeakRate& peak : device.peaks) {
      if (peak.dtype != dtype) continue;
      return absl::StrCat(NumberWords(peak.flops / 1e12), " TFLOP/s ", dtype,
                          peak.measured ? ", measured" : "");
    }
  }
  return kUnknown;
}

Html HolderOf(const Coordinator::Holders& holders, const std::string& worker_id, uint32_t device) {
  Html html;
  const auto found = holders.find({worker_id, device});
  if (found == holders.end()) {
    html << "<span class=\"note\">free</span>"_html;
    return html;
  }
  const auto& [job_id, rank] = found->second;
  // A job of another namespace has no page for this reader.
  if (!absl::StartsWith(job_id, "j-")) {
    html << job_id;
    return html;
  }
  html << "<a href=\"/jobs/"_html << UrlValue(job_id) << "\"><code>"_html << job_id
       << "</code></a> rank "_html << rank;
  return html;
}

void Row(Html& html, const Worker& worker, const Coordinator::Holders& holders,
         const Reader& reader) {
  const Registration& known = worker.registration;
  html << "<section class=\"worker\"><div class=\"top\"><h2>"_html << known.hostname << "</h2>"_html
       << StateSign(worker.state) << "<code class=\"note\">"_html << known.worker_id
       << "</code></div><p class=\"note\">heard "_html
       << AgeWords(worker.last_heartbeat_time, reader.now) << ", registered "_html
       << AgeWords(worker.register_time, reader.now) << ", version "_html << known.version
       << "</p><div class=\"scroll\"><table class=\"cards\">"_html
       << "<thead><tr><th>Device<th>Held by<th>Model"_html
       << "<th>Memory<th>Peak</tr></thead><tbody>"_html;
  for (const Device& device : known.devices) {
    html << "<tr><td data-is=\"Device\">"_html << device.index
         << "</td><td data-is=\"Held by\">"_html << HolderOf(holders, known.worker_id, device.index)
         << "</td><td data-is=\"Model\">"_html << device.model
         << "</td><td data-is=\"Memory\">"_html << BytesWords(device.memory_bytes)
         << "</td><td data-is=\"Peak\">"_html << PeakOf(device) << "</td></tr>"_html;
  }
  html << "</tbody></table></div></section>"_html;
}

}  // namespace

absl::StatusOr<Page> WorkersPage(const Sources& sources, const HttpRequest& request,
                                 const Reader& reader) {
  const Coordinator::Holders holders = sources.coordinator.DeviceHolders(reader.seen());
  std::vector<Worker> workers = sources.coordinator.Workers();
  size_t devices = 0;
  for (const Worker& worker : workers) devices += worker.registration.devices.size();
  Page page{.title = "Workers", .body = {}};
  page.changes = std::any_of(workers.begin(), workers.end(), [](const Worker& worker) {
    return worker.state != WorkerState::kLost;
  });
  page.body << "<div class=\"top\"><h1>Workers</h1><p class=\"note\">"_html
            << Plural(workers.size(), "worker") << ", "_html << holders.size() << " of "_html
            << Plural(devices, "device") << " busy</p></div>"_html;
  const std::string after = QueryValue(request, "page");
  std::erase_if(workers, [&](const Worker& w) { return w.registration.worker_id <= after; });
  if (workers.empty()) page.body << "<p class=\"empty\">There are no workers.</p>"_html;
  for (size_t i = 0; i < std::min(workers.size(), kWorkersOnPage); ++i) {
    Row(page.body, workers[i], holders, reader);
  }
  page.body << "<p class=\"pages\">"_html;
  if (!after.empty()) {
    page.body << "<a href=\""_html << LinkWith(request, "page", "") << "\">First</a>"_html;
  }
  if (workers.size() > kWorkersOnPage) {
    const std::string& last = workers[kWorkersOnPage - 1].registration.worker_id;
    page.body << "<a rel=\"next\" href=\""_html << LinkWith(request, "page", last)
              << "\">Next</a>"_html;
  }
  page.body << "</p>"_html;
  return page;
}

}  // namespace trainyard::controller
