// How much of a GPU's memory is in use, as NVIDIA's management library (libnvidia-ml.so.1) says.
#pragma once

#include <cstdint>
#include <optional>

namespace dc::runtime::device {

// Bytes in use by all processes of the GPU that open_cuda_device(local_rank) opens; takes none
// itself. Nothing where there is no such library, or no such GPU for it, as of a GPU in parts
// (MIG).
std::optional<int64_t> gpu_memory_in_use(int local_rank);

}  // namespace dc::runtime::device
