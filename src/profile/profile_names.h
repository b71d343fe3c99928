// The words of prof.json, for reading it and for writing it.
#pragma once

#include "src/base/enum_names.h"
#include "src/base/measurements.h"

namespace dc::profile {

inline constexpr const char* kFormat = "dcc-profile";

inline constexpr auto kOrigins =
    base::enum_names<base::ProfileOrigin>({"measured", "recorded", "synthetic", "calibrated"});

// Members of `rates` and of `complete`, in the order of the file.
template <typename Struct, typename Member>
struct MemberName {
  const char* key;
  Member Struct::*member;
};
struct RateName : MemberName<base::MachineRates, int64_t> {
  bool is_time = false, is_needed = true;
};
using PartName = MemberName<base::Completeness, bool>;
inline constexpr RateName kRates[] = {
    {{"f64_flops_per_s", &base::MachineRates::f64_flops}},
    {{"f32_flops_per_s", &base::MachineRates::f32_flops}},
    {{"half_flops_per_s", &base::MachineRates::half_flops}},
    {{"memory_bytes_per_s", &base::MachineRates::memory_bytes}},
    {{"kernel_launch_ns", &base::MachineRates::kernel_launch_ns}, true},
    {{"link_bytes_per_s", &base::MachineRates::link_bytes}},
    {{"collective_latency_ns", &base::MachineRates::collective_latency_ns}, true},
    {{"to_host_bytes_per_s", &base::MachineRates::to_host_bytes}},
    {{"from_host_bytes_per_s", &base::MachineRates::from_host_bytes}},
    {{"disk_bytes_per_s", &base::MachineRates::disk_bytes}},
    {{"host_memory_bytes_per_s", &base::MachineRates::host_memory_bytes}, false, false},
};
inline constexpr PartName kParts[] = {
    {"kernels", &base::Completeness::kernels},
    {"collectives", &base::Completeness::collectives},
    {"during_compute", &base::Completeness::during_compute},
    {"copies", &base::Completeness::copies},
};

}  // namespace dc::profile
