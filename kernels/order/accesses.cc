#include "kernels/order/accesses.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "common/check.h"

namespace trainyard {

Accesses::Line Accesses::NewLine() {
  const MutexLock lock(mutex_);
  return NewLineLocked();
}

Accesses::Line Accesses::NewLineLocked() {
  const Line line = Line(clocks_.size());
  Clock clock(size_t(line) + 1);
  clock.back() = 1;  // Later than what other lines know of this one.
  clocks_.push_back(std::move(clock));
  return line;
}

Accesses::Clock Accesses::Now(Line line) {
  const MutexLock lock(mutex_);
  return NowLocked(line);
}

Accesses::Clock Accesses::NowLocked(Line line) {
  Clock& clock = clocks_[size_t(line)];
  Clock now = clock;
  ++clock[size_t(line)];
  return now;
}

void Accesses::Join(Line line, const Clock& moment) {
  const MutexLock lock(mutex_);
  JoinLocked(line, moment);
}

void Accesses::JoinLocked(Line line, const Clock& moment) {
  Clock& clock = clocks_[size_t(line)];
  if (clock.size() < moment.size()) clock.resize(moment.size());
  for (size_t i = 0; i < moment.size(); ++i) clock[i] = std::max(clock[i], moment[i]);
}

Accesses::Line Accesses::Fork(Line from) {
  const MutexLock lock(mutex_);
  std::vector<Line>& free = ended_[from];
  if (free.empty()) free.push_back(NewLineLocked());
  const Line line = free.back();
  free.pop_back();
  JoinLocked(line, NowLocked(from));
  return line;
}

void Accesses::End(Line forked, Line into) {
  const MutexLock lock(mutex_);
  JoinLocked(into, NowLocked(forked));
  ended_[into].push_back(forked);
}

Accesses::Access Accesses::NewAccess(Line line, const char* op, bool writes) {
  return {.line = line,
          .time = clocks_[size_t(line)][size_t(line)],
          .op = op,
          .author = author_ ? author_(line) : nullptr,
          .writes = writes};
}

bool Accesses::ComesBefore(const Access& earlier, Line line) {
  const Clock& clock = clocks_[size_t(line)];
  const size_t of = size_t(earlier.line);
  return earlier.line == line || (of < clock.size() && clock[of] >= earlier.time);
}

void Accesses::Compare(const Access& earlier, const Access& now, const Cells::value_type& cell) {
  if (earlier.line < 0 || conflict_ || ComesBefore(earlier, now.line)) return;
  conflict_ = {.first = earlier,
               .second = now,
               .data = cell.first,
               .bytes = size_t(cell.second.end - cell.first)};
}

void Accesses::SplitAt(const std::byte* at) {
  auto it = cells_.upper_bound(at);
  if (it == cells_.begin()) return;
  --it;
  if (it->first == at || it->second.end <= at) return;
  cells_.emplace_hint(std::next(it), at, it->second);
  it->second.end = at;
}

template <typename F>
void Accesses::ForEachCell(const void* data, size_t bytes, F&& f) {
  const std::byte* at = static_cast<const std::byte*>(data);
  const std::byte* const end = at + bytes;
  SplitAt(at);
  SplitAt(end);
  for (auto it = cells_.lower_bound(at); at < end; at = it->second.end, ++it) {
    if (it == cells_.end() || it->first > at) {
      const std::byte* const next = it == cells_.end() ? end : std::min(end, it->first);
      it = cells_.emplace_hint(it, at, Cell{.end = next});
    }
    f(*it);
  }
}

void Accesses::Read(Line line, const char* op, const void* data, size_t bytes) {
  if (data == nullptr || bytes == 0) return;
  const MutexLock lock(mutex_);
  const Access access = NewAccess(line, op, false);
  ForEachCell(data, bytes, [&](Cells::value_type& at) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Cell& cell = at.second;
    Compare(cell.write, access, at);
    const auto mine = std::find_if(cell.reads.begin(), cell.reads.end(),
                                   [&](const Access& read) { return read.line == line; });
    if (mine == cell.reads.end()) {
      cell.reads.push_back(access);
    } else {
      *mine = access;
    }
  });
}

void Accesses::Write(Line line, const char* op, const void* data, size_t bytes,
                     std::span<const Line> after) {
  if (data == nullptr || bytes == 0) return;
  const MutexLock lock(mutex_);
  const Access access = NewAccess(line, op, true);
  const auto is_known = [&](const Access& earlier) {
    return std::count(after.begin(), after.end(), earlier.line) > 0;
  };
  ForEachCell(data, bytes, [&](Cells::value_type& at) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    Cell& cell = at.second;
    Compare(cell.write, access, at);
    for (const Access& read : cell.reads) {
      if (!is_known(read)) Compare(read, access, at);
    }
    cell.write = access;
    // Nothing has joined the known lines, so later work still has to.
    cell.reads.erase(std::remove_if(cell.reads.begin(), cell.reads.end(), std::not_fn(is_known)),
                     cell.reads.end());
  });
}

void Accesses::set_author(std::function<const void*(Line)> author) {
  const MutexLock lock(mutex_);
  author_ = std::move(author);
}

std::optional<Accesses::Conflict> Accesses::conflict() const {
  const MutexLock lock(mutex_);
  return conflict_;
}

}  // namespace trainyard
