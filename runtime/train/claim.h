// Outputs that hold hours of work are not replaced by accident: not those of an earlier run, nor
// those of a run that goes on at the same time.
#pragma once

#include <string>

#include "src/base/status.h"

namespace dc::runtime::train {

// A lock on a file or folder that ends with this object or its process. File systems that know no
// locks grant every claim.
class Claim {
 public:
  Claim() = default;
  ~Claim();
  Claim(Claim&& other) noexcept;
  Claim& operator=(Claim&& other) noexcept;

  // CannotWrite (73) if another run has claimed it, and still has a second later.
  static base::Result<Claim> folder(const std::string& path);
  // Takes over the descriptor of the open file at `path`.
  static base::Result<Claim> file(int descriptor, const std::string& path);

  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// CannotWrite (73) if there is a file with contents at `path`; `option` is what named it.
base::Status refuse_to_replace(const std::string& path, const std::string& option);

}  // namespace dc::runtime::train
