#include "nccl.h"

#include <algorithm>
#include <array>
#include <iostream>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "common/check.h"
#include "kernels/collective/reduce.h"
#include "streams.h"

namespace {

using cuda_emulation::Lock;
using cuda_emulation::LockDevice;
using trainyard::DType;

enum class Kind { kAllReduce, kBroadcast, kAllGather, kReduceScatter, kSend, kReceive };

bool IsMessage(Kind kind) { return kind == Kind::kSend || kind == Kind::kReceive; }

size_t SizeOf(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclFloat64:
      return 8;
  }
  return 0;
}

// What a rank asks for.
struct Request {
  Kind kind;
  const void* send;
  void* receive;
  size_t count;
  ncclDataType_t type;
  ncclRedOp_t op;
  int peer;  // Or root.
  cudaStream_t stream;

  // What ranks of a collective agree on.
  auto Agreed() const { return std::tuple(kind, count, type, op, peer); }
  size_t bytes() const { return count * SizeOf(type); }
};

// Where ranks meet: those of a communicator in a collective, two of them in a message.
struct Meeting {
  std::map<int, Request> requests;  // By place: the rank, or of a message 0 sends and 1 receives.
  std::set<int> arrived;            // Whose stream has come so far.
  size_t wanted = 0;                // Of all that meet.
  bool done = false;
};

// All ranks of a communicator.
struct Clique {
  int size = 0;
  std::set<int> joined, finalized;
  bool broken = false;                                                  // A rank has aborted.
  std::map<int64_t, std::shared_ptr<Meeting>> collectives;              // By number.
  std::map<std::array<int64_t, 3>, std::shared_ptr<Meeting>> messages;  // From, to, number.
  std::set<std::array<int64_t, 3>> connected;  // Kinds of call that have been made.
};

struct Nccl {
  std::map<std::string, Clique> cliques;  // By id.
  std::list<NcclEmulationComm> comms;     // All that ever were, so that use after the end is seen.
  int ids = 0;
  bool tells_peers = true;
  ncclResult_t told = ncclRemoteError;
};

Nccl& TheNccl() {
  static Nccl nccl;
  return nccl;
}

struct Group {
  int depth = 0;
  std::vector<std::pair<ncclComm_t, Request>> requests;
};
Group& MyGroup() {
  static thread_local Group group;
  return group;
}

}  // namespace

struct NcclEmulationComm {
  Clique* clique;
  int rank;
  int device;
  bool made = false;  // All its ranks have joined.
  bool over = false;
  bool finalizing = false;
  std::thread::id user;                         // Who has a group open with it; nobody: none.
  std::vector<std::shared_ptr<Meeting>> given;  // Nothing of it has come to a stream yet.
  std::vector<Request> given_requests;
  bool in_progress = false;  // The last call has not been seen to take effect.
  int under_way = 0;         // Groups that its streams have and have not done.
  std::map<std::pair<std::array<int64_t, 3>, int>, int64_t> calls;  // Of a kind and place so far.
};

