#include "runtime/comm/tcp_master.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "runtime/comm/control_page.h"
#include "runtime/comm/meeting.h"
#include "runtime/comm/torch_store.h"

namespace dc::runtime::comm {
namespace {

using base::ErrorKind;
using base::Status;

// A master that has no such name or no route yet may get them while hosts start.
constexpr int64_t kUnreachableNs = 30'000'000'000;
constexpr int64_t kLongestPause = 200;  // ms

std::string key_of(const LaunchInfo& launch) { return "dcrun/" + run_of(launch); }
Address address_of(const Master& master) { return {master.host, master.port}; }

bool unreachable(const Connection& failed) {
  return failed.error == 0 || failed.error == ENETUNREACH || failed.error == EHOSTUNREACH;
}

std::optional<TorchStore> greet(Connection connection, const Deadline& deadline) {
  return TorchStore::greet(std::move(connection.socket), sooner(deadline, kPatienceNs));
}

Connection no_store() {
  return {device::Descriptor(), ECONNREFUSED, "what listens there is no store"};
}

Status no_answer(const LaunchInfo& launch, const std::string& reason, bool unreachable) {
  const std::string where = launch.master ? address_of(*launch.master).text() : "this host";
  return Status(unreachable ? ErrorKind::Unavailable : ErrorKind::CollectiveTimeout,
                unreachable ? "DC6108" : "DC6103",
                (launch.rank == 0 ? std::string("the store of torchrun does") : "rank 0 does") +
                    " not answer at " + where + " (" + reason +
                    "); see whether it started, check MASTER_ADDR and MASTER_PORT, or raise "
                    "--timeout");
}

base::Result<Door> publish(const LaunchInfo& launch, TorchStore store, const Deadline& deadline) {
  const Address own = local_address(store.socket());
  Door door(listen_at(0, stays_inside(launch, own)));
  if (!door.ok()) return socket_failed("listen", errno);
  const std::string value = own.host + " " + std::to_string(door.port());
  if (store.set(key_of(launch), value, deadline)) return door;
  return socket_failed("telling the store of torchrun where rank 0 listens", ECONNRESET);
}

base::Result<Door> open_through_store(const LaunchInfo& launch, const Deadline& deadline) {
  for (const Deadline patience = sooner(deadline, kUnreachableNs);;) {
    Connection connection = connect_once(address_of(*launch.master), deadline);
    if (connection.socket.ok()) {
      auto store = greet(std::move(connection), deadline);
      if (store) return publish(launch, std::move(*store), deadline);
      connection = no_store();
    }
    const bool never = unreachable(connection) && patience.passed();
    if (never || !pause_ms(kLongestPause, deadline))
      return no_answer(launch, connection.reason, unreachable(connection));
  }
}

base::Result<Door> open_at_master(const LaunchInfo& launch, const Deadline& deadline) {
  const Address master = address_of(*launch.master);
  // An earlier start of the job may need a moment to end.
  for (const Deadline patience = sooner(deadline, kPatienceNs / 2);;) {
    device::Descriptor listener = listen_at(master.port, stays_inside(launch, master));
    if (listener.ok()) return Door(std::move(listener));
    if (errno != EADDRINUSE) return socket_failed("listen at port " + master.text(), errno);
    Connection connection = connect_once(master, sooner(deadline, kPatienceNs));
    if (connection.socket.ok()) {
      auto store = greet(std::move(connection), deadline);
      if (store) return publish(launch, std::move(*store), deadline);
    }
    if (pause_ms(kLongestPause / 2, patience)) continue;
    return Status(ErrorKind::BadConfig, "DC6109",
                  "MASTER_PORT=" + std::to_string(master.port) +
                      " is taken by another program on the host of rank 0; choose a free port for "
                      "all ranks");
  }
}

// One host and no master: the port travels through the local meeting.
base::Result<int> tell_port(const LaunchInfo& launch, int port, const Deadline& deadline) {
  const auto prepare = [port](std::byte* control, const std::vector<int>&) {
    std::memcpy(control, &port, sizeof(port));
  };
  DC_ASSIGN_OR_RETURN(const Welcome welcome, meet(launch, sizeof(port), prepare,
                                                  std::chrono::milliseconds(deadline.left_ms())));
  std::memcpy(&port, welcome.control.base(), sizeof(port));
  return port;
}

}  // namespace

Deadline sooner(const Deadline& deadline, int64_t nanoseconds) {
  return {std::min(deadline.ns, monotonic_ns() + nanoseconds), deadline.wake};
}

std::string run_of(const LaunchInfo& launch) {
  return launch.master ? launch.master->run : launch.job;
}

bool stays_inside(const LaunchInfo& launch, const Address& own) {
  return launch.one_host() && own.loopback() && own.host != "::1";
}

void make_reachable(Address& published, const Address& master_from_here) {
  if (published.loopback() && !master_from_here.loopback()) published.host = master_from_here.host;
}

base::Result<Door> open_to_all(const LaunchInfo& launch, const Deadline& deadline) {
  if (launch.master) {
    return launch.master->store ? open_through_store(launch, deadline)
                                : open_at_master(launch, deadline);
  }
  Door door(listen_at(0, true));
  if (!door.ok()) return socket_failed("listen", errno);
  DC_RETURN_IF_ERROR(tell_port(launch, door.port(), deadline).status());
  return door;
}

Search::Search(const LaunchInfo& launch, const Deadline& deadline)
    : launch_(launch), deadline_(deadline), unreachable_(sooner(deadline, kUnreachableNs)) {}

base::Result<Search> Search::create(const LaunchInfo& launch, const Deadline& deadline) {
  Search search(launch, deadline);
  if (!launch.master) {
    DC_ASSIGN_OR_RETURN(search.local_port_, tell_port(launch, 0, deadline));
  }
  return search;
}

base::Result<device::Descriptor> Search::next() {
  for (;;) {
    Connection connection = try_once();
    if (connection.socket.ok()) return std::move(connection.socket);
    DC_RETURN_IF_ERROR(go_on(connection));
  }
}

Connection Search::try_once() {
  if (!launch_.master) return connect_once({"127.0.0.1", local_port_}, deadline_);
  const Address master = address_of(*launch_.master);
  Connection connection = connect_once(master, deadline_);
  if (!connection.socket.ok()) return connection;
  const Address from_here = peer_address(connection.socket.get());
  // Rank 0 closes at once when it is greeted as a store; a store would not answer a rank's hello.
  auto store = greet(std::move(connection), deadline_);
  if (!store) return launch_.master->store ? no_store() : connect_once(master, deadline_);
  const auto value = store->get(key_of(launch_), deadline_);
  const size_t space = value ? value->find(' ') : std::string::npos;
  if (space == std::string::npos)
    return {device::Descriptor(), ECONNREFUSED, "rank 0 did not say where it listens"};
  Address rank0{value->substr(0, space), std::atoi(value->c_str() + space + 1)};
  make_reachable(rank0, from_here);
  return connect_once(rank0, deadline_);
}

base::Status Search::go_on(const std::string& reason) {
  return go_on(Connection{device::Descriptor(), ECONNREFUSED, reason});
}

base::Status Search::go_on(const Connection& failed) {
  const bool never = unreachable(failed) && unreachable_.passed();
  if (never || !pause_ms(pause_, deadline_))
    return no_answer(launch_, failed.reason, unreachable(failed));
  pause_ = std::min(pause_ * 2, kLongestPause);
  return base::ok_status();
}

}  // namespace dc::runtime::comm
