// What all pages have in common: head, navigation, and the form by which a reader shows a token.

#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/http/exchange.h"
#include "controller/access/principal.h"
#include "controller/page/html.h"

namespace trainyard::controller {

// Who reads, and when.
struct Reader {
  Principal principal;
  absl::Time now;

  // Whose jobs alone the reader sees; empty: all.
  const std::string& seen() const { return principal.name_space; }
};

struct Page {
  std::string title;
  Html body;
  bool changes = false;  // It looks for news by itself.
};

// The page as the reader of `request` gets it. Absent: nobody is logged in.
HttpResponse InFrame(const HttpRequest& request, const Page& page,
                     const std::optional<Reader>& reader);

// Asks for a token. `why`: what was wrong with the last one, or OK.
HttpResponse LoginPage(const HttpRequest& request, const absl::Status& why);

// What the API would say, as a page. UNAUTHENTICATED asks for a token.
HttpResponse ErrorPage(const HttpRequest& request, const absl::Status& error,
                       const std::optional<Reader>& reader);

// The request's path and query, with a value in place of that of `name`; an empty one takes it
// away.
std::string LinkWith(const HttpRequest& request, const std::string& name, const std::string& value);

// The one style sheet, at a path that changes with its text.
std::string StylePath();
HttpResponse Style();

}  // namespace trainyard::controller
