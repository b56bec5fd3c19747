// Proves
#include "train/hf/import_adapter.h"
