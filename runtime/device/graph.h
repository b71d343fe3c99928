// Graph: work that was recorded once, to be issued again and again at the price of one call.
#pragma once

#include "runtime/device/stream.h"

namespace dc::runtime::device {

class Graph {
 public:
  virtual ~Graph() = default;
  // Issues all of it to a stream of the device: it begins when everything issued to the stream
  // before is done, and what is issued afterwards begins when all of it is.
  virtual void launch(Stream& stream) = 0;
};

}  // namespace dc::runtime::device
