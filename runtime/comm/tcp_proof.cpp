#include "runtime/comm/tcp_proof.h"

#include <sys/random.h>

#include "runtime/comm/tcp_master.h"
#include "src/base/status.h"

namespace dc::runtime::comm {
namespace {

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string as_key(const base::Mac& mac) {
  return std::string(text_of(std::as_bytes(std::span(mac))));
}

}  // namespace

Nonce draw_nonce() {
  Nonce nonce;
  DC_CHECK(getrandom(nonce.data(), nonce.size(), 0) == static_cast<ssize_t>(nonce.size()));
  return nonce;
}

std::string meeting_key(const LaunchInfo& launch) {
  return as_key(base::hmac_sha256(launch.secret, "dcrun meeting " + run_of(launch)));
}

Proof Conversation::prove(std::string_view purpose, std::span<const std::byte> message) const {
  std::string text(purpose);
  text += '\0';
  text += text_of(std::as_bytes(std::span(caller)));
  text += text_of(std::as_bytes(std::span(host)));
  text += text_of(message);
  return base::hmac_sha256(key, text);
}

bool Conversation::proves(const Proof& proof, std::string_view purpose,
                          std::span<const std::byte> message) const {
  return base::equal_in_constant_time(proof, prove(purpose, message));
}

std::string session_key(const std::string& meeting_key, const Nonce& start) {
  return as_key(base::hmac_sha256(
      meeting_key, "session " + std::string(text_of(std::as_bytes(std::span(start))))));
}

Proof link_proof(const std::string& session_key, std::string_view purpose, uint32_t group, int from,
                 int to) {
  return base::hmac_sha256(session_key, std::string(purpose) + " " + std::to_string(group) + " " +
                                            std::to_string(from) + " " + std::to_string(to));
}

}  // namespace dc::runtime::comm
