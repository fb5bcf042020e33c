// What version 1 of the TCP fabric puts on the wire, in bytes. An older peer has the same, so bytes that
// change need another version, or a flag of the greeting that both sides have to set.

#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"
#include "gtest/gtest.h"
#include "hawser/transport/fabric/tcp/frame.h"
#include "hawser/transport/fabric/tcp/greeting.h"

namespace hawser::fabric {
namespace {

std::string HexOf(const FrameHeader& header) {
  std::string bytes(sizeof(header), '\0');
  std::memcpy(&bytes[0], &header, sizeof(header));
  return absl::BytesToHexString(bytes);
}

TEST(TcpBytesTest, AGreeting) {
  EXPECT_EQ(absl::BytesToHexString(EncodeGreeting(GreetingKind::kConnect, 0x010203, "ab", 5)),
            "894841575345520a"
            "0100"
            "01"
            "02"
            "030201"
            "05"
            "6162");
  EXPECT_EQ(static_cast<int>(GreetingKind::kAccept), 2);
  EXPECT_EQ(static_cast<int>(GreetingKind::kReject), 3);
  EXPECT_EQ(kTakesPushes, 1);
  EXPECT_EQ(kNeedsTls, 2);
  EXPECT_EQ(kTakesAtomics, 4);
}

TEST(TcpBytesTest, AFrame) {
  EXPECT_EQ(HexOf({.kind = FrameKind::kWrite,
                   .flags = kAckRequestedFlag,
                   .status = 9,
                   .length_bytes = 0x11121314,
                   .acknowledged = 0x21222324,
                   .key = 0x31323334,
                   .address = 0x4142434445464748}),
            "02010900"
            "14131211"
            "24232221"
            "34333231"
            "4847464544434241");
  EXPECT_EQ(kPushFollowsFlag, 2);
  int number = 0;
  for (const FrameKind kind :
       {FrameKind::kSend, FrameKind::kWrite, FrameKind::kReadRequest, FrameKind::kReadResponse,
        FrameKind::kAck, FrameKind::kNak, FrameKind::kFarewell, FrameKind::kPush, FrameKind::kCompareSwap,
        FrameKind::kFetchAdd}) {
    EXPECT_EQ(static_cast<int>(kind), ++number);
  }
}

}  // namespace
}  // namespace hawser::fabric
