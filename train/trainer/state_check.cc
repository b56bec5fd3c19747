#include "train/trainer/state_check.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/status_macros.h"

namespace trainyard {
namespace {

constexpr char kWhatNow[] =
    "; the memory or the device of that rank may be faulty: the attempt ends, and training goes "
    "on from the last checkpoint";

// Returns for example "master weights and second moments".
std::string Different(const WordSums& a, const WordSums& b) {
  std::vector<const char*> names;
  if (a.master != b.master) names.push_back("master weights");
  if (a.m != b.m) names.push_back("first moments");
  if (a.v != b.v) names.push_back("second moments");
  return absl::StrJoin(names, " and ");
}

// The facts that each rank sends to the others.
struct Told {
  int64_t first_replica = 0;  // Identifies the set of replicas.
  int64_t in_memory = 1;      // 0: memory is not as the last update left it.
  WordSums written = {}, memory = {};
  int64_t first_frozen_replica = 0;
  uint32_t frozen_at_begin = 0, frozen = 0;
};
static_assert(sizeof(Told) % sizeof(int64_t) == 0);

std::string Ranks(const std::vector<int>& ranks) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "));
}

// Compares ranks that should have written the same.
absl::Status CompareSet(std::span<const Told> all, const std::vector<int>& set, int64_t step) {
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::vector<int>> by_sums;
  for (const int rank : set) {
    const WordSums& sums = all[size_t(rank)].written;
    by_sums[{sums.master, sums.m, sums.v}].push_back(rank);
  }
  if (by_sums.size() == 1) return absl::OkStatus();
  const auto& most = *std::max_element(
      by_sums.begin(), by_sums.end(),
      [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (2 * most.second.size() <= set.size()) {
    return absl::InternalError(absl::StrCat("step ", step, ": ", Ranks(set),
                                            " should hold the same, and no majority of them does",
                                            kWhatNow));
  }
  std::vector<int> others;
  for (const int rank : set) {
    if (std::count(most.second.begin(), most.second.end(), rank) == 0) others.push_back(rank);
  }
  const std::string what =
      Different(all[size_t(others[0])].written, all[size_t(most.second[0])].written);
  return absl::InternalError(absl::StrCat("step ", step, ": ", what, " of ", Ranks(others),
                                          " are not those of the replicas, ", Ranks(most.second),
                                          kWhatNow));
}

absl::Status JudgeFrozen(std::span<const Told> all, int64_t step) {
  std::map<int64_t, int> first_of;  // By set.
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const Told& told = all[rank];
    if (told.frozen != told.frozen_at_begin) {
      return absl::InternalError(absl::StrCat("step ", step, ": frozen parameters of rank ", rank,
                                              " changed in memory since training began", kWhatNow));
    }
    const int first = first_of.emplace(told.first_frozen_replica, int(rank)).first->second;
    if (told.frozen == all[size_t(first)].frozen) continue;
    return absl::InternalError(absl::StrCat("step ", step, ": ranks ", first, " and ", rank,
                                            " should hold the same frozen parameters, and do not",
                                            kWhatNow));
  }
  return absl::OkStatus();
}

absl::Status Judge(std::span<const Told> all, int64_t step) {
  RETURN_IF_ERROR(JudgeFrozen(all, step));
  std::map<int64_t, std::vector<int>> sets;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].in_memory == 0) {
      return absl::InternalError(
          absl::StrCat("step ", step, ": ", Different(all[rank].written, all[rank].memory),
                       " of rank ", rank, " changed in memory after the update", kWhatNow));
    }
    sets[all[rank].first_replica].push_back(int(rank));
  }
  for (const auto& [first, set] : sets) {
    if (absl::Status status = CompareSet(all, set, step); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<int> ReplicasOf(const Program& program) {
  AxisSet copies = program.mesh.active();
  bool any = false;
  for (const ParameterBox& box : program.Parameters()) {
    if (box.state) continue;
    for (const Bucket& bucket : program.buckets) {
      if (bucket.flat.Intersect(box.flat).empty()) continue;
      copies = copies & (box.copy_axes - bucket.zero_axes);
      any = true;
    }
  }
  return program.mesh.Members(any ? copies : AxisSet());
}

namespace {

// The axes along which ranks hold the same frozen parameters: the same axes on all of them, also
// where a rank's shard is padding.
AxisSet CopiesOfFrozen(const Program& program) {
  AxisSet copies = program.frozen_buckets.empty() ? AxisSet() : program.mesh.active();
  for (const FrozenBucket& bucket : program.frozen_buckets) {
    for (const ParameterStorage& storage : program.storages) {
      if (!storage.frozen || storage.flat.Intersect(bucket.flat).empty()) continue;
      for (const ParameterBox& box : BoxesOf(storage, program.mesh)) {
        copies = copies & (box.copy_axes - bucket.zero_axes);
      }
    }
  }
  return copies;
}

}  // namespace

StateCheck::StateCheck(const Executable& executable, Collective& everyone)
    : executable_(executable), everyone_(everyone), replicas_(ReplicasOf(executable.program())) {
  const Mesh& mesh = executable.program().mesh;
  for (ParameterBox& box : executable.program().OwnedParameters()) {
    if (!box.state) checked_.push_back(std::move(box));
  }
  frozen_ = executable.program().FrozenParameters();
  frozen_replicas_ = mesh.Members(CopiesOfFrozen(executable.program()));
}

void StateCheck::Begin() { frozen_at_begin_ = FrozenInMemory(); }

absl::Status StateCheck::AfterUpdate(const StepState& state) {
  if (state.finite == 0) return absl::OkStatus();  // There was no update.
  const std::optional<WordSums> before = std::exchange(written_, state.written);
  if (!before || *before == state.read) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("step ", state.step, ": ", Different(*before, state.read),
                                          " of rank ", everyone_.rank(),
                                          " changed in memory since the update before", kWhatNow));
}

absl::Status StateCheck::Compare(int64_t step, bool look_at_memory) {
  // Without an update, which all ranks make together, there are only sums of frozen parameters.
  const WordSums written = written_.value_or(WordSums());
  Told mine{
      .first_replica = *std::min_element(replicas_.begin(), replicas_.end()),
      .written = written,
      .memory = look_at_memory && written_ ? SumsInMemory() : written,
      .first_frozen_replica = *std::min_element(frozen_replicas_.begin(), frozen_replicas_.end()),
      .frozen_at_begin = frozen_at_begin_,
      .frozen = look_at_memory ? FrozenInMemory() : frozen_at_begin_};
  mine.in_memory = mine.memory == mine.written;
  std::vector<Told> all(size_t(everyone_.size()), mine);
  const int64_t words = sizeof(Told) / sizeof(int64_t);
  if (everyone_.size() > 1) {
    everyone_.AllGather({&mine, DType::kI64, Shape{words}},
                        Tensor{{all.data(), DType::kI64, Shape{words * everyone_.size()}}});
  }
  return Judge(all, step);
}

uint32_t StateCheck::FrozenInMemory() const {
  std::vector<Tensor> views;
  for (const ParameterBox& box : frozen_) views.push_back(executable_.frozen(box));
  return executable_.SumWords(views);
}

WordSums StateCheck::SumsInMemory() const {
  const auto sum = [&](FlatBuffer buffer) {
    std::vector<Tensor> views;
    for (const ParameterBox& box : checked_) {
      if (!executable_.program().place(buffer).Find(box.flat)) continue;
      views.push_back(executable_.flat(buffer, box.flat));
    }
    return executable_.SumWords(views);
  };
  // The weights of split masters lie where their gradients do, in another buffer.
  std::vector<Tensor> weights;
  for (const ParameterBox& box : checked_) {
    const auto [buffer, range] = executable_.program().PlaceOfMaster(box.flat);
    if (buffer == FlatBuffer::kMaster) continue;
    weights.push_back(executable_.flat(FlatBuffer::kCompute, range));
  }
  return {.master = sum(FlatBuffer::kMaster) + sum(FlatBuffer::kRemainder) +
                    executable_.SumWords(weights),
          .m = sum(FlatBuffer::kFirstMoment),
          .v = sum(FlatBuffer::kSecondMoment)};
}

}  // namespace trainyard
