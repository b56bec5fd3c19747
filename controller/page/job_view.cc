#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/json.h"
#include "common/status_macros.h"
#include "controller/page/views.h"
#include "controller/page/words.h"

namespace trainyard::controller {
namespace {

using Json = nlohmann::json;

// A chart has room for about this many points. More would only slow the page down.
constexpr uint64_t kMostSamples = 400;
constexpr uint64_t kMostValidations = 150;
constexpr uint64_t kRecentSteps = 50;
constexpr size_t kLogLines = 200;
constexpr size_t kMostRanks = 256;

constexpr int64_t kAllRanks = -1;

// Returns at most `most` of the numbers 1 to `last`, at equal distances, including the first and
// the last.
std::vector<uint64_t> Spread(uint64_t last, uint64_t most) {
  std::vector<uint64_t> wanted;
  const uint64_t count = std::min(last, most);
  for (uint64_t i = 0; i < count; ++i) {
    wanted.push_back(count == 1 ? last : 1 + (last - 1) * i / (count - 1));
  }
  return wanted;
}

// Returns a number of the spec. Protobuf writes numbers of 64 bits as texts. 0: the spec lacks it.
uint64_t NumberIn(const Json& spec, const char* pointer) {
  const Json value = spec.is_object() ? spec.value(Json::json_pointer(pointer), Json()) : Json();
  uint64_t number = 0;
  if (value.is_number_unsigned()) return value.get<uint64_t>();
  if (value.is_string() && absl::SimpleAtoi(value.get<std::string>(), &number)) return number;
  return 0;
}

absl::StatusOr<std::vector<JobStep>> Validations(const Sources& sources, const Job& job,
                                                 const Json& spec) {
  const uint64_t every = NumberIn(spec, "/validation/every_steps");
  const uint64_t last = job.progress.furthest_step;
  if (every == 0) return std::vector<JobStep>();
  std::vector<uint64_t> wanted = Spread(last / every, kMostValidations);
  for (uint64_t& step : wanted) step *= every;
  wanted.push_back(last);  // The last step is always validated.
  ASSIGN_OR_RETURN(std::vector<JobStep> steps,
                   sources.book.store().SampleSteps(job.number, wanted));
  std::erase_if(steps, [](const JobStep& step) { return !step.validation_loss; });
  return steps;
}

void Fact(Html& html, Markup name, absl::string_view value) {
  html << "<div><dt>"_html << name << "</dt><dd>"_html << value << "</dd></div>"_html;
}

Html Facts(const Job& job, const Reader& reader) {
  const Progress& progress = job.progress;
  const uint64_t steps = job.spec->facts.steps;
  const bool stepped = progress.furthest_step > 0, live = !IsTerminal(job.state);
  const bool trains = !WaitsForAttempt(job.state);
  Html html;
  html << "<dl class=\"facts\">"_html;
  Fact(html, "Step"_html, StepWords(job));
  Fact(html, "Loss"_html, NumberWords(progress.loss()));
  Fact(html, "Validation loss"_html, NumberWords(progress.validation_loss));
  Fact(
      html, "Tokens/s"_html,
      trains && progress.tokens_per_second > 0 ? CountWords(progress.tokens_per_second) : kUnknown);
  Fact(html, "MFU"_html, MfuWords(trains ? progress.mfu() : std::nullopt, progress.peak_flops));
  if (live && trains && stepped && progress.step < steps) {
    Fact(html, "Left"_html,
         DurationWords(absl::Seconds(double(steps - progress.step) * progress.seconds_per_step)));
  }
  if (job.start_time) {
    Fact(html, live ? "Since its start"_html : "Took"_html,
         DurationWords(job.finish_time.value_or(reader.now) - *job.start_time));
  }
  Fact(html, "Restarts"_html, absl::StrCat(job.restarts));
  html << "</dl>"_html;
  return html;
}

Html Head(const Job& job, const Reader& reader) {
  const JobFacts& facts = job.spec->facts;
  Html html;
  html << "<div class=\"top\"><h1>"_html << facts.name << "</h1>"_html << StateSign(job.state)
       << "<code class=\"note\">"_html << job.id << "</code></div><p class=\"note\">"_html
       << facts.model << ", "_html << facts.precision << ", "_html << Plural(facts.ranks, "rank");
  ForEachAxis(facts, [&](const JobAxis& axis, uint32_t size) {
    if (size > 1) html << ", "_html << axis.name << " "_html << size;
  });
  html << " \u00b7 namespace "_html << facts.name_space;
  if (!facts.submitter.empty()) html << ", of "_html << facts.submitter;
  html << " \u00b7 submitted "_html << AgeWords(job.create_time, reader.now) << "</p>"_html;
  if (!job.state_reason.empty()) {
    html << "<p class=\"reason\">"_html << job.state_reason << "</p>"_html;
  }
  html << ProgressBar(job.progress.step, facts.steps) << Facts(job, reader);
  return html;
}

Html Ranks(const Job& job) {
  Html html;
  if (job.ranks.empty()) return html;
  html << "<section><h2>Ranks</h2>"_html;
  if (job.ranks.size() > kMostRanks) {
    html << "<p class=\"note\">The first "_html << kMostRanks << " of "_html << job.ranks.size()
         << "</p>"_html;
  }
  html << "<div class=\"scroll tall\"><table><thead><tr><th>Rank<th>Host<th>Device<th>State"_html
       << "<th>Worker<th>Log</tr></thead><tbody>"_html;
  for (size_t i = 0; i < std::min(job.ranks.size(), kMostRanks); ++i) {
    const Rank& rank = job.ranks[i];
    html << "<tr><td>"_html << i << "</td><td>"_html << rank.hostname << "</td><td>"_html
         << rank.device << "</td><td>"_html << Name(rank.phase)
         << (rank.cause == ExitCause::kNone ? "" : ": ") << Name(rank.cause)
         << "</td><td><code>"_html << rank.worker_id << "</code></td><td><a href=\"?rank="_html << i
         << "#log\">log</a></td></tr>"_html;
  }
  html << "</tbody></table></div></section>"_html;
  return html;
}

Html Checkpoints(const Job& job, const Reader& reader) {
  Html html;
  if (job.checkpoints.empty()) return html;
  html << "<section><h2>Checkpoints</h2>"_html;
  if (job.best_checkpoint) {
    html << "<p class=\"note\">The best one by validation loss is that of step "_html
         << job.best_checkpoint->step << ": "_html
         << NumberWords(job.best_checkpoint->validation_loss) << "</p>"_html;
  }
  html << "<div class=\"scroll tall\"><table><thead><tr><th>Step"_html
       << "<th>Attempt<th>Size<th>Made<th>Path</tr></thead><tbody>"_html;
  for (auto one = job.checkpoints.rbegin(); one != job.checkpoints.rend(); ++one) {
    html << "<tr><td>"_html << one->step << "</td><td>"_html << one->epoch << "</td><td>"_html
         << BytesWords(one->size_bytes) << "</td><td>"_html
         << AgeWords(one->create_time, reader.now) << "</td><td><code>"_html << one->path
         << "</code></td></tr>"_html;
  }
  html << "</tbody></table></div></section>"_html;
  return html;
}

absl::StatusOr<int64_t> RankOf(const HttpRequest& request, const Job& job) {
  const std::string text = QueryValue(request, "rank");
  if (text.empty()) return 0;
  if (text == "all") return kAllRanks;
  uint32_t rank = 0;
  const uint32_t ranks = job.spec->facts.ranks;
  if (!absl::SimpleAtoi(text, &rank) || rank >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank: wanted 0 to ", ranks - 1, " or all, found '", text, "'"));
  }
  return rank;
}

Html Log(const Job& job, int64_t rank, const std::vector<LogRecord>& lines) {
  Html html;
  html << "<section id=\"log\"><h2>Log</h2><form class=\"filters\" method=\"get\" "_html
       << "action=\"#log\"><label>Rank"_html
       << "<input name=\"rank\" inputmode=\"numeric\" size=\"5\" value=\""_html
       << (rank == kAllRanks ? "all" : absl::StrCat(rank))
       << "\"></label><button>Show</button>"_html
       << "<span class=\"note\">"_html
       << (job.spec->facts.ranks == 1
               ? ""
               : absl::StrCat("0 to ", job.spec->facts.ranks - 1, ", or all. "))
       << "The last "_html << Plural(lines.size(), "line") << "</span></form>"_html;
  if (lines.empty()) {
    html << "<p class=\"empty\">Nothing has been logged.</p></section>"_html;
    return html;
  }
  html << "<pre class=\"log\" tabindex=\"0\">"_html;
  for (const LogRecord& line : lines) {
    html << "<span class=\"note\">"_html
         << absl::FormatTime("%H:%M:%S", line.time, absl::UTCTimeZone());
    if (rank == kAllRanks) html << " "_html << line.rank;
    html << "</span> "_html << line.text << "\n"_html;
  }
  html << "</pre></section>"_html;
  return html;
}

Html SpecOf(const Job& job, const Json& spec) {
  Html html;
  html << "<section><h2>Spec</h2><pre tabindex=\"0\">"_html
       << (spec.is_discarded() ? job.spec->config : JsonText(spec, 2)) << "</pre></section>"_html;
  return html;
}

}  // namespace

absl::StatusOr<Page> JobPage(const Sources& sources, const HttpRequest& request,
                             const Reader& reader) {
  absl::string_view id = request.path;
  absl::ConsumePrefix(&id, "/jobs/");
  ASSIGN_OR_RETURN(const Snapshot job, sources.book.Get(std::string(id), reader.seen()));
  ASSIGN_OR_RETURN(const int64_t rank, RankOf(request, *job));
  Store& store = sources.book.store();
  const uint64_t last = job->progress.furthest_step;
  const Json spec = ParseJson<Json>(job->spec->config);
  ASSIGN_OR_RETURN(const std::vector<JobStep> steps,
                   store.SampleSteps(job->number, Spread(last, kMostSamples)));
  ASSIGN_OR_RETURN(const std::vector<JobStep> validations, Validations(sources, *job, spec));
  ASSIGN_OR_RETURN(const std::vector<JobStep> recent,
                   store.ReadSteps(job->number, last - std::min(last, kRecentSteps), kRecentSteps));
  ASSIGN_OR_RETURN(const std::vector<EventRecord> events, store.ReadEvents(job->number));
  ASSIGN_OR_RETURN(const std::vector<LogRecord> lines,
                   store.LastLogs(job->number, rank, kLogLines));
  Page page{.title = job->spec->facts.name, .body = {}, .changes = !IsTerminal(job->state)};
  page.body << Head(*job, reader) << HistoryOf(*job, steps, validations) << GeneratedOf(validations)
            << PhasesOf(recent) << Ranks(*job) << AttemptsOf(*job, events)
            << Checkpoints(*job, reader) << Log(*job, rank, lines) << SpecOf(*job, spec);
  return page;
}

}  // namespace trainyard::controller
