#include "models/program/block_windows.h"

namespace trainyard {

void BlockWindows::Add(int block, int window) {
  if (windows_.size() <= size_t(block)) windows_.resize(size_t(block) + 1, kNoWindow);
  windows_[size_t(block)] = window;
}

void BlockWindows::Fetch(int block, int ahead) {
  Gather(block);
  if (window_of(ahead) != window_of(block)) Gather(ahead);
}

void BlockWindows::Forget(int ahead) {
  held_.fill(kNoBlock);
  Gather(ahead);
}

int BlockWindows::window_of(int block) const {
  return block == kNoBlock || size_t(block) >= windows_.size() ? kNoWindow
                                                               : windows_[size_t(block)];
}

void BlockWindows::Gather(int block) {
  const int window = window_of(block);
  if (window == kNoWindow || held_[size_t(window)] == block) return;
  gather_(block);
  held_[size_t(window)] = block;
}

}  // namespace trainyard
