// The web page of a controller: decides who may read it and which view answers which path. The only
// thing that it changes is the token that a browser keeps.

#pragma once

#include <string>

#include "common/clock.h"
#include "common/http/exchange.h"
#include "controller/access/gate.h"
#include "controller/page/views.h"

namespace trainyard::controller {

// Not thread-safe: the HTTP server's only thread calls it.
class Site {
 public:
  struct Parts {  // All outlive the site.
    const JobBook& book;
    const Coordinator& coordinator;
    Gate& gate;
    const Clock& clock;
  };
  explicit Site(const Parts& parts) : parts_(parts) {}

  // Is quick however much is stored, because every view shows a limited part.
  HttpResponse Answer(const HttpRequest& request);

 private:
  HttpResponse Route(const HttpRequest& request);
  HttpResponse Login(const HttpRequest& request);
  HttpResponse Logout(const HttpRequest& request) const;

  const Parts parts_;
};

}  // namespace trainyard::controller
