#include "controller/service/stream_counts.h"

#include <grpc/grpc.h>
#include <grpc/support/alloc.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/strip.h"
#include "common/json.h"
#include "controller/service/connection_users.h"

namespace trainyard::controller {
namespace {

using nlohmann::json;

// A connection gets its number a little before it is listed, so one with a smaller number may be
// listed later.
constexpr int64_t kMayBeLate = 64;

json Parse(char* text) {
  if (text == nullptr) return json::object();
  json parsed = ParseJson<json>(text);
  ::gpr_free(text);
  return parsed.is_object() ? parsed : json::object();
}

// Numbers of 64 bits are texts in JSON made of messages; zeros are left out.
int64_t Number(const json& object, const char* name) {
  int64_t number = 0;
  const auto found = object.find(name);
  if (found == object.end() || !found->is_string()) return 0;
  return absl::SimpleAtoi(found->get_ref<const std::string&>(), &number) ? number : 0;
}

json Member(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? json() : *found;
}

}  // namespace

void Transports::ForEachNew(const std::function<void(const std::string&, int64_t)>& each) {
  int64_t newest = newest_;
  for (const json& server : Member(Parse(::grpc_channelz_get_servers(0)), "server")) {
    const int64_t id = Number(Member(server, "ref"), "serverId");
    int64_t next = std::max<int64_t>(1, newest_ - kMayBeLate);
    for (bool end = false; !end;) {
      const json sockets = Parse(::grpc_channelz_get_server_sockets(id, next, 0));
      for (const json& socket : Member(sockets, "socketRef")) {
        const int64_t number = Number(socket, "socketId");
        const std::string text = socket.value("name", "");
        absl::string_view name = text;
        if (absl::ConsumePrefix(&name, "chttp2 ")) each(PeerOf(name), number);
        next = std::max(next, number + 1);
      }
      // An empty answer ends the loop whatever it says.
      end = sockets.value("end", true) || Member(sockets, "socketRef").empty();
    }
    newest = std::max(newest, next - 1);
  }
  newest_ = newest;
}

std::optional<StreamCounts> CountsOf(int64_t transport) {
  const json socket = Member(Parse(::grpc_channelz_get_socket(transport)), "socket");
  if (!socket.is_object()) return std::nullopt;
  const json data = Member(socket, "data");
  if (!data.is_object()) return StreamCounts{};
  return StreamCounts{.started = uint64_t(Number(data, "streamsStarted")),
                      .ended = uint64_t(Number(data, "streamsSucceeded")) +
                               uint64_t(Number(data, "streamsFailed"))};
}

}  // namespace trainyard::controller
