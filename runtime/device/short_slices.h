// Short scheduler time slices, for a thread that sleeps often and works briefly while other
// threads compute without a pause.
#pragma once

namespace dc::runtime::device {

// Asks the scheduler to run the calling thread in slices of 100 us, the shortest that Linux grants.
// Such a thread takes the core as soon as it wakes; with the usual slice it may first wait until
// the computing thread's is over, some milliseconds, however little of the core it uses. Its share
// of the processor, its priority and the other threads stay what they are. No effect before
// Linux 6.12, and none where the thread is not under the fair scheduler.
void prefer_short_slices();

}  // namespace dc::runtime::device
