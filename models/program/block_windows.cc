#include "models/program/block_windows.h"

#include <utility>

namespace trainyard {

void BlockWindows::Add(int block, int window, Call gather) {
  if (blocks_.size() <= size_t(block)) blocks_.resize(size_t(block) + 1);
  blocks_[size_t(block)].window = window;
  blocks_[size_t(block)].gathers.push_back(std::move(gather));
}

void BlockWindows::Fetch(int block, int ahead) {
  Gather(block);
  const int window = blocks_[size_t(block)].window;
  const bool other = ahead != kNoBlock && size_t(ahead) < blocks_.size() &&
                     blocks_[size_t(ahead)].window != window;
  if (other) Gather(ahead);
  stream_.Wait(windows_[size_t(window)].ticket);
}

void BlockWindows::Forget(int ahead) {
  for (Window& window : windows_) window.block = kNoBlock;
  Gather(ahead);
}

void BlockWindows::Gather(int block) {
  if (block == kNoBlock || size_t(block) >= blocks_.size()) return;
  const Block& wanted = blocks_[size_t(block)];
  Window& window = windows_[size_t(wanted.window)];
  if (wanted.gathers.empty() || window.block == block) return;
  for (const Call& gather : wanted.gathers) window.ticket = stream_.Post(gather);
  window.block = block;
}

}  // namespace trainyard
