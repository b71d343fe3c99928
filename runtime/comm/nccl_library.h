// NCCL's calls that this project uses, opened when ranks on GPUs connect: programs start where
// there is none, and building them needs no NCCL.
//
// The types are those of the library's binary interface (nccl.h);
// tests/runtime/comm/nccl_interface_test.cpp compares them with its header.
#pragma once

#include <climits>
#include <cstddef>
#include <string>

#include "runtime/device/cuda/driver.h"
#include "src/base/status.h"

namespace dc::runtime::comm {

struct OpaqueNcclComm;
using NcclComm = OpaqueNcclComm*;
struct NcclId {  // names a communicator that is being made; one rank draws it for all
  char bytes[128];
};
// The part of ncclConfig_t that NCCL 2.19 has; a newer one takes the rest for not given.
struct NcclConfig {
  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21900;
  int blocking = 0;
  int cga_cluster_size = INT_MIN, min_ctas = INT_MIN, max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

// Results (ncclResult_t) that are told apart.
inline constexpr int kNcclSuccess = 0, kNcclInvalidUsage = 5, kNcclRemoteError = 6,
                     kNcclInProgress = 7;
inline constexpr int kNcclBytes = 1;  // ncclUint8
// As ncclGetVersion counts: with communicators that do not block, and registered memory.
inline constexpr int kNcclOldest = 21900;

// f(name in the library, member, parameters)
// clang-format off
#define DC_NCCL_CALLS(f)                                                                          \
  f(ncclGetVersion, get_version, (int* version))                                                  \
  f(ncclGetUniqueId, draw_id, (NcclId* id))                                                       \
  f(ncclCommInitRankConfig, open,                                                                 \
    (NcclComm* comm, int ranks, NcclId id, int rank, NcclConfig* config))                         \
  f(ncclCommFinalize, finalize, (NcclComm comm))                                                  \
  f(ncclCommDestroy, destroy, (NcclComm comm))                                                    \
  f(ncclCommAbort, abort, (NcclComm comm))                                                        \
  f(ncclCommGetAsyncError, state, (NcclComm comm, int* result))                                   \
  f(ncclCommRegister, register_memory,                                                            \
    (NcclComm comm, void* memory, size_t bytes, void** handle))                                   \
  f(ncclCommDeregister, deregister_memory, (NcclComm comm, void* handle))                         \
  f(ncclAllGather, all_gather,                                                                    \
    (const void* from, void* to, size_t count, int type, NcclComm comm,                           \
     device::cuda::StreamHandle stream))                                                          \
  f(ncclSend, send,                                                                               \
    (const void* from, size_t count, int type, int peer, NcclComm comm,                           \
     device::cuda::StreamHandle stream))                                                          \
  f(ncclRecv, receive,                                                                            \
    (void* to, size_t count, int type, int peer, NcclComm comm,                                   \
     device::cuda::StreamHandle stream))                                                          \
  f(ncclGroupStart, begin_group, ())                                                              \
  f(ncclGroupEnd, end_group, ())
// clang-format on

struct NcclLibrary {
#define DC_MEMBER(symbol, member, parameters) int(*member) parameters = nullptr;
  DC_NCCL_CALLS(DC_MEMBER)
#undef DC_MEMBER
  const char* (*error_text)(int result) = nullptr;     // ncclGetErrorString
  const char* (*last_error)(NcclComm comm) = nullptr;  // ncclGetLastError
  int version = 0;                                     // 22809 is 2.28.9

  // "remote process exited or there was a network error (5: ...)"
  std::string explain(int result) const;
};
std::string nccl_version_text(int version);  // "2.28.9"

// The calls of libnccl.so.2, for the whole process. Unavailable (69): DC6160 if there is no NCCL,
// DC6161 if it is older than 2.19 or lacks a call.
base::Result<const NcclLibrary*> open_nccl_library();

}  // namespace dc::runtime::comm
