// Mixtral: see mixtral.cc.

#pragma once

#include "models/arch/registry.h"

namespace trainyard {

Family MixtralFamily();

}  // namespace trainyard
