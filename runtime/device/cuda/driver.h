// The CUDA driver's calls that this project uses, opened when a CUDA device is asked for: programs
// start where there is no driver, and building them needs no CUDA.
//
// The types are those of the driver's binary interface (cuda.h, CUDA 12 and later);
// tests/runtime/device/cuda_interface_test.cpp compares them with the toolkit's header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "src/base/status.h"

namespace dc::runtime::device::cuda {

using Address = unsigned long long;  // of device memory, or of pinned host memory
inline Address address_of(const void* at) { return reinterpret_cast<uintptr_t>(at); }
inline std::byte* pointer_to(Address address) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver gives addresses as numbers
  return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(address));
}
struct OpaqueContext;
struct OpaqueStream;
struct OpaqueEvent;
struct OpaqueModule;
struct OpaqueFunction;
struct OpaqueGraph;
struct OpaqueGraphExec;
struct OpaqueGraphNode;
struct OpaqueEdge;
using Context = OpaqueContext*;
using StreamHandle = OpaqueStream*;
using EventHandle = OpaqueEvent*;
using Module = OpaqueModule*;
using Function = OpaqueFunction*;
using GraphHandle = OpaqueGraph*;
using GraphExec = OpaqueGraphExec*;
using GraphNode = OpaqueGraphNode*;
struct Uuid {
  char bytes[16];
};
// Of an allocation, for other processes of the host.
struct IpcHandle {
  char bytes[64];
};

// Of a fill in a graph (CUDA_MEMSET_NODE_PARAMS): of rows of elements that have 1, 2 or 4 bytes.
struct MemsetNode {
  Address to;
  size_t pitch;
  unsigned value, element_bytes;
  size_t width, height;
};
// Of a kernel in a graph (CUDA_KERNEL_NODE_PARAMS).
struct KernelNode {
  Function function;
  unsigned grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes;
  void **parameters, **extra;
  void* kernel;
  Context context;
};
// A type of nodes (CUgraphNodeType).
inline constexpr int kMemset = 2;

// Results (CUresult) that are told apart.
inline constexpr int kSuccess = 0, kOutOfMemory = 2, kNoDevice = 100, kNotReady = 600;
// Attributes of devices (CUdevice_attribute).
inline constexpr int kClockRate = 13, kMultiprocessors = 16, kMemoryClockRate = 36, kMajor = 75,
                     kMinor = 76, kSharedBytesOfBlock = 97;
// Attributes of functions (CUfunction_attribute).
inline constexpr int kMostSharedBytes = 8;
// Memory of the host that is registered as it was allocated is at its own address on the device. A
// mapping of a peer's memory may reach it on another GPU. A wait ends when the value is no longer
// behind, as numbers that begin again after 2^32 are compared.
inline constexpr unsigned kDeviceMap = 2, kLazyPeerAccess = 1, kAtLeast = 0;
// Flags of streams, events and host memory.
inline constexpr unsigned kNonBlocking = 1, kBlockingSync = 1, kDisableTiming = 2, kPortable = 1;
// Of records of events that are captured: they belong to the graph and note the time.
inline constexpr unsigned kExternal = 1;
// How strictly a capture is kept apart (CUstreamCaptureMode).
inline constexpr int kCaptureThreadLocal = 1;

