#include "worker/channel/exit_cause.h"

#include <algorithm>
#include <array>
#include <utility>

namespace trainyard {
namespace {

constexpr std::array<std::pair<ExitCause, absl::string_view>, 11> kNames = {{
    {ExitCause::kCompleted, "completed"},
    {ExitCause::kStopped, "stopped"},
    {ExitCause::kBadInput, "bad_input"},
    {ExitCause::kNotFinite, "not_finite"},
    {ExitCause::kPeerLost, "peer_lost"},
    {ExitCause::kDeviceError, "device_error"},
    {ExitCause::kSignal, "signal"},
    {ExitCause::kHung, "hung"},
    {ExitCause::kOther, "other"},
    {ExitCause::kStorage, "storage"},
    {ExitCause::kSuperseded, "superseded"},
}};

}  // namespace

absl::string_view Name(ExitCause cause) {
  const auto it = std::find_if(kNames.begin(), kNames.end(),
                               [&](const auto& pair) { return pair.first == cause; });
  return it == kNames.end() ? "other" : it->second;
}

ExitCause ParseExitCause(absl::string_view name) {
  const auto it = std::find_if(kNames.begin(), kNames.end(),
                               [&](const auto& pair) { return pair.second == name; });
  return it == kNames.end() ? ExitCause::kOther : it->first;
}

}  // namespace trainyard
