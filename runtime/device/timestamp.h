// Timestamp: when a stream came to a point of its work (Stream::write_timestamp).
#pragma once

#include <cstdint>

#include "src/base/status.h"

namespace dc::runtime::device {

class Timestamp {
 public:
  virtual ~Timestamp() = default;
  // Nanoseconds from another timestamp of this device, of any stream, to this one. Both streams
  // were drained after they were written. Unavailable (69) if the device does not say.
  virtual base::Result<int64_t> since(const Timestamp& earlier) const = 0;
  // Whether the stream has come to the point where it was written last; also when the device has
  // failed.
  virtual bool is_written() const = 0;
};

}  // namespace dc::runtime::device
