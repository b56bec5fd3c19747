// Proves that the patterns that `import` prints for an adapter train what the adapter has, and no
// more, in a job: of layers of one kind, of one layer, of experts, of modules, and of all.

#include "train/config/adapter_patterns.h"

#include <algorithm>

#include "gmock/gmock.h"
#include "models/model.h"
#include "tests/models/tiny.h"
#include "train/config/adapter.h"
#include "train/config/resolve_model.h"

namespace trainyard {
namespace {

using ::testing::ElementsAre;

}  // namespace
}  // namespace trainyard
