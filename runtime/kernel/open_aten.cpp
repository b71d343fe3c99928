// Opens the plug-in with the ATen kernels. Programs that need none never load libtorch.
#include "runtime/kernel/aten/plugin.h"
#include "runtime/kernel/passive_threads.h"
#include "src/base/plugin.h"

namespace dc::runtime::kernel {
base::Result<std::unique_ptr<KernelProvider>> open_aten_provider(int threads) {
  make_threads_sleep();
  const base::PluginUse use{kernel::aten::kLibrary, kernel::aten::kEntry, "DC6110",
                            "the plan has aten kernels", "DCC_WITH_TORCH"};
  DC_ASSIGN_OR_RETURN(void* entry, base::open_plugin(use, base::PluginSymbols::Local));
  std::string problem;
  std::unique_ptr<KernelProvider> provider(
      reinterpret_cast<kernel::aten::Open>(entry)(threads, &problem));
  if (provider != nullptr) return provider;
  return base::Status(base::ErrorKind::Unavailable, "DC6127",
                      "the plan has aten kernels, but libtorch cannot be set up: " + problem);
}

}  // namespace dc::runtime::kernel
