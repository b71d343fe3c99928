// How a rank shows that it belongs to the job: by answering a challenge with a code that only who
// knows the job's key can compute. The key itself is never sent.
//
// This protects who may take part, not what is sent afterwards: the bytes of the job are neither
// encrypted nor signed.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "runtime/comm/launch.h"
#include "src/base/hmac.h"

namespace dc::runtime::comm {

using Nonce = std::array<uint8_t, 16>;
using Proof = base::Mac;

Nonce draw_nonce();

// The key of this start: of the job's secret and name, or, without a secret, of the name alone,
// which keeps accidents out, but no caller who can guess it.
std::string meeting_key(const LaunchInfo& launch);

// What one side of a meeting sent, in one conversation: both sides drew a nonce for it, so an
// answer of an earlier conversation proves nothing.
struct Conversation {
  std::string key;
  Nonce caller{}, host{};
  // `purpose` tells messages of one conversation apart.
  Proof prove(std::string_view purpose, std::span<const std::byte> message) const;
  bool proves(const Proof& proof, std::string_view purpose,
              std::span<const std::byte> message) const;
};

// A key for the connections after the meeting. `start` was drawn by rank 0 for this start.
std::string session_key(const std::string& meeting_key, const Nonce& start);

// Of the connection that rank `from` opens to rank `to` for `group`. Used once: a second
// connection of the same ranks and group is turned away.
Proof link_proof(const std::string& session_key, std::string_view purpose, uint32_t group, int from,
                 int to);

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span<const T, 1>(&value, 1));
}

}  // namespace dc::runtime::comm
