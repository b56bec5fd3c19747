#include "train/step/next_block.h"

#include "models/program/block_windows.h"

namespace trainyard {

const std::vector<int>& FetchedBlocks(const Program& program, const PipelineAction& action) {
  static const std::vector<int> kNone;
  const bool forward = action.kind == PipelineAction::kForward;
  const List list = forward ? List::kForward : List::kBackwardInput;
  const auto found = program.fetches.find({list, action.chunk});
  const bool none = action.kind == PipelineAction::kBackwardWeight;
  return none || found == program.fetches.end() ? kNone : found->second;
}

std::vector<int> NextBlocks(const Program& program, const std::vector<PipelineAction>& actions) {
  std::vector<int> next(actions.size() + 1);
  int wanted = BlockWindows::kNoBlock;
  for (size_t i = actions.size(); i-- > 0;) {
    next[i] = wanted;
    const std::vector<int>& fetched = FetchedBlocks(program, actions[i]);
    if (!fetched.empty()) wanted = fetched.front();
  }
  next.back() = wanted;
  return next;
}

}  // namespace trainyard
