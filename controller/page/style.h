// How the pages look, in light and in dark, on a desk and on a phone.

#pragma once

#include "absl/strings/string_view.h"

namespace trainyard::controller {

extern const absl::string_view kStyle;

}  // namespace trainyard::controller
