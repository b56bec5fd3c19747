// Qwen2 and Qwen2.5: see qwen2.cc.

#pragma once

#include "models/arch/registry.h"

namespace trainyard {

Family Qwen2Family();

}  // namespace trainyard
