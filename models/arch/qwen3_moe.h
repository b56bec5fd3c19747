// Qwen3-MoE: see qwen3_moe.cc.

#pragma once

#include "models/arch/registry.h"

namespace trainyard {

Family Qwen3MoeFamily();

}  // namespace trainyard
