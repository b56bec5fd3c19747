#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "controller/jobs/job_id.h"
#include "controller/page/views.h"
#include "controller/page/words.h"

namespace trainyard::controller {
namespace {

constexpr size_t kJobsOnPage = 50;

constexpr char kLive[] = "live";
constexpr JobState kLiveStates[] = {JobState::kQueued, JobState::kStarting, JobState::kRunning,
                                    JobState::kRecovering, JobState::kStopping};
constexpr JobState kEndedStates[] = {JobState::kSucceeded, JobState::kFailed, JobState::kCancelled};

absl::StatusOr<std::vector<JobState>> StatesOf(const std::string& name) {
  if (name.empty()) return std::vector<JobState>();
  std::vector<JobState> live(std::begin(kLiveStates), std::end(kLiveStates));
  if (name == kLive) return live;
  for (int state = 1; state <= kNumJobStates; ++state) {
    if (Name(JobState(state)) == name) return std::vector<JobState>{JobState(state)};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("state: wanted live or a state of a job, found '", name, "'"));
}

void Field(Html& html, Markup label, const char* name, const std::string& value) {
  html << "<label>"_html << label << "<input name=\""_html << name << "\" value=\""_html << value
       << "\"></label>"_html;
}

Html Filters(const HttpRequest& request, const Reader& reader) {
  const std::string state = QueryValue(request, "state");
  Html html;
  html << "<form class=\"filters\" method=\"get\" action=\"/\">"_html
       << "<label>State<select name=\"state\">"_html;
  const auto option = [&](absl::string_view value, absl::string_view words) {
    html << "<option value=\""_html << value << "\""_html
         << (value == state ? Html() << " selected"_html : Html()) << ">"_html << words
         << "</option>"_html;
  };
  option("", "all");
  option(kLive, "all live jobs");
  for (const JobState one : kLiveStates) option(Name(one), Name(one));
  for (const JobState one : kEndedStates) option(Name(one), Name(one));
  html << "</select></label>"_html;
  Field(html, "Name"_html, "name", QueryValue(request, "name"));
  if (reader.seen().empty()) {
    Field(html, "Namespace"_html, "namespace", QueryValue(request, "namespace"));
  }
  html << "<button>Show</button></form>"_html;
  return html;
}

// Shows how busy the cluster is.
Html Summary(const Coordinator& coordinator) {
  size_t ready = 0, devices = 0;
  for (const Worker& worker : coordinator.Workers()) {
    if (worker.state != WorkerState::kReady) continue;
    ++ready;
    devices += worker.registration.devices.size();
  }
  const size_t busy = coordinator.DeviceHolders().size();
  Html html;
  html << "<p class=\"note\">"_html << busy << " of "_html << Plural(devices, "device")
       << " busy on <a href=\"/workers\">"_html << Plural(ready, "worker") << "</a></p>"_html;
  return html;
}

void Row(Html& html, const Job& job, const Reader& reader) {
  const JobFacts& facts = job.spec->facts;
  const Progress& progress = job.progress;
  const bool fast = job.state == JobState::kRunning && progress.tokens_per_second > 0;
  html << "<tr><td>"_html << StateSign(job.state) << "</td><td><a class=\"name\" href=\"/jobs/"_html
       << UrlValue(job.id) << "\">"_html << facts.name << "</a> <code class=\"note\">"_html
       << job.id << "</code></td>"_html;
  if (reader.seen().empty()) {
    html << "<td data-is=\"Namespace\">"_html << facts.name_space << "</td>"_html;
  }
  html << "<td data-is=\"Model\">"_html << facts.model
       << "</td><td class=\"n\" data-is=\"Ranks\">"_html << facts.ranks
       << "</td><td class=\"wide\">"_html << ProgressBar(progress.step, facts.steps)
       << " <span class=\"note\">"_html << StepWords(job)
       << "</span></td><td class=\"n\" data-is=\"Loss\">"_html << NumberWords(progress.loss())
       << "</td><td class=\"n\" data-is=\"Tokens/s\">"_html
       << (fast ? CountWords(progress.tokens_per_second) : kUnknown)
       << "</td><td class=\"n when\">"_html << AgeWords(job.create_time, reader.now)
       << "</td></tr>"_html;
}

Html Table(const std::vector<Snapshot>& jobs, const Reader& reader) {
  Html html;
  html << "<div class=\"scroll\"><table class=\"jobs cards\"><thead><tr><th>State<th>Job"_html
       << (reader.seen().empty() ? Html() << "<th>Namespace"_html : Html())
       << "<th>Model<th class=\"n\">Ranks<th>Progress<th class=\"n\">Loss"_html
       << "<th class=\"n\">Tokens/s<th class=\"n\">Submitted</tr></thead><tbody>"_html;
  for (const Snapshot& job : jobs) Row(html, *job, reader);
  html << "</tbody></table></div>"_html;
  return html;
}

}  // namespace

std::string QueryValue(const HttpRequest& request, const std::string& name) {
  const auto found = request.query.find(name);
  return found == request.query.end() ? "" : found->second;
}

absl::StatusOr<Page> JobsPage(const Sources& sources, const HttpRequest& request,
                              const Reader& reader) {
  uint64_t before = 0;
  if (const std::string token = QueryValue(request, "page"); !token.empty()) {
    const std::optional<uint64_t> number = JobNumber(token);
    if (!number) {
      return absl::InvalidArgumentError(
          absl::StrCat("page: wanted the token of another page of this list, found '", token, "'"));
    }
    before = *number;
  }
  JobFilter filter{.states = {},
                   .name_space = NamespaceToList(reader.seen(), QueryValue(request, "namespace")),
                   .name = absl::AsciiStrToLower(QueryValue(request, "name"))};
  ASSIGN_OR_RETURN(filter.states, StatesOf(QueryValue(request, "state")));
  ASSIGN_OR_RETURN(std::vector<Snapshot> jobs, sources.book.List(filter, before, kJobsOnPage + 1));
  const bool more = jobs.size() > kJobsOnPage;
  if (more) jobs.pop_back();
  Page page{.title = "Jobs", .body = {}};
  page.changes = std::any_of(jobs.begin(), jobs.end(),
                             [](const Snapshot& job) { return !IsTerminal(job->state); });
  page.body << "<div class=\"top\"><h1>Jobs</h1>"_html << Summary(sources.coordinator)
            << "</div>"_html << Filters(request, reader);
  if (jobs.empty()) {
    page.body << "<p class=\"empty\">There are no such jobs.</p>"_html;
  } else {
    page.body << Table(jobs, reader);
  }
  page.body << "<p class=\"pages\">"_html;
  if (before != 0) {
    page.body << "<a href=\""_html << LinkWith(request, "page", "") << "\">Newest</a>"_html;
  }
  if (more) {
    page.body << "<a rel=\"next\" href=\""_html << LinkWith(request, "page", jobs.back()->id)
              << "\">Older</a>"_html;
  }
  page.body << "</p>"_html;
  return page;
}

}  // namespace trainyard::controller
