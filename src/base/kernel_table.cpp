#include "src/base/kernel_table.h"

#include <mutex>
#include <unordered_map>
#include <vector>

namespace dc::base {
namespace {

class KernelTable {
 public:
  static KernelTable& instance() {
    static auto* table = new KernelTable;  // outlives every thread
    return *table;
  }

  KernelId intern(const KernelSignature& kernel) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [found, is_new] = ids_.try_emplace(kernel, static_cast<int32_t>(kernels_.size()));
    if (is_new) kernels_.push_back(&found->first);
    return {found->second};
  }

  const KernelSignature& at(KernelId kernel) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return *kernels_[kernel.index()];
  }

 private:
  std::mutex mutex_;
  std::unordered_map<KernelSignature, int32_t, KernelSignatureHash> ids_;
  std::vector<const KernelSignature*> kernels_;  // keys of the map, which stay where they are
};

}  // namespace

KernelId intern(const KernelSignature& kernel) { return KernelTable::instance().intern(kernel); }

const KernelSignature& signature_of(KernelId kernel) { return KernelTable::instance().at(kernel); }

}  // namespace dc::base
