// The accesses to memory of work that runs at once, and what orders them. Finds accesses to the
// same bytes, one of them a write, that nothing orders.
//
// A *line* is work that runs in its own order: a stream, or a message under way. Work of two lines
// is ordered only where one line has joined a moment of the other. Each line has a vector clock,
// and each byte remembers its last write and the reads since then (Flanagan and Freund 2009,
// "FastTrack", section 3). So whether two accesses are ordered does not depend on which of them
// happened to come first.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "common/mutex.h"

namespace trainyard {

// Thread-safe. The memory itself is never touched.
class Accesses {
 public:
  using Line = int;
  // By line: the time up to which the line's work comes before.
  using Clock = std::vector<int64_t>;

  struct Access {
    Line line = -1;  // -1: none.
    int64_t time = 0;
    const char* op = "";
    const void* author = nullptr;  // As set_author found it.
    bool writes = false;
  };
  struct Conflict {
    Access first, second;  // As they came.
    const std::byte* data = nullptr;
    size_t bytes = 0;
  };

  Line NewLine();
  // The moment after all of the line's work so far.
  Clock Now(Line line);
  // Orders all later work of the line after the moment.
  void Join(Line line, const Clock& moment);
  // Begins a line whose work comes after the work so far of `from`. It must be ended.
  Line Fork(Line from);
  // Ends a forked line, and orders all later work of `into` after it.
  void End(Line forked, Line into);

  // `op` must live as long as this object. Empty memory is ignored.
  void Read(Line line, const char* op, const void* data, size_t bytes);
  // `after`: lines whose accesses so far are known to come before, though no moment was joined.
  void Write(Line line, const char* op, const void* data, size_t bytes,
             std::span<const Line> after = {});

  // Sets a function that says for whom a line works. It is called at each access.
  void set_author(std::function<const void*(Line)> author);

  // The first two accesses found that nothing orders.
  std::optional<Conflict> conflict() const;

 private:
  // What is known of the bytes up to `end`.
  struct Cell {
    const std::byte* end = nullptr;
    Access write = {};
    absl::InlinedVector<Access, 2> reads = {};  // Since the write; the last of each line.
  };
  using Cells = std::map<const std::byte*, Cell>;  // By the first byte. They do not overlap.

  Line NewLineLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Clock NowLocked(Line line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void JoinLocked(Line line, const Clock& moment) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Access NewAccess(Line line, const char* op, bool writes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool ComesBefore(const Access& earlier, Line line) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Compare(const Access& earlier, const Access& now, const Cells::value_type& cell)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SplitAt(const std::byte* at) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls f(cell) for cells that together have exactly these bytes.
  template <typename F>
  void ForEachCell(const void* data, size_t bytes, F&& f) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable Mutex mutex_;
  std::vector<Clock> clocks_ ABSL_GUARDED_BY(mutex_);  // By line.
  // Forked lines that may be used again, by the line that came after their end.
  std::map<Line, std::vector<Line>> ended_ ABSL_GUARDED_BY(mutex_);
  Cells cells_ ABSL_GUARDED_BY(mutex_);
  std::function<const void*(Line)> author_ ABSL_GUARDED_BY(mutex_);
  std::optional<Conflict> conflict_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace trainyard
