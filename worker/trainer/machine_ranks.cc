#include "worker/trainer/machine_ranks.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "common/files.h"
#include "common/log.h"
#include "common/status_macros.h"
#include "train/generate/model_part.h"
#include "worker/trainer/nccl_interface.h"

namespace trainyard {
namespace {

constexpr char kVisible[] = "CUDA_VISIBLE_DEVICES";

// How long a follower waits for what rank 0 does next: rank 0 may wait for whoever reads its
// output. If rank 0 ends, the follower does, too.
constexpr absl::Duration kFollowersPatience = absl::Hours(24 * 7);
// How long rank 0 waits for the followers at the end.
constexpr absl::Duration kFarewell = absl::Seconds(10);

// Returns how many GPUs have a file ("nvidia0") in the directory. 0: not known. CUDA itself counts
// only what kVisible names when CUDA is first used, and kVisible must be set before that.
size_t CountGpuFiles(const std::string& directory) {
  size_t count = 0;
  for (const std::string& name : ListDirectory(directory).value_or(std::vector<std::string>())) {
    absl::string_view number = name;
    uint32_t unused = 0;
    count += absl::ConsumePrefix(&number, "nvidia") && absl::SimpleAtoi(number, &unused);
  }
  return count;
}

absl::StatusOr<MachineRank> Meet(int number, const MachineRanks& ranks, RankDevice device,
                                 const std::string& gpu, std::unique_ptr<Rendezvous> rendezvous) {
  RankConfig config;
  config.rank = number;
  config.world = ranks.size;
  config.device_kind = device.backend->device();
  if (number > 0) config.patience_seconds = absl::ToDoubleSeconds(kFollowersPatience);
  if (config.device_kind == DeviceKind::kCuda) {
    config.device_uuid = gpu;
    RETURN_IF_ERROR(KeepNcclOn(config.interface));
  }
  MachineRank rank;
  rank.device = device;
  rank.threads = std::max(1, ranks.threads / ranks.size);
  ASSIGN_OR_RETURN(rank.peers, Meet(config, device, std::move(rendezvous)));
  ASSIGN_OR_RETURN(rank.gang, TensorGang::Create(rank.peers.world()));
  rank.gang->everyone().Barrier();
  return rank;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> GpusOf(const MachineRanks& ranks) {
  const auto too_few = [&](size_t gpus, absl::string_view where) {
    return absl::InvalidArgumentError(absl::StrCat("tensor: wanted at most ", gpus,
                                                   " ranks, one for each GPU of ", where,
                                                   ", found ", ranks.size));
  };
  std::vector<std::string> gpus;
  if (ranks.gpus) gpus = absl::StrSplit(*ranks.gpus, ',', absl::SkipWhitespace());
  for (int i = 0; !ranks.gpus && i < ranks.size; ++i) gpus.push_back(absl::StrCat(i));
  if (gpus.size() < size_t(ranks.size)) return too_few(gpus.size(), kVisible);
  const std::set<std::string> distinct(gpus.begin(), gpus.begin() + ranks.size);
  const size_t here = CountGpuFiles(ranks.device_files);
  if (here > 0 && here < distinct.size()) return too_few(here, "this machine");
  return gpus;
}

absl::StatusOr<MachineRank> LeadRanks(const MachineRanks& ranks,
                                      std::unique_ptr<FollowerProcesses>& followers) {
  const absl::StatusOr<std::vector<std::string>> gpus = GpusOf(ranks);
  if (ranks.device == "cuda") RETURN_IF_ERROR(gpus.status());
  const bool lacks_gpus = ranks.device == "auto" && !gpus.ok();
  if (lacks_gpus) LogInfo("runs_on_cpu", {{"reason", gpus.status().message()}});
  // Before CUDA is used.
  if (ranks.device != "cpu" && gpus.ok()) ::setenv(kVisible, gpus->front().c_str(), 1);
  ASSIGN_OR_RETURN(const RankDevice device, DeviceNamed(lacks_gpus ? "cpu" : ranks.device));
  const bool gpu = device.backend->device() == DeviceKind::kCuda;
  const auto command = [&](int rank, const std::string& directory) {
    FollowerProcesses::Command command = {
        .arguments = {absl::StrCat("--follow=", rank), absl::StrCat("--rendezvous=", directory),
                      absl::StrCat("--tensor=", ranks.size),
                      absl::StrCat("--device=", gpu ? "cuda" : "cpu"),
                      absl::StrCat("--threads=", ranks.threads)},
        .variables = {}};
    if (gpu) command.variables = {absl::StrCat(kVisible, "=", (*gpus)[size_t(rank)])};
    return command;
  };
  ASSIGN_OR_RETURN(followers, FollowerProcesses::Start(ranks.size, command));
  ASSIGN_OR_RETURN(MachineRank rank,
                   Meet(0, ranks, device, gpu ? gpus->front() : "", followers->NewRendezvous()));
  // A command that is interrupted leaves nothing behind. NCCL needs the rendezvous later.
  if (!rank.peers.nccl) followers->RemoveDirectory();
  return rank;
}

void EndRanks(MachineRank rank, FollowerProcesses& followers) {
  rank.gang->Tell(TensorGang::Order::kEnd, {});
  // The worlds of the ranks wait for each other at their ends, too.
  { const MachineRank ended = std::move(rank); }
  followers.WaitForAll(kFarewell);
}

absl::Status FollowAsRank(int rank, const std::string& directory, const MachineRanks& ranks) {
  ASSIGN_OR_RETURN(const RankDevice device, DeviceNamed(ranks.device));
  ASSIGN_OR_RETURN(const MachineRank self, Meet(rank, ranks, device, ranks.gpus.value_or(""),
                                                DirectoryRendezvous(directory, nullptr)));
  return FollowLeader(*self.gang, {.backend = *device.backend, .threads = self.threads});
}

}  // namespace trainyard
