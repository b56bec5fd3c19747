#include "models/program/ops/expert_rounds.h"

#include <algorithm>

#include "common/check.h"

namespace trainyard::ops {

ExpertRounds::ExpertRounds(const ExpertRoundsOptions& options)
    : options_(options),
      local_(options.experts / options.ranks),
      counts_(size_t(options.ranks * options.experts)),
      order_(size_t(options.slots)),
      sent_(size_t(options.slots)),
      place_(size_t(options.slots)),
      grouped_(size_t(options.bound)),
      ungrouped_(size_t(options.bound)),
      offsets_(size_t(local_ + 1)),
      next_(size_t(local_)),
      send_rows_(size_t(options.ranks)),
      receive_rows_(size_t(options.ranks)) {
  CHECK(options.experts % options.ranks == 0 && options.bound >= 1)
      << options.experts << " experts over " << options.ranks << " ranks, bound " << options.bound;
}

int64_t ExpertRounds::RowsBetween(int64_t source, int64_t target) const {
  int64_t rows = 0;
  for (int64_t g = 0; g < local_; ++g) {
    rows += counts_[size_t(source * options_.experts + target * local_ + g)];
  }
  return rows;
}

int64_t ExpertRounds::Count() const {
  int64_t most = 1;
  for (int64_t target = 0; target < options_.ranks; ++target) {
    int64_t rows = 0;
    for (int64_t source = 0; source < options_.ranks; ++source) rows += RowsBetween(source, target);
    most = std::max(most, rows);
  }
  return (most + options_.bound - 1) / options_.bound;
}

void ExpertRounds::Begin(int64_t round) {
  const int64_t begin = round * options_.bound, end = begin + options_.bound;
  Send(begin, end);
  Receive(begin, end);
}

// All rows that a rank receives are numbered in one order. This rank's rows come after those of the
// ranks before it.
void ExpertRounds::Send(int64_t begin, int64_t end) {
  std::fill(place_.begin(), place_.end(), -1);
  num_sent_ = 0;
  int64_t slot = 0;  // The target's first slot in `order`.
  for (int64_t target = 0; target < options_.ranks; ++target) {
    int64_t before = 0;
    for (int64_t source = 0; source < options_.rank; ++source) {
      before += RowsBetween(source, target);
    }
    const int64_t rows = RowsBetween(options_.rank, target);
    const int64_t from = std::clamp<int64_t>(begin - before, 0, rows);
    const int64_t to = std::clamp<int64_t>(end - before, 0, rows);
    send_rows_[size_t(target)] = to - from;
    for (int64_t i = from; i < to; ++i) {
      const int32_t sent = order_[size_t(slot + i)];
      place_[size_t(sent)] = int32_t(num_sent_);
      sent_[size_t(num_sent_++)] = sent;
    }
    slot += rows;
  }
  CHECK(slot == options_.slots) << slot << " slots counted of " << options_.slots;
}

void ExpertRounds::Receive(int64_t begin, int64_t end) {
  // Calls f(source, expert, rows) for the rows of the round, in the order in which they arrive.
  const auto for_each = [&](auto&& f) {
    int64_t at = 0;
    for (int64_t source = 0; source < options_.ranks; ++source) {
      for (int64_t g = 0; g < local_; ++g) {
        const int64_t rows =
            counts_[size_t(source * options_.experts + options_.rank * local_ + g)];
        const int64_t from = std::max(at, begin), to = std::min(at + rows, end);
        if (from < to) f(source, g, to - from);
        at += rows;
      }
    }
  };
  std::fill(receive_rows_.begin(), receive_rows_.end(), 0);
  std::fill(offsets_.begin(), offsets_.end(), 0);
  for_each([&](int64_t source, int64_t g, int64_t rows) {
    receive_rows_[size_t(source)] += rows;
    offsets_[size_t(g + 1)] += int32_t(rows);
  });
  for (int64_t g = 0; g < local_; ++g) offsets_[size_t(g + 1)] += offsets_[size_t(g)];
  std::copy_n(offsets_.begin(), local_, next_.begin());
  int32_t received = 0;
  for_each([&](int64_t, int64_t g, int64_t rows) {
    for (int64_t i = 0; i < rows; ++i, ++received) {
      const int32_t place = next_[size_t(g)]++;
      grouped_[size_t(place)] = received;
      ungrouped_[size_t(received)] = place;
    }
  });
}

}  // namespace trainyard::ops
