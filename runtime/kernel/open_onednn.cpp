// Opens the plug-in with the kernels on oneDNN. Plans without products and convolutions never load
// the library.
#include "runtime/kernel/onednn/plugin.h"
#include "runtime/kernel/passive_threads.h"
#include "src/base/plugin.h"

namespace dc::runtime::kernel::native {

base::Result<std::span<const Row>> open_onednn_kernels() {
  make_threads_sleep();
  const base::PluginUse use{onednn::kLibrary, onednn::kEntry, "DC6135",
                            "the plan has native matrix products or convolutions",
                            "DCC_WITH_ONEDNN"};
  // Local: libtorch brings another oneDNN.
  DC_ASSIGN_OR_RETURN(void* entry, base::open_plugin(use, base::PluginSymbols::Local));
  onednn::Kernels kernels;
  reinterpret_cast<onednn::Entry>(entry)(&kernels);
  return kernels;
}

}  // namespace dc::runtime::kernel::native
