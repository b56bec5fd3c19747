// GPT-2 and GPT-3: see gpt3.cc.

#pragma once

#include "models/arch/registry.h"

namespace trainyard {

Family Gpt3Family();

}  // namespace trainyard
