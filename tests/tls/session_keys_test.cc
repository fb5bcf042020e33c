// Keys that are worn, and kernels that do not take them.
#include <openssl/ssl.h>

#include <cstdint>
#include <string>

#include "gtest/gtest.h"
#include "hawser/tests/testing/status_matchers.h"
#include "hawser/tests/tls/session_pair.h"

namespace hawser::tls {
namespace {

constexpr KernelUse kNever = KernelUse::kNever;
constexpr KernelUse kAlways = KernelUse::kAlways;

TEST(SessionKeysTest, AWornKeyIsChanged) {
  SessionPair pair(kNever, kNever);
  pair.client.session->set_key_records_max(8);
  // In place of the session's own callback, which only counts records.
  int updates = 0;
  SSL_set_msg_callback(pair.server.session->ssl(),
                       [](int is_written, int, int type, const void* bytes, size_t count, SSL*, void* seen) {
                         if (is_written == 0 && type == SSL3_RT_HANDSHAKE && count > 0 &&
                             *static_cast<const uint8_t*>(bytes) == SSL3_MT_KEY_UPDATE) {
                           ++*static_cast<int*>(seen);
                         }
                       });
  SSL_set_msg_callback_arg(pair.server.session->ssl(), &updates);
  for (int i = 0; i < 20; ++i) {
    pair.Send(pair.client, pair.server, Text(100'000));
    pair.Send(pair.server, pair.client, Text(100));
  }
  EXPECT_THAT(pair.client.session->error(), IsOk());
  EXPECT_GE(updates, 15);
  EXPECT_LE(updates, 25) << "140 records, seven of them with one key";
}

// TCP_ULP is of TCP.
TEST(SessionKeysTest, WhereTheKernelHasNoTlsAllGoesOnInUserSpace) {
  SessionPair pair(kAlways, kAlways, "", ConnectedUnix);
  pair.MoveBoth();
  for (const Party* party : {&pair.client, &pair.server}) {
    EXPECT_FALSE(party->session->sends_in_kernel());
    EXPECT_FALSE(party->session->receives_in_kernel());
  }
  pair.Send(pair.client, pair.server, Text(100'000));
  pair.Send(pair.server, pair.client, Text(100'000));
}

// Over TCP, in a kernel with the module or without.
TEST(SessionKeysTest, WhatTheKernelCanDoIsNotSeenByTheBytes) {
  SessionPair pair(kAlways, kAlways);
  pair.MoveBoth();
  pair.Send(pair.client, pair.server, Text(100'000));
  pair.Send(pair.server, pair.client, Text(100'000));
}

TEST(SessionKeysTest, AKeyThatWearsStaysInUserSpaceUnlessToldOtherwise) {
  SessionPair pair(KernelUse::kWhereKeysLast, KernelUse::kWhereKeysLast, "TLS_AES_128_GCM_SHA256");
  pair.MoveBoth();
  EXPECT_FALSE(pair.client.session->sends_in_kernel() || pair.client.session->receives_in_kernel());
  pair.Send(pair.client, pair.server, "there");
  pair.Send(pair.server, pair.client, "back");
}

}  // namespace
}  // namespace hawser::tls