namespace {

void CheckUse(const NcclEmulationComm& comm, bool may_be_in_progress) {
  CHECK(!comm.over) << "NCCL: rank " << comm.rank << " uses a communicator after its end";
  CHECK(comm.user == std::thread::id() || comm.user == std::this_thread::get_id())
      << "NCCL: two threads use the communicator of rank " << comm.rank;
  CHECK(may_be_in_progress || !comm.in_progress)
      << "NCCL: rank " << comm.rank << " did not wait for the last call to take effect";
}

void CheckMemory(const Request& request, int size) {
  const size_t slices = size_t(size), bytes = request.bytes();
  const size_t sent = request.kind == Kind::kReduceScatter ? slices * bytes : bytes;
  const size_t received = request.kind == Kind::kAllGather ? slices * bytes : bytes;
  CHECK(request.send == nullptr || bytes == 0 || cuda_emulation::IsOnDevice(request.send, sent))
      << "NCCL: " << sent << " bytes that are sent are not the device's";
  CHECK(request.receive == nullptr || bytes == 0 ||
        cuda_emulation::IsOnDevice(request.receive, received))
      << "NCCL: " << received << " bytes for what comes are not the device's";
}

// In place is where NCCL says it is; other overlaps are errors.
void CheckOverlap(const Request& request, int rank, int size) {
  if (request.send == nullptr || request.receive == nullptr || request.bytes() == 0) return;
  const size_t bytes = request.bytes();
  const auto* const from = static_cast<const std::byte*>(request.send);
  const auto* const to = static_cast<const std::byte*>(request.receive);
  const bool scatters = request.kind == Kind::kReduceScatter;
  const bool gathers = request.kind == Kind::kAllGather;
  const size_t sent = scatters ? size_t(size) * bytes : bytes;
  const size_t received = gathers ? size_t(size) * bytes : bytes;
  const bool apart = from + sent <= to || to + received <= from;
  const bool in_place =
      to + (gathers ? size_t(rank) * bytes : 0) == from + (scatters ? size_t(rank) * bytes : 0);
  CHECK(apart || in_place) << "NCCL: rank " << rank << " sends memory that it receives to";
}

DType DTypeOf(ncclDataType_t type) {
  switch (type) {
    case ncclFloat64:
      return DType::kF64;
    case ncclFloat32:
      return DType::kF32;
    case ncclBfloat16:
      return DType::kBF16;
    case ncclInt64:
      return DType::kI64;
    default:
      CHECK(false) << "NCCL: the emulation has no sum of type " << int(type);
      std::abort();
  }
}

// Elements [begin, begin + count) of what all ranks send, as one, to `out`.
void Reduce(const Meeting& meeting, size_t begin, std::byte* out) {
  const Request& first = meeting.requests.begin()->second;
  std::vector<const void*> parts;
  for (const auto& [rank, request] : meeting.requests) {
    parts.push_back(static_cast<const std::byte*>(request.send) + begin * SizeOf(request.type));
  }
  if (first.type == ncclUint8) {
    for (size_t i = 0; i < first.count; ++i) {
      unsigned char most = 0;
      for (const void* part : parts)
        most = std::max(most, static_cast<const unsigned char*>(part)[i]);
      out[i] = std::byte(most);
    }
    return;
  }
  const auto reduce = first.op == ncclSum ? trainyard::SumInRankOrder : trainyard::MaxInRankOrder;
  reduce(parts, DTypeOf(first.type), int64_t(first.count), out);
}

// What everybody gets, before anybody's memory is written to.
void Exchange(const Meeting& meeting) {
  std::map<int, std::vector<std::byte>> results;
  for (const auto& [rank, request] : meeting.requests) {
    std::vector<std::byte>& result = results[rank];
    const auto append = [&](const void* from, size_t bytes) {
      const auto* const data = static_cast<const std::byte*>(from);
      result.insert(result.end(), data, data + bytes);
    };
    switch (request.kind) {
      case Kind::kAllReduce:
      case Kind::kReduceScatter:
        result.resize(request.bytes());
        Reduce(meeting, request.kind == Kind::kAllReduce ? 0 : size_t(rank) * request.count,
               result.data());
        break;
      case Kind::kBroadcast:
        append(meeting.requests.at(request.peer).send, request.bytes());
        break;
      case Kind::kAllGather:
        for (const auto& [_, theirs] : meeting.requests) append(theirs.send, theirs.bytes());
        break;
      case Kind::kReceive:
        append(meeting.requests.at(0).send, request.bytes());
        break;
      case Kind::kSend:
        break;
    }
  }
  for (const auto& [rank, request] : meeting.requests) {
    std::copy(results[rank].begin(), results[rank].end(), static_cast<std::byte*>(request.receive));
  }
}

int PlaceOf(const NcclEmulationComm& comm, const Request& request) {
  if (IsMessage(request.kind)) return request.kind == Kind::kSend ? 0 : 1;
  return comm.rank;
}

// The meeting of a request of this rank's, which it joins. Ranks that disagree end the program.
std::shared_ptr<Meeting> Join(NcclEmulationComm& comm, const Request& request,
                              std::array<int64_t, 3> kind) {
  const int64_t number = comm.calls[{kind, PlaceOf(comm, request)}]++;
  std::shared_ptr<Meeting>* where = &comm.clique->collectives[number];
  if (IsMessage(request.kind)) where = &comm.clique->messages[{kind[1], kind[2], number}];
  if (*where == nullptr) *where = std::make_shared<Meeting>();
  Meeting& meeting = **where;
  meeting.wanted = IsMessage(request.kind) ? 2 : size_t(comm.clique->size);
  for (const auto& [place, theirs] : meeting.requests) {
    const bool agree = IsMessage(request.kind) ? theirs.bytes() == request.bytes()
                                               : theirs.Agreed() == request.Agreed();
    CHECK(agree) << "NCCL: ranks disagree: " << theirs.count << " elements of type " << theirs.type
                 << " in call " << int(theirs.kind) << ", and " << request.count << " of "
                 << request.type << " in call " << int(request.kind);
  }
  CHECK(meeting.requests.emplace(PlaceOf(comm, request), request).second);
  return *where;
}

// Collectives of a communicator are of one kind, as are the messages from one rank to another.
std::array<int64_t, 3> KindOf(const NcclEmulationComm& comm, const Request& request) {
  if (request.kind == Kind::kSend) return {1, comm.rank, request.peer};
  if (request.kind == Kind::kReceive) return {1, request.peer, comm.rank};
  return {0, 0, 0};
}

// A group of calls, on a stream: done when all ranks' streams have come so far, or left as it is
// by an abort.
void GiveGroup(const Lock& lock, NcclEmulationComm& comm) {
  const auto meetings = std::exchange(comm.given, {});
  const auto requests = std::exchange(comm.given_requests, {});
  if (requests.empty()) return;
  ++comm.under_way;
  const auto ready = [&comm, meetings, requests] {
    if (comm.over) return true;
    bool all = true;
    for (size_t i = 0; i < meetings.size(); ++i) {
      meetings[i]->arrived.insert(PlaceOf(comm, requests[i]));
    }
    for (const auto& meeting : meetings) {
      if (!meeting->done && meeting->arrived.size() == meeting->wanted && !comm.clique->broken) {
        cuda_emulation::OpenMemory();
        Exchange(*meeting);
        cuda_emulation::CloseMemory();
        meeting->done = true;
      }
      all &= meeting->done;
    }
    return all;
  };
  const auto needs = [&comm, meetings] {
    std::vector<cudaStream_t> streams;
    if (comm.clique->broken) return streams;  // Theirs may be gone.
    for (const auto& meeting : meetings) {
      for (const auto& [rank, request] : meeting->requests) {
        if (!meeting->arrived.contains(rank)) streams.push_back(request.stream);
      }
    }
    return streams;
  };
  const auto run = [&comm, meetings, requests] {
    --comm.under_way;
    for (size_t i = 0; i < meetings.size(); ++i) {
      // Nobody may take what an abort leaves behind for a result.
      if (meetings[i]->done || requests[i].receive == nullptr) continue;
      cuda_emulation::OpenMemory();
      std::memset(requests[i].receive, 0xff, requests[i].bytes());
      cuda_emulation::CloseMemory();
    }
  };
  cuda_emulation::Give(lock, requests.front().stream, {.run = run, .ready = ready, .needs = needs});
}

// Whether all who take part have made the calls of the last group.
bool IsConnected(NcclEmulationComm& comm) {
  for (size_t i = 0; i < comm.given.size(); ++i) {
    const auto kind = KindOf(comm, comm.given_requests[i]);
    if (comm.clique->connected.contains(kind)) continue;
    if (comm.given[i]->requests.size() < comm.given[i]->wanted) return false;
  }
  for (const Request& request : comm.given_requests) {
    comm.clique->connected.insert(KindOf(comm, request));
  }
  return true;
}

// Whether a communicator is being made, or connects ranks for the calls that it was given.
bool Connects(const NcclEmulationComm& comm) {
  if (!comm.made) return true;
  const auto is_new = [&](const Request& request) {
    const std::array<int64_t, 3> kind = KindOf(comm, request);
    const bool to_itself = IsMessage(request.kind) && kind[1] == kind[2];
    return !to_itself && comm.clique->size > 1 && !comm.clique->connected.contains(kind);
  };
  return std::any_of(comm.given_requests.begin(), comm.given_requests.end(), is_new);
}

// Whether a call of a communicator waits for its device or for other ranks.
bool IsAtWork(const NcclEmulationComm& comm) { return comm.under_way > 0 || !comm.given.empty(); }

// Ends the program if one of two communicators of a device connects while the other is at work.
void CheckConnectsAlone(const NcclEmulationComm& comm) {
  if (comm.clique->broken) return;
  for (const NcclEmulationComm& other : TheNccl().comms) {
    if (&other == &comm || other.over || other.clique->broken || other.device != comm.device) {
      continue;
    }
    CHECK(!(Connects(comm) && IsAtWork(other)) && !(Connects(other) && IsAtWork(comm)))
        << "NCCL: device " << comm.device << " makes or connects a communicator while another has "
        << "work: on a GPU, each may wait for the other";
  }
}

ncclResult_t Ask(ncclComm_t comm, const Request& request) {
  const Lock lock = LockDevice();
  CheckUse(*comm, false);
  CHECK(MyGroup().depth > 0) << "NCCL: a call outside of a group";
  CHECK(request.peer >= 0 && request.peer < comm->clique->size)
      << "NCCL: peer or root " << request.peer << " of " << comm->clique->size;
  CheckMemory(request, comm->clique->size);
  CheckOverlap(request, comm->rank, comm->clique->size);
  comm->user = std::this_thread::get_id();
  MyGroup().requests.emplace_back(comm, request);
  return ncclSuccess;
}

}  // namespace

