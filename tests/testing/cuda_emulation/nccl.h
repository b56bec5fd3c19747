// NCCL among threads of one process, for tests: the part that kernels/collective uses, on streams
// of the emulated device. It ends the program where NCCL would do anything at all: ranks that
// disagree, memory that is not the device's, two threads at one communicator, a communicator that
// is used before its last call has taken effect or after its end. Sums are taken in rank order.
//
// Every call of a communicator takes effect later, as non-blocking ones do, and the first one of a
// kind once all who take part have made it, because NCCL connects them then.
//
// It also ends the program where a communicator is made, or connects ranks, while another one of
// the same device has work: NCCL allocates memory then, and on a GPU that may wait for the work,
// which may wait for a rank that waits for this one. Each rank sets a device of its own for this.
//
// Found in place of NCCL's own header, by its directory's place in the include path.

#pragma once

#include "cuda_runtime.h"

constexpr int NCCL_UNIQUE_ID_BYTES = 128;
struct ncclUniqueId {
  char internal[NCCL_UNIQUE_ID_BYTES];
};
using ncclComm_t = struct NcclEmulationComm*;
enum ncclResult_t {
  ncclSuccess,
  ncclUnhandledCudaError,
  ncclSystemError,
  ncclInternalError,
  ncclInvalidArgument,
  ncclInvalidUsage,
  ncclRemoteError,
  ncclInProgress,
};
enum ncclDataType_t {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclInt64 = 4,
  ncclFloat32 = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
};
enum ncclRedOp_t { ncclSum = 0, ncclMax = 2 };
struct ncclConfig_t {
  unsigned magic;
  int blocking;
};
#define NCCL_CONFIG_INITIALIZER \
  { 0xcafebeefu, 1 }

const char* ncclGetErrorString(ncclResult_t result);
const char* ncclGetLastError(ncclComm_t comm);
ncclResult_t ncclGetUniqueId(ncclUniqueId* id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config);
ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error);
ncclResult_t ncclCommFinalize(ncclComm_t comm);
ncclResult_t ncclCommDestroy(ncclComm_t comm);
ncclResult_t ncclCommAbort(ncclComm_t comm);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
ncclResult_t ncclAllReduce(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclBroadcast(const void* send, void* receive, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclAllGather(const void* send, void* receive, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclReduceScatter(const void* send, void* receive, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclSend(const void* send, size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream);
ncclResult_t ncclRecv(void* receive, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream);

namespace nccl_emulation {

// Whether ranks are told that a peer has aborted, as they are between machines, and by which error;
// at first they are.
void TellPeers(bool tell, ncclResult_t error = ncclRemoteError);

}  // namespace nccl_emulation
