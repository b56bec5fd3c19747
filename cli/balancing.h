// What keeps the load of an imported model's experts even, in words.

#pragma once

#include <optional>
#include <string>

#include "models/arch/config.h"

namespace trainyard::cli {

// Nullopt: the model has no experts.
std::optional<std::string> Balancing(const ModelConfig& model);

}  // namespace trainyard::cli
