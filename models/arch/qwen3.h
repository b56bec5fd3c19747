// Qwen3, the dense models: see qwen3.cc.

#pragma once

#include "models/arch/registry.h"

namespace trainyard {

Family Qwen3Family();

}  // namespace trainyard
