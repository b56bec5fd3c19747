// The line of a step says what a person goes by, and what parsers of NeMo's logs look for.

#include "worker/trainer/progress.h"

#include <gtest/gtest.h>

namespace trainyard {
namespace {

TEST(Progress, TheTimeLeftIsThatOfTheStepsToCome) {
  StepRecord record;
  record.step = 3;
  record.loss = 2.34561;
  record.grad_norm = 0.8123;
  record.learning_rate = 3e-4;
  record.tokens = 3000;
  record.seconds = 1.5;
  EXPECT_EQ(ProgressLine(record, 5, 2),
            "step 3/5 | loss 2.3456 | grad norm 0.812 | lr 3.00e-04 | 2000 tokens/s | "
            "train_step_timing in s: 1.5 | eta 4s");
}

}  // namespace
}  // namespace trainyard
