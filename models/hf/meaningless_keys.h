// Keys at the top of config.json that mean nothing for training from a directory's weights.

#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "models/arch/hugging_face.h"

namespace trainyard {

// Returns the row for the key, of the family or of all families. Null: there is none.
const HfIgnored* FindIgnored(const HfTable& table, const std::string& key);
// Whether a key means nothing with this value. Null always means nothing. A row says for which
// other values its key means nothing; a key without a row means nothing if it is false.
bool MeansNothing(const HfIgnored* row, const nlohmann::json& value);

}  // namespace trainyard
