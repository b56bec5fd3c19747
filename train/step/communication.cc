#include "train/step/communication.h"

#include "train/pipeline/message.h"

namespace trainyard {
namespace {

constexpr Group kStages{Stream::kCompute, Axis::kPipeline};

}  // namespace

CommunicationTable StepCommunication(const Program& program, const PipelineSchedule& schedule) {
  const ScheduleOptions& options = schedule.options;
  CommunicationTable table = CommunicationOf(program, options.micro_batches);
  const int stage = program.mesh.coordinate(Axis::kPipeline);
  for (const PipelineAction& action : schedule.stages[size_t(stage)].actions) {
    const Chunk& chunk = program.chunks[size_t(action.chunk)];
    const bool forward = action.kind == PipelineAction::kForward;
    const auto add = [&](CollectiveOp op, Value value) {
      AddTo(table, kStages, CallsOf(op, 1, int64_t(program.info(value).bytes()), options.stages));
    };
    if (ReceiveBefore(options, stage, action)) {
      add(CollectiveOp::kReceive, forward ? chunk.received : chunk.received_gradient);
    }
    if (SendAfter(options, stage, action)) {
      const Value sent = forward ? chunk.sent : chunk.sent_gradient;
      add(CollectiveOp::kSend, sent);
      add(CollectiveOp::kWaitSend, sent);
    }
  }
  return table;
}

}  // namespace trainyard
