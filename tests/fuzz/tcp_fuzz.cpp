// Fuzz target: what a stranger may say over TCP: to a rank's door as the first bytes of a
// connection, and to a client of torchrun's store as its answers. Nothing may crash or wait, and
// no peer comes in without a whole hello.
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "runtime/comm/control_page.h"
#include "runtime/comm/tcp_door.h"
#include "runtime/comm/torch_store.h"
#include "tests/fuzz/fuzz_target.h"

namespace {

using namespace dc::runtime;  // NOLINT

comm::Deadline in_ms(int64_t ms) { return {comm::monotonic_ns() + ms * 1'000'000}; }

// All that the other side will ever say.
void say_and_end(int socket, const uint8_t* data, size_t size) {
  (void)!::send(socket, data, std::min<size_t>(size, 16 << 10), MSG_NOSIGNAL | MSG_DONTWAIT);
  ::shutdown(socket, SHUT_WR);
}

void call_at_the_door(const uint8_t* data, size_t size) {
  static comm::Door door(comm::listen_at(0, true));
  if (!door.ok()) std::abort();
  comm::Connection caller = comm::connect_once({"127.0.0.1", door.port()}, in_ms(5'000));
  if (!caller.socket.ok()) std::abort();
  say_and_end(caller.socket.get(), data, size);
  const auto visitor = door.next(in_ms(2), {});
  if (visitor &&
      std::memcmp(visitor->hello.magic, comm::Hello().magic, sizeof(comm::Hello().magic)) != 0)
    std::abort();
}

void answer_a_client(const uint8_t* data, size_t size) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) std::abort();
  device::Descriptor mine(ends[0]), theirs(ends[1]);
  say_and_end(theirs.get(), data, size);
  auto store = comm::TorchStore::greet(std::move(mine), in_ms(20));
  if (!store) return;
  const auto value = store->get("key", in_ms(20));
  if (value && value->size() > size) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  call_at_the_door(data, size);
  answer_a_client(data, size);
  return 0;
}
