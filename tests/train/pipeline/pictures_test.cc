// Proves that the documentation's pictures show the schedules that the code makes.

#include <gmock/gmock.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "tests/train/pipeline/draw.h"

namespace trainyard {
namespace {

struct Picture {
  const char* file;
  ScheduleOptions options;
};

const Picture kPictures[] = {
    {"schedule-gpipe.svg", {.kind = FindSchedule("GPIPE"), .stages = 4, .micro_batches = 8}},
    {"schedule-1f1b.svg", {.kind = FindSchedule("ONE_F_ONE_B"), .stages = 4, .micro_batches = 8}},
    {"schedule-interleaved-1f1b.svg",
     {.kind = FindSchedule("INTERLEAVED_ONE_F_ONE_B"),
      .stages = 4,
      .chunks = 2,
      .micro_batches = 8}},
    {"schedule-zero-bubble.svg",
     {.kind = FindSchedule("ZERO_BUBBLE"), .stages = 4, .micro_batches = 8}},
    {"schedule-v-half.svg",
     {.kind = FindSchedule("V_HALF"), .stages = 4, .chunks = 2, .micro_batches = 8}},
    {"schedule-v-min.svg",
     {.kind = FindSchedule("V_MIN"), .stages = 4, .chunks = 2, .micro_batches = 8}},
    {"schedule-v-zb.svg",
     {.kind = FindSchedule("V_ZB"), .stages = 4, .chunks = 2, .micro_batches = 8}},
};

TEST(Pictures, AreWhatTheCodeDraws) {
  for (const Picture& picture : kPictures) {
    const std::string committed =
        std::string(getenv("TRAINYARD_SOURCE")) + "/docs/images/" + picture.file;
    std::stringstream found;
    found << std::ifstream(committed).rdbuf();
    const std::string wanted = testing::DrawSchedule(*MakeSchedule(picture.options));
    if (found.str() == wanted) continue;
    const std::string drawn = ::testing::TempDir() + picture.file;
    std::ofstream(drawn) << wanted;
    ADD_FAILURE() << "out of date; look at it, then: cp " << drawn << " " << committed;
  }
}

}  // namespace
}  // namespace trainyard
