// Llama 2, 3, 3.1, 3.2: see llama.cc.

#pragma once

#include "models/arch/registry.h"

namespace trainyard {

Family LlamaFamily();

}  // namespace trainyard
