// RETURN_IF_ERROR and ASSIGN_OR_RETURN for absl::Status (Debian's Abseil ships neither).

#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#define RETURN_IF_ERROR(expression)                                         \
  do {                                                                      \
    if (absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)

#define TRAINYARD_CONCAT_INNER(a, b) a##b
#define TRAINYARD_CONCAT(a, b) TRAINYARD_CONCAT_INNER(a, b)

#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_IMPL(TRAINYARD_CONCAT(status_or_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_IMPL(status_or, declaration, expression) \
  auto status_or = (expression);                                  \
  if (!status_or.ok()) return std::move(status_or).status();      \
  declaration = *std::move(status_or)
