// The style sheet of the pages, in light and dark colours, for large screens and for phones.

#pragma once

#include "absl/strings/string_view.h"

namespace trainyard::controller {

extern const absl::string_view kStyle;

}  // namespace trainyard::controller
