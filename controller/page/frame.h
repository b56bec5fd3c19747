// The frame of every page: head, navigation, and the form in which a reader enters a token.

#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/http/exchange.h"
#include "controller/access/principal.h"
#include "controller/page/html.h"

namespace trainyard::controller {

// The reader of a page, and the time of the request.
struct Reader {
  Principal principal;
  absl::Time now;

  // The namespace whose jobs the reader may see; empty: all namespaces.
  const std::string& seen() const { return principal.name_space; }
};

struct Page {
  std::string title;
  Html body;
  bool changes = false;  // The page reloads its content by itself.
};

// Returns the page for the reader of `request`. Absent reader: nobody is logged in.
HttpResponse InFrame(const HttpRequest& request, const Page& page,
                     const std::optional<Reader>& reader);

// Returns a page that asks for a token. `why`: the error of the last token, or OK.
HttpResponse LoginPage(const HttpRequest& request, const absl::Status& why);

// Returns a page that shows the error. UNAUTHENTICATED: the page asks for a token.
HttpResponse ErrorPage(const HttpRequest& request, const absl::Status& error,
                       const std::optional<Reader>& reader);

// Returns the path and the query of the request with `value` for `name`. An empty value removes the
// name.
std::string LinkWith(const HttpRequest& request, const std::string& name, const std::string& value);

// The style sheet of all pages. Its path changes with its text.
std::string StylePath();
HttpResponse Style();

}  // namespace trainyard::controller
