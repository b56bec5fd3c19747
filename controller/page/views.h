// The pages, one function each. They read what the API's handlers read, by the same calls, for the
// same readers.

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

// "/": jobs, the newest first. In the query: state (a state's name, or "live"), name (a part of the
// name), namespace, and page (a token). INVALID_ARGUMENT: a state or a token that is none.
absl::StatusOr<Page> JobsPage(const Sources& sources, const HttpRequest& request,
                              const Reader& reader);

// "/jobs/ID". In the query: rank (whose log is shown, or "all"). NOT_FOUND; INVALID_ARGUMENT: a
// rank that the job does not have; the store's errors.
absl::StatusOr<Page> JobPage(const Sources& sources, const HttpRequest& request,
                             const Reader& reader);

// "/workers": workers by id. In the query: page (the id of a worker: those after it).
absl::StatusOr<Page> WorkersPage(const Sources& sources, const HttpRequest& request,
                                 const Reader& reader);

// Parts of the page of a job.
Html HistoryOf(const Job& job, const std::vector<StepRecord>& steps,
               const std::vector<StepRecord>& validations);
Html PhasesOf(const std::vector<StepRecord>& recent);
Html AttemptsOf(const Job& job, const std::vector<EventRecord>& events);

// The value of a name in the query; empty where there is none.
std::string QueryValue(const HttpRequest& request, const std::string& name);

}  // namespace trainyard::controller
