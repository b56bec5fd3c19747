// Keys at the top of config.json that mean nothing for training from a directory's weights.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/arch/hugging_face.h"

namespace trainyard {

// Returns the row for the key, of the family or of all families. Null: there is none.
const HfIgnored* FindIgnored(const HfTable& table, const std::string& key);
// Whether a key means nothing with this value: null and false switch nothing on, and the key's row,
// if there is one, may say so.
bool MeansNothing(const HfIgnored* row, const nlohmann::json& value);

}  // namespace trainyard