void nccl_emulation::TellPeers(bool tell, ncclResult_t error) {
  const Lock lock = LockDevice();
  TheNccl().tells_peers = tell;
  TheNccl().told = error;
}

const char* ncclGetErrorString(ncclResult_t result) {
  switch (result) {
    case ncclUnhandledCudaError:
      return "unhandled cuda error";
    case ncclSystemError:
      return "unhandled system error";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "error";
  }
}
const char* ncclGetLastError(ncclComm_t) { return "emulated"; }

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const Lock lock = LockDevice();
  *id = {};
  std::snprintf(id->internal, sizeof(id->internal), "emulated %d", ++TheNccl().ids);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const Lock lock = LockDevice();
  CHECK(config->magic == 0xcafebeefu && config->blocking == 0) << "NCCL: configuration";
  Clique& clique = TheNccl().cliques[id.internal];
  CHECK(clique.joined.empty() || clique.size == size)
      << "NCCL: ranks disagree: " << clique.size << " ranks, and " << size;
  clique.size = size;
  CHECK(rank >= 0 && rank < size && clique.joined.insert(rank).second) << "NCCL: rank " << rank;
  NcclEmulationComm& made = TheNccl().comms.emplace_back();
  made.clique = &clique;
  made.rank = rank;
  made.device = cuda_emulation::MyDevice();
  made.in_progress = true;
  CheckConnectsAlone(made);
  *comm = &made;
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  const Lock lock = LockDevice();
  CheckUse(*comm, true);
  const Clique& clique = *comm->clique;
  if (clique.broken && TheNccl().tells_peers) {
    *error = TheNccl().told;
    return ncclSuccess;
  }
  bool done = int(clique.joined.size()) == clique.size;
  if (comm->finalizing) {
    if (comm->under_way > 0) cuda_emulation::AdvanceAll(lock);
    done = comm->under_way == 0 && int(clique.finalized.size()) == clique.size;
  } else if (comm->in_progress && done) {
    comm->made = true;
    done = IsConnected(*comm);
    if (done) GiveGroup(lock, *comm);
  }
  if (done) comm->in_progress = false;
  *error = comm->in_progress ? ncclInProgress : ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  const Lock lock = LockDevice();
  CheckUse(*comm, false);
  comm->finalizing = comm->in_progress = true;
  comm->clique->finalized.insert(comm->rank);
  return ncclInProgress;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  const Lock lock = LockDevice();
  CheckUse(*comm, false);
  CHECK(comm->finalizing) << "NCCL: rank " << comm->rank << " destroys without finalizing";
  comm->over = true;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  const Lock lock = LockDevice();
  CheckUse(*comm, true);
  comm->over = comm->clique->broken = true;
  cuda_emulation::Changed(lock);
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++MyGroup().depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  Group& group = MyGroup();
  CHECK(group.depth > 0) << "NCCL: no group to end";
  if (--group.depth > 0) return ncclSuccess;
  const Lock lock = LockDevice();
  const auto requests = std::exchange(group.requests, {});
  for (const auto& [comm, request] : requests) {
    CheckUse(*comm, false);
    CHECK(comm == requests.front().first && request.stream == requests.front().second.stream)
        << "NCCL: the emulation has one communicator and stream in a group";
    // Nothing is nothing, except that a message of no bytes is one.
    if (request.count == 0 && !IsMessage(request.kind)) continue;
    comm->given.push_back(Join(*comm, request, KindOf(*comm, request)));
    comm->given_requests.push_back(request);
  }
  if (requests.empty()) return ncclSuccess;
  NcclEmulationComm& comm = *requests.front().first;
  comm.user = {};
  comm.in_progress = true;
  CheckConnectsAlone(comm);
  return ncclInProgress;
}

ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Ask(comm, {Kind::kAllReduce, send, receive, count, type, op, 0, stream});
}
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
  return Ask(comm, {Kind::kBroadcast, send, receive, count, type, ncclSum, root, stream});
}
ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  return Ask(comm, {Kind::kAllGather, send, receive, count, type, ncclSum, 0, stream});
}
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  return Ask(comm, {Kind::kReduceScatter, send, receive, count, type, op, 0, stream});
}
ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
  return Ask(comm, {Kind::kSend, send, nullptr, count, type, ncclSum, peer, stream});
}
ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  return Ask(comm, {Kind::kReceive, nullptr, receive, count, type, ncclSum, peer, stream});
}
