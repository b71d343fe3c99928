#include "runtime/comm/nccl_library.h"

#include "src/base/library_functions.h"

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;
using base::Status;

constexpr const char* kNcclLibrary = "libnccl.so.2";

base::Result<NcclLibrary> load_nccl() {
  base::LibraryFunctions library(kNcclLibrary);
  if (!library.opened()) {
    return Status(ErrorKind::Unavailable, "DC6160",
                  std::string("there is no NCCL for the collectives of GPUs (") + library.reason() +
                      "); install NCCL 2.19 or newer, or add the folder of libnccl.so.2 to "
                      "LD_LIBRARY_PATH");
  }
  NcclLibrary nccl;
#define DC_LOAD(symbol, member, parameters) library.load(nccl.member, #symbol);
  DC_NCCL_CALLS(DC_LOAD)
#undef DC_LOAD
  library.load(nccl.error_text, "ncclGetErrorString");
  library.load(nccl.last_error, "ncclGetLastError");
  const char* absent = library.absent();
  if (nccl.get_version != nullptr) (void)nccl.get_version(&nccl.version);
  if (absent == nullptr && nccl.version >= kNcclOldest) return nccl;
  return Status(ErrorKind::Unavailable, "DC6161",
                "NCCL " + nccl_version_text(nccl.version) + " is too old" +
                    (absent ? std::string(", it lacks ") + absent : std::string()) +
                    "; install NCCL 2.19 or newer, or put the folder of a newer libnccl.so.2 first "
                    "in LD_LIBRARY_PATH");
}

}  // namespace

std::string nccl_version_text(int version) {
  return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
         std::to_string(version % 100);
}

std::string NcclLibrary::explain(int result) const {
  std::string text = error_text(result);
  const char* more = last_error(nullptr);
  if (more != nullptr && *more != '\0') text += std::string(": ") + more;
  return text;
}

base::Result<const NcclLibrary*> open_nccl_library() {
  // Leaked: communicators may outlive every static object.
  static const base::Result<NcclLibrary>* library = new base::Result<NcclLibrary>(load_nccl());
  if (!library->ok()) return library->status();
  return &library->value();
}

}  // namespace dc::runtime::comm
