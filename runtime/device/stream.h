// Stream: work in order, beside the thread that submits it.
#pragma once

namespace dc::runtime {

// A piece of work that its owner prepares once and submits many times.
class Work {
 public:
  virtual ~Work() = default;
  virtual void run() = 0;
};

class Stream {
 public:
  // Finishes what was submitted.
  virtual ~Stream() = default;
  // Queues `work` behind everything submitted before; it must stay alive until it has run. Waits
  // when the queue is full; allocates nothing.
  virtual void submit(Work& work) = 0;
};

}  // namespace dc::runtime