// f(name in the library, member, parameters)
// clang-format off
#define DC_CUDA_DRIVER_CALLS(f)                                                                   \
  f(cuInit, init, (unsigned flags))                                                               \
  f(cuDriverGetVersion, driver_version, (int* version))                                           \
  f(cuDeviceGetCount, device_count, (int* count))                                                 \
  f(cuDeviceGet, device_get, (int* device, int ordinal))                                          \
  f(cuDeviceGetAttribute, device_attribute, (int* value, int attribute, int device))              \
  f(cuDeviceGetName, device_name, (char* name, int length, int device))                           \
  f(cuDeviceGetUuid_v2, device_uuid, (Uuid* uuid, int device))                                    \
  f(cuDevicePrimaryCtxRetain, retain_context, (Context* context, int device))                     \
  f(cuCtxSetCurrent, set_context, (Context context))                                              \
  f(cuMemGetInfo_v2, memory_info, (size_t* free, size_t* total))                                  \
  f(cuMemAlloc_v2, allocate, (Address* address, size_t bytes))                                    \
  f(cuMemFree_v2, free, (Address address))                                                        \
  f(cuMemHostAlloc, allocate_host, (void** address, size_t bytes, unsigned flags))                \
  f(cuMemFreeHost, free_host, (void* address))                                                    \
  f(cuMemHostRegister_v2, register_host, (void* address, size_t bytes, unsigned flags))           \
  f(cuMemHostUnregister, unregister_host, (void* address))                                        \
  f(cuMemHostGetDevicePointer_v2, device_pointer,                                                 \
    (Address* address, void* of_host, unsigned flags))                                            \
  f(cuIpcGetMemHandle, export_memory, (IpcHandle* handle, Address address))                       \
  f(cuIpcOpenMemHandle_v2, import_memory,                                                         \
    (Address* address, IpcHandle handle, unsigned flags))                                         \
  f(cuIpcCloseMemHandle, close_import, (Address address))                                         \
  f(cuMemcpy, copy, (Address to, Address from, size_t bytes))                                     \
  f(cuMemcpyAsync, copy_async, (Address to, Address from, size_t bytes, StreamHandle stream))     \
  f(cuMemsetD8_v2, fill, (Address to, unsigned char value, size_t bytes))                         \
  f(cuMemsetD8Async, fill_async,                                                                  \
    (Address to, unsigned char value, size_t bytes, StreamHandle stream))                         \
  f(cuStreamCreateWithPriority, create_stream,                                                    \
    (StreamHandle* stream, unsigned flags, int priority))                                         \
  f(cuStreamDestroy_v2, destroy_stream, (StreamHandle stream))                                    \
  f(cuStreamSynchronize, synchronize_stream, (StreamHandle stream))                               \
  f(cuStreamQuery, query_stream, (StreamHandle stream))                                           \
  f(cuStreamWaitEvent, wait_event, (StreamHandle stream, EventHandle event, unsigned flags))      \
  f(cuStreamWriteValue32_v2, write_value,                                                         \
    (StreamHandle stream, Address to, uint32_t value, unsigned flags))                            \
  f(cuStreamWaitValue32_v2, wait_value,                                                           \
    (StreamHandle stream, Address at, uint32_t value, unsigned flags))                            \
  f(cuStreamBeginCapture_v2, begin_capture, (StreamHandle stream, int mode))                      \
  f(cuStreamEndCapture, end_capture, (StreamHandle stream, GraphHandle* graph))                   \
  f(cuGraphInstantiateWithFlags, instantiate_graph,                                               \
    (GraphExec* exec, GraphHandle graph, unsigned long long flags))                               \
  f(cuGraphLaunch, launch_graph, (GraphExec exec, StreamHandle stream))                           \
  f(cuGraphDestroy, destroy_graph, (GraphHandle graph))                                           \
  f(cuGraphExecDestroy, destroy_graph_exec, (GraphExec exec))                                     \
  f(cuEventCreate, create_event, (EventHandle* event, unsigned flags))                            \
  f(cuEventDestroy_v2, destroy_event, (EventHandle event))                                        \
  f(cuEventRecord, record_event, (EventHandle event, StreamHandle stream))                        \
  f(cuEventRecordWithFlags, record_event_with_flags,                                              \
    (EventHandle event, StreamHandle stream, unsigned flags))                                     \
  f(cuEventElapsedTime, elapsed_time,                                                             \
    (float* milliseconds, EventHandle begin, EventHandle end))                                    \
  f(cuEventSynchronize, synchronize_event, (EventHandle event))                                   \
  f(cuEventQuery, query_event, (EventHandle event))                                               \
  f(cuModuleLoadData, load_module, (Module* module, const void* image))                           \
  f(cuModuleUnload, unload_module, (Module module))                                               \
  f(cuModuleGetFunction, get_function, (Function* function, Module module, const char* name))     \
  f(cuFuncSetAttribute, set_function_attribute, (Function function, int attribute, int value))    \
  f(cuOccupancyMaxActiveBlocksPerMultiprocessor, resident_blocks,                                 \
    (int* blocks, Function function, int threads, size_t shared_bytes))                           \
  f(cuLaunchKernel, launch,                                                                       \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,      \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, StreamHandle stream,              \
     void** parameters, void** extra))                                                            \
  f(cuGetErrorName, error_name, (int error, const char** name))                                   \
  f(cuGetErrorString, error_string, (int error, const char** text))
// Those that drivers before CUDA 12.3 lack.
#define DC_CUDA_NEWER_DRIVER_CALLS(f)                                                             \
  f(cuGraphGetNodes, graph_nodes, (GraphHandle graph, GraphNode* nodes, size_t* count))           \
  f(cuGraphNodeGetType, node_type, (GraphNode node, int* type))                                   \
  f(cuGraphMemsetNodeGetParams, memset_parameters, (GraphNode node, MemsetNode* parameters))      \
  f(cuGraphNodeGetDependencies_v2, node_dependencies,                                             \
    (GraphNode node, GraphNode* nodes, OpaqueEdge* edges, size_t* count))                         \
  f(cuGraphNodeGetDependentNodes_v2, node_dependents,                                             \
    (GraphNode node, GraphNode* nodes, OpaqueEdge* edges, size_t* count))                         \
  f(cuGraphAddKernelNode_v2, add_kernel_node,                                                     \
    (GraphNode* node, GraphHandle graph, const GraphNode* after, size_t count,                    \
     const KernelNode* parameters))                                                               \
  f(cuGraphAddDependencies_v2, add_dependencies,                                                  \
    (GraphHandle graph, const GraphNode* from, const GraphNode* to, const OpaqueEdge* edges,      \
     size_t count))                                                                               \
  f(cuGraphDestroyNode, destroy_node, (GraphNode node))
// clang-format on

struct Driver {
#define DC_MEMBER(symbol, member, parameters) int(*member) parameters = nullptr;
  DC_CUDA_DRIVER_CALLS(DC_MEMBER)
  DC_CUDA_NEWER_DRIVER_CALLS(DC_MEMBER)
#undef DC_MEMBER

  // Whether it has the calls that change a graph.
  bool edits_graphs() const;

  // "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
  std::string explain(int error) const;
};

// The calls of libcuda.so.1, for the whole process. Unavailable (69): DC6140 if there is no driver,
// DC6141 if it is older than CUDA 12, DC6142 if it shows no GPU.
base::Result<const Driver*> open_driver();

// DC6142 (69).
base::Status no_gpu(const std::string& why);
inline constexpr const char* kShowsNone = "the driver shows none";

}  // namespace dc::runtime::device::cuda
