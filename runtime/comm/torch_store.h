// A client of the key-value store that torchrun's agent serves at MASTER_ADDR:MASTER_PORT
// (PyTorch's c10d::TCPStore, releases from 2.1 on), as far as ranks need it to find rank 0.
// Little-endian, as there; the protocol was learnt from
// torch/csrc/distributed/c10d/TCPStoreLibUvBackend.cpp.
#pragma once

#include <optional>
#include <string>

#include "runtime/comm/tcp_socket.h"

namespace dc::runtime::comm {

class TorchStore {
 public:
  // Speaks to whatever listens at the other end of the socket; nothing if that is no store.
  static std::optional<TorchStore> greet(device::Descriptor socket, const Deadline& deadline);

  bool set(const std::string& key, const std::string& value, const Deadline& deadline);
  // Waits until somebody has set the key; nothing at the deadline or when the store ends.
  std::optional<std::string> get(const std::string& key, const Deadline& deadline);
  int socket() const { return socket_.get(); }

 private:
  explicit TorchStore(device::Descriptor socket) : socket_(std::move(socket)) {}
  device::Descriptor socket_;
};

}  // namespace dc::runtime::comm
