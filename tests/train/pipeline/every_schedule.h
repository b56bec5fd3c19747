// Every legal combination of options up to a size, for tests of what holds in all schedules.

#pragma once

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "train/pipeline/schedule.h"

namespace trainyard::testing {

// 1 to `stages` stages, 1 to `chunks` chunks, 1 to 3 x stages micro-batches.
inline std::vector<ScheduleOptions> EverySchedule(int stages, int chunks) {
  std::vector<ScheduleOptions> legal;
  for (const ScheduleKind& kind : AllSchedules()) {
    for (int p = 1; p <= stages; ++p) {
      for (int v = 1; v <= chunks; ++v) {
        for (int m = 1; m <= 3 * p; ++m) {
          const ScheduleOptions options{
              .kind = &kind, .stages = p, .chunks = v, .micro_batches = m};
          if (options.Validate().ok()) legal.push_back(options);
        }
      }
    }
  }
  return legal;
}

inline std::string Describe(const ScheduleOptions& o) {
  return absl::StrCat(o.kind->name, ", ", o.stages, " stages, ", o.chunks, " chunks, ",
                      o.micro_batches, " micro-batches");
}

}  // namespace trainyard::testing
