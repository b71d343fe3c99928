#include "runtime/kernel/onednn/plugin.h"

#include "runtime/kernel/onednn/product.h"
#include "src/base/interface_id.h"

extern "C" __attribute__((visibility("default"))) void dcrun_onednn_kernels(
    dc::runtime::kernel::onednn::Kernels* kernels) {
  *kernels = dc::runtime::kernel::onednn::product_kernels();
}

DC_PLUGIN_INTERFACE
