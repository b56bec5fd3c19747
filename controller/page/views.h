// The pages, one function each. They make the same calls as the API's handlers, and show the same
// readers the same data.

#pragma once

#include "absl/status/statusor.h"
#include "common/http/exchange.h"
#include "controller/book/job_book.h"
#include "controller/page/frame.h"
#include "controller/workers/coordinator.h"

namespace trainyard::controller {

struct Sources {  // Both outlive the pages.
  const JobBook& book;
  const Coordinator& coordinator;
};

// "/": the jobs, newest first. The query may have state (the name of a state, or "live"), name (a
// part of a job's name), namespace, and page (a token). INVALID_ARGUMENT: there is no such state or
// token.
absl::StatusOr<Page> JobsPage(const Sources& sources, const HttpRequest& request,
                              const Reader& reader);

// "/jobs/ID". The query may have rank (whose log is shown, or "all"). NOT_FOUND: there is no such
// job. INVALID_ARGUMENT: the job has no such rank. Other errors: the store's.
absl::StatusOr<Page> JobPage(const Sources& sources, const HttpRequest& request,
                             const Reader& reader);

// "/workers": the workers by id. The query may have page (a worker's id; the page begins after it).
absl::StatusOr<Page> WorkersPage(const Sources& sources, const HttpRequest& request,
                                 const Reader& reader);

// Parts of a job's page.
Html HistoryOf(const Job& job, const std::vector<JobStep>& steps,
               const std::vector<JobStep>& validations);
Html PhasesOf(const std::vector<JobStep>& recent);
// What the model wrote after the last of these steps.
Html GeneratedOf(const std::vector<JobStep>& validations);
Html AttemptsOf(const Job& job, const std::vector<EventRecord>& events);

// Returns the value of a name in the query; empty if there is none.
std::string QueryValue(const HttpRequest& request, const std::string& name);

}  // namespace trainyard::controller
