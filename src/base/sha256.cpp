#include "src/base/sha256.h"

#include <openssl/evp.h>

#include "src/base/status.h"

namespace dc::base {
namespace {

EVP_MD_CTX* as_context(void* context) { return static_cast<EVP_MD_CTX*>(context); }

}  // namespace

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  DC_CHECK(context_ != nullptr);
  DC_CHECK(EVP_DigestInit_ex(as_context(context_), EVP_sha256(), nullptr) == 1);
}

Sha256::~Sha256() { EVP_MD_CTX_free(as_context(context_)); }

void Sha256::update(std::span<const uint8_t> bytes) {
  DC_CHECK(EVP_DigestUpdate(as_context(context_), bytes.data(), bytes.size()) == 1);
}

void Sha256::update(std::string_view text) {
  DC_CHECK(EVP_DigestUpdate(as_context(context_), text.data(), text.size()) == 1);
}

std::array<uint8_t, 32> Sha256::bytes() {
  std::array<uint8_t, 32> digest;
  DC_CHECK(EVP_DigestFinal_ex(as_context(context_), digest.data(), nullptr) == 1);
  return digest;
}

std::string Sha256::hex() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const uint8_t byte : bytes()) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

std::string sha256_hex(std::span<const uint8_t> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_hex(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

}  // namespace dc::base
